"""Turns of a room: in order, stopped, decided about, joined in the middle, settled after a restart."""

import asyncio
import base64
import time

import pytest
from pydantic_ai.exceptions import ModelRateLimitError

from protocol.model import Participant
from server.agent import loop, turns
from server.agent.turns import Agent, AgentConfig
from tests.integration.agent.conftest import call, finished, of_turn, two
from tests.integration.server.harness import JSON, MSGPACK, SANDBOX_S


def types(events):
    return [event["type"] for event in events]


async def ask(client, room, text="Q?", **fields):
    return (await client.ok("ask", room=room, text=text, **fields))["turn"]


async def started(client, turn):
    await client.until(lambda f: f["type"] == "agent.started" and f["turn"] == turn)


async def test_questions_wait_in_order_and_are_seen(house):
    gate = asyncio.Event()
    opened = await house(["one", gate, "."], ["two"], ["three"])
    async with two(opened) as (room, alice, bob):
        first = await ask(alice, room, "A?")
        await bob.until("agent.delta")
        second, third = await ask(bob, room, "B?"), await ask(alice, room, "C?")
        await alice.until(lambda f: f["type"] == "agent.queued" and f["turn"] == third)
        assert types(of_turn(alice, second)) == ["agent.queued"]
        gate.set()
        await finished(alice, third)
        log = [(f["type"], f["turn"]) for f in alice.log(room)]
        assert log == [
            ("agent.queued", first),
            ("agent.started", first),
            ("agent.queued", second),
            ("agent.queued", third),
            ("message", first),
            ("agent.finished", first),
            *[
                (kind, turn)
                for turn in (second, third)
                for kind in ("agent.started", "message", "agent.finished")
            ],
        ]
        assert [m["text"] for m in alice.of("message")] == ["one.", "two", "three"]


async def test_stop_ends_the_command_and_the_turn_and_the_next_question_works(house):
    opened = await house(["I wait. <run>echo on; sleep 300 & sleep 300</run>"], ["Here."])
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        run = await bob.until("exec.started", limit_s=SANDBOX_S)
        await bob.printed(run["exec"], b"on\n")
        await bob.ok("agent.stop", room=room, turn=turn)
        end = await finished(alice, turn)
        assert (end["status"], end["message"]) == ("stopped", "Bob stopped this.")
        exited = alice.of("exec.exited")[0]
        assert (exited["exec"], exited["reason"]) == (run["exec"], "cancelled")
        assert exited["offset"] < end["offset"]
        message = alice.of("message")[0]
        assert (message["text"], message["partial"]) == ("I wait. ", True)
        again = await ask(bob, room)
        assert (await finished(alice, again))["status"] == "done"
        gone = await bob.refused("agent.stop", room=room, turn=turn)
        assert gone["code"] == "unknown_turn"


async def test_a_stuck_model_is_stopped_at_once_and_a_waiting_turn_too(house):
    opened = await house(["Hm", asyncio.Event()], ["Here."])
    async with two(opened) as (room, alice, bob):
        first = await ask(alice, room)
        await bob.until("agent.delta")
        waiting = await ask(bob, room)
        last = await ask(bob, room)
        await alice.ok("agent.stop", room=room, turn=waiting)
        assert (await finished(bob, waiting))["status"] == "stopped"
        assert types(of_turn(bob, waiting)) == ["agent.queued", "agent.finished"]
        await bob.ok("agent.stop", room=room, turn=first)
        assert (await finished(bob, first))["status"] == "stopped"
        assert (await finished(bob, last))["status"] == "done"


async def test_a_stuck_model_is_cut_at_its_limit_and_the_room_goes_on(house):
    opened = await house(["It is", asyncio.Event()], ["Four."], agent_max_seconds=0.5)
    async with two(opened) as (room, alice, _bob):
        end = await finished(alice, await ask(alice, room))
        assert end["status"] == "limit"
        assert "0.5 seconds" in end["message"]
        assert alice.of("message")[0]["partial"] is True
        assert (await finished(alice, await ask(alice, room)))["status"] == "done"


# Approval


async def waits(client, number=0):
    return await client.until(
        lambda f: f["type"] == "agent.approval" and client.of("agent.approval").index(f) == number,
        limit_s=SANDBOX_S,
    )


async def set_approval(opened, room, mode):
    status, facts = await opened.http("PATCH", f"/api/rooms/{room}", {"agent": {"approval": mode}})
    assert (status, facts["agent"]["approval"]) == (200, mode)


async def test_the_first_answer_wins_and_everyone_sees_whose(house):
    command = "printf '%s' \"a  b\""
    opened = await house([f"<run>{command}</run>"], ["ok"])
    async with two(opened) as (room, alice, bob):
        await set_approval(opened, room, "ask")
        assert (await alice.until("room.updated"))["agent"] == {"approval": "ask"}
        turn = await ask(alice, room)
        wanted = await waits(bob)
        assert wanted["command"] == command
        assert 0 < wanted["expiresTs"] - time.time() * 1000 <= 120_000
        assert alice.of("exec.started") == []
        decision = {"room": room, "turn": turn, "call": wanted["call"]}
        await bob.ok("agent.decide", **decision, decision="allow")
        late = await alice.refused("agent.decide", **decision, decision="deny")
        assert (late["code"], "Bob" in late["message"]) == ("conflict", True)
        await finished(alice, turn)
        (decided,) = alice.of("agent.decided")
        assert (decided["by"]["name"], decided["decision"]) == ("Bob", "allow")
        assert alice.of("exec.started")[0]["command"] == command
        assert alice.of("exec.exited")[0]["stdout"] == "a  b"


@pytest.mark.parametrize("way", ["native", "tags"])
async def test_what_is_approved_is_what_the_sandbox_gets_byte_for_byte(house, way):
    odd = (
        "tr -d '\\0' </proc/$$/cmdline | base64 -w0\t#  a  b \u00fc\u2028\U0001f389 \x07 '\"`\\ \\"
    )
    odd += "\r\n\n\t\n# end" + (" \n" if way == "native" else "")
    opened = await house(
        [call(odd)] if way == "native" else [f"<run>{odd}</run>"],
        ["ok"],
        way=way,
        agent_approval="ask",
    )
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        wanted = await waits(bob)
        assert wanted["command"] == odd
        decision = {"room": room, "turn": turn, "call": wanted["call"]}
        await alice.ok("agent.decide", **decision, decision="allow")
        await finished(bob, turn)
        (run,) = bob.of("exec.started")
        assert run["command"] == odd
        got = base64.b64decode(bob.output(run["exec"]))
        assert got.endswith(odd.encode()), got


async def test_many_answers_at_once_are_one(house):
    opened = await house(["<run>echo x</run>"], ["ok"], agent_approval="ask")
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        wanted = await waits(bob)
        fields = {"room": room, "turn": turn, "call": wanted["call"]}
        replies = await asyncio.gather(
            *(
                client.ask("agent.decide", **fields, decision=word)
                for client in (alice, bob)
                for word in ("deny", "allow", "always")
            )
        )
        assert sorted(reply["type"] for reply in replies) == ["ack", *["error"] * 5]
        await finished(alice, turn)
        assert len(alice.of("agent.decided")) == 1


async def test_a_denial_and_its_note_reach_the_model(house):
    opened = await house(["<run>rm a</run>"], ["I leave it."], agent_approval="ask")
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        wanted = await waits(bob)
        fields = {"room": room, "turn": turn, "call": wanted["call"], "note": "keep a"}
        await bob.ok("agent.decide", **fields, decision="deny")
        assert (await finished(alice, turn))["status"] == "done"
        assert alice.of("agent.decided")[0]["note"] == "keep a"
        assert alice.of("exec.started") == []
    assert "denied by Bob" in opened.script.told()
    assert "keep a" in opened.script.told()


async def test_no_answer_in_time_is_a_denial_by_the_server(house):
    opened = await house(["<run>x</run>"], ["ok"], agent_approval="ask", agent_approval_s=0.2)
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        assert (await finished(alice, turn))["status"] == "done"
        (decided,) = alice.of("agent.decided")
        assert (decided["by"]["id"], decided["decision"]) == ("server", "deny")
        reply = await alice.refused(
            "agent.decide", room=room, turn=turn, call=decided["call"], decision="allow"
        )
        assert reply["code"] == "unknown_turn"


async def test_always_allows_the_rest_of_this_turn_alone(house):
    answers = [["<run>echo 1</run><run>echo 2</run>"], ["ok"], ["<run>echo 3</run>"], ["ok"]]
    opened = await house(*answers, agent_approval="ask", agent_approval_s=0.3)
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        wanted = await waits(bob)
        await bob.ok("agent.decide", room=room, turn=turn, call=wanted["call"], decision="always")
        await finished(alice, turn)
        assert [run["command"] for run in alice.of("exec.started")] == ["echo 1", "echo 2"]
        await finished(alice, await ask(alice, room))
        assert len(alice.of("agent.approval")) == 2
        assert len(alice.of("exec.started")) == 2


async def test_stopping_a_turn_that_waits_for_people(house):
    opened = await house(["<run>x</run>"], agent_approval="ask")
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        await waits(bob)
        await bob.ok("agent.stop", room=room, turn=turn)
        assert (await finished(alice, turn))["status"] == "stopped"


async def test_off_runs_nothing_and_a_pattern_asks_on_auto(house):
    opened = await house(
        ["<run>x</run>"], ["ok"], ["<run>git push</run>"], ["ok"], agent_approval_s=0.2
    )
    async with two(opened) as (room, alice, _bob):
        await set_approval(opened, room, "off")
        end = await finished(alice, await ask(alice, room))
        assert "cannot run commands" in opened.script.told(0)
        assert end["usage"]["commands"] == 0
        await set_approval(opened, room, "auto")
        await finished(alice, await ask(alice, room))
        assert [f["command"] for f in alice.of("agent.approval")] == ["x", "git push"]
        assert alice.of("exec.started") == []


async def test_a_command_that_is_off_is_seen_where_it_was_wanted(house):
    opened = await house(["I try. ", "<run>rm x</run>"], ["I may not."], agent_approval="off")
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        end = await finished(bob, turn)
        assert types(of_turn(bob, turn)) == [
            "agent.queued",
            "agent.started",
            "agent.approval",
            "agent.decided",
            "message",
            "agent.finished",
        ]
        (wanted,), (decided,) = bob.of("agent.approval"), bob.of("agent.decided")
        assert (wanted["command"], wanted["at"], wanted["by"]["kind"]) == ("rm x", 7, "agent")
        assert wanted["expiresTs"] <= wanted["ts"]
        assert (decided["call"], decided["decision"]) == (wanted["call"], "deny")
        assert decided["by"]["id"] == "server"
        assert decided["note"] == "Commands of the agent are off in this room."
        assert (end["status"], end["usage"]["commands"]) == ("done", 0)
        late = await alice.refused(
            "agent.decide", room=room, turn=turn, call=wanted["call"], decision="allow"
        )
        assert late["code"] == "unknown_turn"


async def test_a_command_beyond_the_limit_is_seen_and_not_counted(house):
    opened = await house(
        ["<run>echo 1</run><run>echo 2</run>"], agent_max_commands=1, agent_approval="auto"
    )
    async with two(opened) as (room, alice, _bob):
        end = await finished(alice, await ask(alice, room))
        assert (end["status"], end["usage"]["commands"]) == ("limit", 1)
        assert [f["command"] for f in alice.of("exec.started")] == ["echo 1"]
        (wanted,), (decided,) = alice.of("agent.approval"), alice.of("agent.decided")
        assert (wanted["command"], decided["decision"]) == ("echo 2", "deny")
        assert decided["note"] == end["message"]


async def test_a_command_that_a_full_room_refuses_is_seen(house):
    opened = await house(["<run>echo 1</run>"], ["Later."], max_running_execs=1)
    async with two(opened) as (room, alice, _bob):
        running = await alice.run(room, "sleep 300")
        end = await finished(alice, await ask(alice, room))
        assert (end["status"], end["usage"]["commands"]) == ("done", 0)
        (decided,) = alice.of("agent.decided")
        assert (decided["decision"], "1 commands run" in decided["note"]) == ("deny", True)
        await alice.ok("exec.cancel", exec=running)
        await alice.exited(running)


async def test_a_turn_that_is_read_back_tells_where_its_commands_stood(house):
    opened = await house(
        ["One. <run>echo 1</run> Then two. <run>echo 2</run>", " ok"], ["Both \U0001f389."]
    )
    async with two(opened) as (room, alice, bob):
        await set_approval(opened, room, "ask")
        turn = await ask(alice, room)
        first = await waits(bob)
        async with opened.client(JSON, "Cleo") as cleo:
            (open_turn,) = (await cleo.join(room))["turns"]
            assert [call["at"] for call in open_turn["calls"]] == [5]
        decision = {"room": room, "turn": turn, "call": first["call"]}
        await bob.ok("agent.decide", **decision, decision="always")
        await finished(alice, turn)
        events = (await bob.ok("history", room=room, limit=200))["events"]
        (text,) = [e["text"] for e in events if e["type"] == "message"]
        assert text == "One.  Then two.  ok\n\nBoth \U0001f389."
        assert [e["at"] for e in events if e["type"] == "agent.approval"] == [5]
        assert [e["at"] for e in events if e["type"] == "exec.started"] == [5, 16]


@pytest.mark.parametrize(
    ("setting", "value"), [("steps", 1), ("tokens", 900), ("seconds", 0.3), ("commands", 1)]
)
async def test_each_limit_of_the_settings_ends_a_turn_and_is_named(house, setting, value):
    answers = [[None] * 20 + ["word " * 40, f"<run>echo {n}</run>"] for n in range(9)]
    limits = {"steps": 50, "tokens": 100_000, "seconds": 60.0, "commands": 50}
    given = {f"agent_max_{name}": limit for name, limit in (limits | {setting: value}).items()}
    if setting == "seconds":
        answers[0].append(asyncio.Event())
    opened = await house(*answers, agent_approval="off", **given)
    async with two(opened) as (room, alice, _bob):
        end = await finished(alice, await ask(alice, room))
        assert end["status"] == "limit"
        assert f"(DUET_AGENT_MAX_{setting.upper()})" in end["message"]


@pytest.mark.parametrize("body", [{"agent": {"approval": "maybe"}}, {"agent": {}}, {"agent": 1}])
async def test_an_unknown_approval_is_refused(house, body):
    opened = await house()
    room = await opened.new_room()
    status, answer = await opened.http("PATCH", f"/api/rooms/{room}", body)
    assert (status, answer["error"]) == (400, "invalid request")


# Who joins, keys, unknown things


async def test_who_joins_in_the_middle_sees_the_text_so_far_and_then_the_rest(house):
    gate, more = asyncio.Event(), asyncio.Event()
    opened = await house(["It is \U0001f389 ", gate, "really ", more, "four."])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room, "2+2?")
        await alice.until("agent.delta")
        waiting = await ask(alice, room, "Next?")
        async with opened.client(MSGPACK, "Cleo") as cleo:
            joined = await cleo.join(room)
            assert joined["participants"][0] == {
                "id": "agent",
                "name": "duet",
                "kind": "agent",
                "role": "member",
            }
            first, second = joined["turns"]
            assert (first["turn"], first["status"], first["question"]) == (turn, "thinking", "2+2?")
            assert (first["by"]["name"], first["text"]) == ("Alice", "It is \U0001f389 ")
            assert (second["turn"], second["status"]) == (waiting, "queued")
            gate.set()
            await cleo.until("agent.delta")
            more.set()
            await finished(cleo, turn)
            text = first["text"]
            for delta in cleo.of("agent.delta", turn=turn):
                assert delta["at"] == len(text)
                text += delta["text"]
            assert text == "It is \U0001f389 really four." == cleo.of("message")[0]["text"]
        async with opened.client(JSON, "Dan") as dan:
            await finished(alice, waiting)
            assert (await dan.join(room))["turns"] == []


async def test_who_joins_while_people_are_asked_can_answer(house):
    opened = await house(["<run>echo x</run>"], ["ok"], agent_approval="ask")
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        wanted = await waits(alice)
        async with opened.client(JSON, "Cleo") as cleo:
            (open_turn,) = (await cleo.join(room))["turns"]
            assert open_turn["status"] == "approval"
            assert open_turn["calls"] == [
                {
                    "call": wanted["call"],
                    "command": "echo x",
                    "at": 0,
                    "status": "approval",
                    "expiresTs": wanted["expiresTs"],
                }
            ]
            call_id = open_turn["calls"][0]["call"]
            await cleo.ok("agent.decide", room=room, turn=turn, call=call_id, decision="allow")
            await finished(alice, turn)
        assert alice.of("agent.decided")[0]["by"]["name"] == "Cleo"


async def test_a_key_makes_asking_safe_to_retry(house):
    opened = await house(["one"], ["two"])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room, "Q?", key="k")
        assert await ask(alice, room, "Q?", key="k") == turn
        await finished(alice, turn)
        assert await ask(alice, room, "Q?", key="k") == turn
        other = await alice.refused("ask", room=room, text="Other?", key="k")
        assert other["code"] == "key_conflict"
        assert (await alice.refused("say", room=room, text="Q?", key="k"))["code"] == "key_conflict"
        assert len(alice.of("agent.queued")) == 1
        said = {"room": room, "text": "@duet hello", "key": "s"}
        first, second = await alice.ok("say", **said), await alice.ok("say", **said)
        assert first["id"] == second["id"]
        await alice.until(lambda f: f["type"] == "agent.finished" and f["turn"] != turn)
        assert [f.get("replyTo") for f in alice.of("agent.queued")] == [None, first["id"]]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("@duet hi", True),
        ("hi, @Duet!", True),
        ("(@duet) x", True),
        ("me@duet.example", False),
        ("@duets", False),
        ("@duet-2", False),
        ("`@duet`", False),
        ("```\n@duet\n```", False),
        ("/@duet", False),
        ("duet", False),
    ],
)
def test_a_mention_is_a_word_of_its_own_outside_of_code(text, asks):
    who = Participant(id="agent", name="duet", kind="agent")
    agent = Agent(None, None, None, AgentConfig(who, "auto", (), None, 1), None)
    assert agent.mentioned(text) is asks


async def test_a_message_with_a_key_asks_once_as_long_as_its_key_is_kept(house):
    opened = await house(["Hello."])
    async with two(opened) as (room, alice, _bob):
        said = await alice.ok("say", room=room, text="@duet hello", key="s")
        await alice.until("agent.finished")
        call = opened.app.store.call
        kept_ms = await call("PTTL", f"duet:{{{room}}}:key:{alice.id}:s")
        assert kept_ms > 23 * 3_600_000
        asked_ms = await call("PTTL", f"duet:{{{room}}}:once:ask:{said['id']}")
        assert asked_ms >= kept_ms


async def test_a_question_that_is_deleted_stands_nowhere_any_more(house):
    opened = await house(["Do not tell me."], ["Yes."])
    async with two(opened) as (room, alice, bob):
        said = await alice.ok("say", room=room, text="@duet my word is xyzzy")
        await alice.until("agent.finished")
        await alice.ok("edit", room=room, id=said["id"], text="@duet my word is plugh")
        other = await bob.ok("say", room=room, text="@duet is it?")
        await bob.until(lambda _: len(bob.of("agent.finished")) == 2)
        await alice.ok("delete", room=room, id=said["id"])
        page = await alice.ok("history", room=room, limit=200)
        assert "xyzzy" not in str(page)
        assert "plugh" not in str(page)
        asked = [e for e in page["events"] if e["type"] in ("agent.queued", "agent.started")]
        assert [e["question"] for e in asked] == ["", "", "@duet is it?", "@duet is it?"]
        assert asked[-1]["replyTo"] == other["id"]
        async with opened.client(JSON, "Cleo") as cleo:
            assert "xyzzy" not in str(await cleo.join(room))


async def test_its_name_is_a_setting(house):
    opened = await house(["I am."], agent_name="Helfer_1", agent_approval="off")
    async with two(opened) as (room, alice, _bob):
        assert (await alice.join(room))["participants"][0]["name"] == "Helfer_1"
        await alice.ok("say", room=room, text="@duet are you there?")
        said = await alice.ok("say", room=room, text="@helfer_1, are you there?")
        end = await alice.until("agent.finished")
        assert (end["by"]["name"], end["status"]) == ("Helfer_1", "done")
        assert [f["replyTo"] for f in alice.of("agent.queued")] == [said["id"]]
    assert "You are Helfer_1, the agent" in opened.script.told()


async def test_what_is_not_there_is_said(house):
    opened = await house()
    async with two(opened) as (room, alice, _bob):
        for type_, fields in (
            ("agent.stop", {"turn": "t_x"}),
            ("agent.decide", {"turn": "t_x", "call": "c", "decision": "allow"}),
        ):
            assert (await alice.refused(type_, room=room, **fields))["code"] == "unknown_turn"
            other = await opened.new_room()
            assert (await alice.refused(type_, room=other, **fields))["code"] == "not_joined"
        assert (await alice.refused("ask", room=room, text=" "))["code"] == "invalid"
        other = await opened.new_room()
        assert (await alice.refused("ask", room=other, text="x"))["code"] == "not_joined"


async def test_too_many_waiting_questions_are_refused(house, monkeypatch):
    monkeypatch.setattr(turns, "WAITING_MAX", 2)
    opened = await house(["x", asyncio.Event()])
    async with two(opened) as (room, alice, _bob):
        first = await ask(alice, room)
        await started(alice, first)
        await ask(alice, room), await ask(alice, room)
        assert (await alice.refused("ask", room=room, text="x"))["code"] == "limit"
        assert "429" in str(
            (await opened.http("POST", f"/api/rooms/{room}/message", {"text": "x"}))[0]
        )


async def test_a_key_that_was_answered_is_answered_though_too_many_wait(house, monkeypatch):
    monkeypatch.setattr(turns, "WAITING_MAX", 1)
    opened = await house(["x", asyncio.Event()])
    async with two(opened) as (room, alice, _bob):
        first = await ask(alice, room, "A?", key="a")
        await started(alice, first)
        said = {"room": room, "text": "@duet B?", "key": "b"}
        await alice.ok("say", **said)
        waiting = (await alice.until(lambda f: f.get("question") == "@duet B?"))["turn"]
        assert await ask(alice, room, "A?", key="a") == first
        other = await alice.refused("ask", room=room, text="Other?", key="a")
        assert other["code"] == "key_conflict"
        for fields in ({}, {"key": "c"}):
            refused = await alice.refused("ask", room=room, text="C?", **fields)
            assert refused["code"] == "limit"
        await alice.ok("say", **said)  # said and asked once, and no error about it
        await alice.settle()
        assert [f["turn"] for f in alice.of("agent.queued")] == [first, waiting]
        assert [f for f in alice.of("error") if "ref" not in f] == []
        # A failure is not remembered: once there is room, the key asks.
        await alice.ok("agent.stop", room=room, turn=waiting)
        await finished(alice, waiting)
        assert await ask(alice, room, "C?", key="c") not in (first, waiting)


# Failures


async def test_a_failed_turn_leaves_a_valid_history_for_the_next(house):
    opened = await house(["It is ", ConnectionResetError("sk-secret")], ["Four."])
    async with two(opened) as (room, alice, _bob):
        end = await finished(alice, await ask(alice, room, "2+2?"))
        assert end["status"] == "failed"
        assert "sk-secret" not in str(alice.frames)
        assert alice.of("message")[0]["partial"] is True
        assert (await finished(alice, await ask(alice, room, "Again?")))["status"] == "done"
    roles = [message.kind for message in opened.script.asked[1][0]]
    assert roles == ["request", "response", "request"]
    assert "ended as failed" in opened.script.told()


async def test_retries_are_seen(house, monkeypatch):
    monkeypatch.setattr(loop, "BACKOFF_S", 0.01)
    opened = await house([ModelRateLimitError("m", "slow down")], ["Here."])
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        assert (await finished(bob, turn))["status"] == "done"
        (retry,) = bob.of("agent.retry")
        assert (retry["turn"], retry["attempt"]) == (turn, 1)
        assert "fewer requests" in retry["message"]


async def test_without_a_model_the_agent_says_once_how_to_get_one(house):
    opened = await house(models=False)
    async with two(opened) as (room, alice, bob):
        for _ in range(2):
            end = await finished(bob, await ask(alice, room))
            assert end["status"] == "failed"
            assert "DUET_AGENT_MODEL" in end["message"]
        (message,) = bob.of("message")
        assert message["by"]["kind"] == "agent"
        assert "DUET_AGENT_MODEL" in message["text"]
        assert (await alice.join(room))["participants"][0]["kind"] == "human"
        await alice.ok("say", room=room, text="we go on")


async def test_cleanup_stops_the_agent(house):
    opened = await house(["Hm", asyncio.Event()], ["Here."])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        await alice.until("agent.delta")
        assert (await opened.http("POST", f"/api/rooms/{room}/cleanup"))[0] == 200
        assert (await finished(alice, turn))["status"] == "stopped"
        await alice.until("room.cleared")
        assert (await finished(alice, await ask(alice, room)))["status"] == "done"


async def test_cleanup_leaves_nothing_of_a_turn_whose_command_would_not_end(house):
    command = "trap '' TERM; echo on; while true; do sleep 1; done"
    opened = await house([f"Secret words. <run>{command}</run>"], ["Here."])
    async with two(opened) as (room, alice, bob):
        turn = await ask(alice, room)
        run = await bob.until("exec.started", limit_s=SANDBOX_S)
        await bob.printed(run["exec"], b"on\n")
        assert (await opened.http("POST", f"/api/rooms/{room}/cleanup"))[0] == 200
        assert (await finished(alice, turn))["status"] == "stopped"
        await alice.until("room.cleared")
        await finished(alice, await ask(alice, room))
        events = (await alice.ok("history", room=room, limit=200))["events"]
        assert [e["text"] for e in events if e["type"] == "message"] == ["Here."]
        assert "Secret words" not in opened.script.told()


async def test_deleting_a_room_ends_its_turns(house):
    opened = await house(["Hm", asyncio.Event()])
    async with two(opened) as (room, alice, _bob):
        await ask(alice, room)
        await alice.until("agent.delta")
        assert (await opened.http("DELETE", f"/api/rooms/{room}"))[0] == 200
        await alice.until("left")
        assert opened.app.agent._turns == {}


async def test_a_room_of_the_same_name_is_not_haunted_by_turns_of_the_deleted_one(
    house, monkeypatch
):
    monkeypatch.setattr(turns, "_CLOSE_S", 0.1)
    ends, gate = asyncio.Event(), asyncio.Event()
    opened = await house(["Hm", asyncio.Event()], ["Here."], ["And here."])

    async with two(opened) as (room, alice, _bob):
        speech = opened.app.agent._turns[await ask(alice, room)].speech
        end = speech.end

        async def late():
            ends.set()
            await gate.wait()
            return await end()

        speech.end = late
        await alice.until("agent.delta")
        assert (await opened.http("DELETE", f"/api/rooms/{room}"))[0] == 200
        await alice.until("left")
        await ends.wait()
        assert (await opened.http("POST", "/api/rooms", {"id": room}))[0] == 201
        async with opened.client(JSON, "Cleo") as cleo:
            await cleo.join(room)
            turn = await ask(cleo, room)
            gate.set()
            assert (await finished(cleo, turn))["status"] == "done"
            assert [m["text"] for m in cleo.of("message")] == ["Here."]
            assert (await cleo.join(room))["turns"] == []
            assert (await finished(cleo, await ask(cleo, room)))["status"] == "done"


async def test_a_stop_of_the_server_ends_its_turns_in_words(house, tmp_path):
    opened = await house(["Hm", asyncio.Event()], ["x"])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        await alice.until("agent.delta")
        await opened.app.agent.close()
        end = await finished(alice, turn)
        assert (end["status"], "stopping" in end["message"]) == ("failed", True)


async def test_native_calls_of_the_wire_carry_their_turn(house):
    opened = await house([call("echo hi")], ["ok"], way="native")
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        await finished(alice, turn)
        assert types(of_turn(alice, turn)) == [
            "agent.queued",
            "agent.started",
            "exec.started",
            "message",
            "agent.finished",
        ]
