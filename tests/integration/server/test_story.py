"""The main story: people in a room see each other, chat, and share what runs in its sandbox."""

import re
import time

from tests.integration.server.harness import JSON, SANDBOX_S, Wire


def who(frame):
    return frame["participant"]["id"]


async def test_welcome_says_who_and_what_is_allowed(server, codec) -> None:
    async with server.client(codec, "Ada", kind="bot") as ada:
        welcome = ada.welcome
        assert welcome["participant"]["name"] == "Ada"
        assert welcome["participant"]["kind"] == "bot"
        assert welcome["server"]["protocol"] == 1
        assert welcome["session"]
        assert set(welcome["limits"]) >= {
            "frameBytes",
            "serverFrameBytes",
            "textChars",
            "commandBytes",
            "framesPerSecond",
            "rooms",
            "execKeptBytes",
            "resumeEvents",
        }
        assert welcome["limits"]["serverFrameBytes"] == 256 * 1024
        assert welcome["limits"]["execKeptBytes"] == (256 + 768) * 1024
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", welcome["server"]["version"])


async def test_a_token_is_the_same_participant_again(server, codec) -> None:
    async with server.client(codec, "Ada", kind="bot") as ada:
        token = ada.welcome["token"]
    async with server.client(codec, "Eve") as other:
        assert other.id != ada.id
    async with Wire(server, codec, {"token": token}) as again:
        assert again.welcome["participant"] == ada.welcome["participant"]


async def test_they_see_each_other_come_go_and_type(server, codec, room) -> None:
    async with server.client(codec, "Ada") as ada:
        joined = await ada.join(room)
        assert joined["room"] == room
        assert [one["id"] for one in joined["participants"]] == [ada.id]
        async with server.client(codec, "Ben") as ben:
            there = await ben.join(room)
            assert {one["id"] for one in there["participants"]} == {ada.id, ben.id}
            came = await ada.until("participant.joined")
            assert (who(came), came["participant"]["name"]) == (ben.id, "Ben")
            await ben.send("typing", room=room, on=True)
            typing = await ada.until("typing")
            assert (who(typing), typing["on"]) == (ben.id, True)
            await ben.send("typing", room=room, on=False)
            await ada.until(lambda f: f["type"] == "typing" and not f["on"])
            begin = len(ben.frames)
            await ben.send("typing", room=room, on=True, ref="t")
            await ben.settle()
            assert [f["type"] for f in ben.frames[begin:]] == ["pong"], "it is not answered"
        left = await ada.until("participant.left")
        assert who(left) == ben.id
        assert "offset" not in left


async def test_leaving_is_seen_and_ends_the_rooms_events(pair, room) -> None:
    ada, ben = pair
    await ben.ok("leave", room=room)
    assert who(await ada.until("participant.left")) == ben.id
    begin = len(ben.frames)
    await ada.ok("say", room=room, text="alone")
    await ben.settle()
    assert [frame["type"] for frame in ben.frames[begin:]] == ["pong"]
    assert (await ben.refused("say", room=room, text="hm"))["code"] == "not_joined"


async def test_a_participant_comes_with_the_first_session_and_goes_with_the_last(
    server, codec, pair, room
) -> None:
    ada, ben = pair
    begin = len(ada.frames)
    token = ben.welcome["token"]
    async with server.client(codec, "Ben", token=token) as second:
        assert second.id == ben.id
        joined = await second.join(room)
        assert sorted(p["id"] for p in joined["participants"]) == sorted({ada.id, ben.id})
        await ben.ok("leave", room=room)
        await second.ok("say", room=room, text="still here")
        await ada.until(lambda f: f.get("text") == "still here")
        presence = [f["type"] for f in ada.frames[begin:] if f["type"].startswith("participant")]
        assert presence == []
    assert who(await ada.until("participant.left", begin)) == ben.id


async def test_a_new_name_is_told_in_every_room_that_one_is_in(server, codec, pair, room) -> None:
    ada, ben = pair
    _, made = await server.http("POST", "/api/rooms", {})
    for client in pair:
        await client.join(made["id"])
    begin = len(ada.frames)
    async with server.client(codec, "Benedict", token=ben.welcome["token"]) as second:
        assert second.id == ben.id
        for place in (room, made["id"]):
            told = await ada.until(lambda f, at=place: f.get("room") == at, begin)
            assert told["type"] == "participant.joined"
            assert (told["participant"]["id"], told["participant"]["name"]) == (ben.id, "Benedict")
        joined = await second.join(room)
        assert {p["name"] for p in joined["participants"]} == {"Ada", "Benedict"}
        await ben.ok("say", room=room, text="by my new name")  # by the session that was there
        said = await ada.until(lambda f: f.get("text") == "by my new name")
        assert said["by"]["name"] == "Benedict"
        assert [f["type"] for f in ada.frames[begin:] if "participant" in f] == (
            ["participant.joined"] * 2
        )


async def test_nobody_goes_by_the_agents_name(server, codec) -> None:
    async with Wire(server, codec, None) as wire:
        for name in ("duet", " DUET "):
            error = await wire.refused("hello", name=name)
            assert error["code"] == "conflict"
            assert "choose another" in error["message"]
        await wire.ok("hello", name="Duet's friend")


async def test_an_answer_is_to_a_message_that_is_there(pair, room) -> None:
    ada, ben = pair
    said = await ada.ok("say", room=room, text="first")
    for wrong in ("m_nowhere", ada.id, ""):
        error = await ben.refused("say", room=room, text="to what?", replyTo=wrong, key="k")
        assert error["code"] in ("unknown_message", "invalid"), wrong
    again = await ben.ok("say", room=room, text="to that", replyTo=said["id"], key="k")
    await ada.ok("delete", room=room, id=said["id"])
    kept = await ben.ok("say", room=room, text="to that", replyTo=said["id"], key="k")
    assert kept["id"] == again["id"]
    answer = await ada.until(lambda f: f.get("id") == again["id"])
    assert answer["replyTo"] == said["id"]


async def test_chat_reaches_everyone_as_it_was_said(pair, room) -> None:
    ada, ben = pair
    text = "# hej\n```sh\necho '<script>'\n```\n \u2028 🎉 é"
    ack = await ada.ok("say", room=room, text=text, key="k1")
    for client in (ada, ben):
        message = await client.until("message")
        assert message["text"] == text
        assert message["by"] == {"id": ada.id, "name": "Ada", "kind": "human"}
        assert (message["offset"], message["id"]) == (ack["offset"], ack["id"])
        assert (message["room"], message["key"]) == (room, "k1")
        assert abs(message["ts"] / 1000 - time.time()) < 60
    reply = await ben.ok("say", room=room, text="yes", replyTo=ack["id"])
    answer = await ada.until(lambda f: f.get("id") == reply["id"])
    assert answer["replyTo"] == ack["id"]
    assert answer["offset"] == ack["offset"] + 1


async def test_output_is_live_while_another_command_answers(pair, room) -> None:
    """The first command waits for input, so that what is seen of it is seen live."""
    ada, ben = pair
    slow = await ada.run(room, 'echo one; read x; echo "two $x" | tee seen; exit 3', stdin=True)
    for client in (ada, ben):
        started = await client.until("exec.started")
        assert started["by"]["id"] == ada.id
        assert started["exec"] == slow
        assert started["command"].startswith("echo one")
        await client.printed(slow, b"one\n")
    quick = await ben.run(room, "echo quick; echo wrong >&2")
    end = await ada.exited(quick)
    assert (end["ok"], end["exitCode"], end["by"]["id"]) == (True, 0, ben.id)
    assert (end["stdout"], end["stderr"]) == ("quick\n", "wrong\n")
    assert ben.output(quick, "stderr") == ada.output(quick, "stderr") == b"wrong\n"
    assert not ada.of("exec.exited", exec=slow)
    await ada.input(slow, "here\n")
    for client in (ada, ben):
        end = await client.exited(slow)
        assert (end["ok"], end["reason"], end["exitCode"]) == (False, "command_failed", 3)
        assert end["retryable"] is False
        assert client.output(slow) == b"one\ntwo here\n"
        assert end["bytes"]["stdout"] == 13
        assert end["truncated"]["stdout"] is False
        assert end["durationMs"] > 0
    files = await ben.exited(await ben.run(room, "cat seen"))
    assert files["stdout"] == "two here\n", "both share the files"


async def test_anyone_cancels_and_nothing_is_left(pair, room) -> None:
    ada, ben = pair
    command = "sleep 98765 & setsid sleep 98765 & (setsid sleep 98765 &) ; echo on; wait"
    running = await ada.run(room, command)
    await ben.printed(running, b"on\n")
    await ben.ok("exec.cancel", exec=running)
    for client in (ada, ben):
        end = await client.exited(running)
        assert (end["ok"], end["reason"], end["retryable"]) == (False, "cancelled", False)
        assert end["stdout"] == "on\n"
    look = r"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -c 'sleep 9876[5]'"
    left = await ada.exited(await ada.run(room, look))
    assert left["stdout"] == "0\n"
    again = await ada.ask("exec.cancel", exec=running)
    assert again["type"] == "ack" or again["code"] == "unknown_exec"
    await ada.settle()  # and no second end, as the client's rules hold


async def test_a_late_joiner_gets_what_was_and_what_comes(server, codec, pair, room) -> None:
    ada, _ = pair
    said = await ada.ok("say", room=room, text="before")
    running = await ada.run(room, "echo one; read x; echo $x", stdin=True)
    await ada.printed(running, b"one\n")
    async with server.client(codec, "Cleo") as cleo:
        joined = await cleo.join(room)
        assert joined["resumed"] is False
        listed = [(event["type"], event["offset"]) for event in joined["events"]]
        assert ("message", said["offset"]) in listed
        assert joined["offset"] == listed[-1][1]
        (execution,) = joined["execs"]
        assert execution["started"]["exec"] == running
        assert execution["started"]["command"] == "echo one; read x; echo $x"
        assert execution["streams"]["stdout"] == {"from": 0, "to": 4}
        await cleo.printed(running, b"one\n")
        await ada.input(running, "next\n")
        await cleo.exited(running)
        assert cleo.output(running) == ada.output(running) == b"one\nnext\n"


async def test_http_runs_in_the_room_and_everybody_sees_it(server, pair, room) -> None:
    ada, ben = pair
    path = f"/api/rooms/{room}/sandbox/exec"
    status, answer = await server.http("POST", path, {"cmd": "echo hello; echo oh >&2"})
    assert status == 200
    assert answer["sandboxName"] == f"sandbox-{room}"
    result = answer["result"]
    assert (result["ok"], result["exitCode"]) == (True, 0)
    assert (result["stdout"], result["stderr"]) == ("hello\n", "oh\n")
    for client in (ada, ben):
        started = await client.until("exec.started")
        assert started["command"].startswith("echo hello")
        await client.exited(started["exec"])
        assert client.output(started["exec"]) == b"hello\n"
    status, listed = await server.http("GET", f"/api/rooms/{room}/execs")
    assert status == 200
    assert [one["exec"] for one in listed["execs"]] == [started["exec"]]


async def test_http_tells_failures_as_results(server, room) -> None:
    path = f"/api/rooms/{room}/sandbox/exec"
    status, answer = await server.http("POST", path, {"cmd": "echo x; exit 7"})
    assert (status, answer["result"]["ok"], answer["result"]["exitCode"]) == (200, False, 7)
    assert answer["result"]["reason"] == "command_failed"
    body = {"cmd": "echo before; sleep 98", "timeoutMs": 500}
    status, answer = await server.http("POST", path, body)
    assert (status, answer["result"]["reason"]) == (200, "timeout")
    assert answer["result"]["retryable"] is True
    assert answer["result"]["stdout"] == "before\n"
    long = "head -c 100000 /dev/zero | tr '\\0' x"
    status, answer = await server.http("POST", path, {"cmd": long})
    assert (status, answer["result"]["stdout"]) == (200, "x" * 100_000)


async def test_rooms_do_not_hear_each_other(server, pair, room) -> None:
    ada, ben = pair
    other = await server.new_room()
    async with server.client(JSON, "Cleo") as cleo:
        await cleo.join(other)
        await cleo.ok("say", room=other, text="elsewhere")
        await cleo.settle()
    await ada.settle()
    await ben.settle()
    assert all(frame.get("room") in (room, None) for frame in ada.frames + ben.frames)


async def test_one_session_in_two_rooms(server, codec) -> None:
    first, second = await server.new_room(), await server.new_room()
    async with server.client(codec, "Ada") as ada:
        await ada.join(first)
        await ada.join(second)
        for index in range(3):
            await ada.ok("say", room=(first, second)[index % 2], text=str(index))
            await ada.until(lambda f, text=str(index): f.get("text") == text)
        assert [f["text"] for f in ada.of("message", room=first)] == ["0", "2"]
        assert [f["text"] for f in ada.of("message", room=second)] == ["1"]


async def test_without_output_only_starts_and_ends_come(server, codec, pair, room) -> None:
    ada, _ = pair
    async with server.client(codec, "Bot", kind="bot") as bot:
        await bot.join(room, output=False)
        done = await ada.run(room, "echo hi")
        end = await bot.exited(done, SANDBOX_S)
        assert end["stdout"] == "hi\n"
        assert not bot.of("exec.output", "exec.gap")
