"""A turn from the question to its message: words, commands, results, and what everybody sees."""

from tests.integration.agent.conftest import call, finished, two


async def test_a_question_is_answered_word_by_word_for_everyone(house):
    opened = await house(["It ", "is ", "four."])
    async with two(opened) as (room, alice, bob):
        turn = (await alice.ok("ask", room=room, text="2+2?"))["turn"]
        for client in (alice, bob):
            end = await finished(client, turn)
            assert end["status"] == "done"
            kinds = [f["type"] for f in client.frames if f.get("turn") == turn and "ref" not in f]
            deltas = client.of("agent.delta")
            assert kinds == [
                "agent.queued",
                "agent.started",
                *["agent.delta"] * len(deltas),
                "message",
                "agent.finished",
            ]
            (message,) = client.of("message")
            assert message["text"] == "It is four." == "".join(d["text"] for d in deltas)
            assert message["by"] == {"id": "agent", "name": "duet", "kind": "agent"}
            queued = client.of("agent.queued")[0]
            assert (queued["question"], queued["by"]["name"]) == ("2+2?", "Alice")
            assert client.of("agent.started")[0]["by"]["name"] == "Alice"
        assert end["usage"]["steps"] == 1


async def test_it_runs_a_command_from_a_tag_and_concludes_from_its_output(house):
    opened = await house(
        ["I create it.\n<ru", "n>echo Hello World > hello.txt && cat hello.txt</run>"],
        ["It says Hello World."],
    )
    async with two(opened) as (room, alice, bob):
        text = "@duet create hello.txt with Hello World and show it"
        said = await alice.ok("say", room=room, text=text)
        queued = await bob.until("agent.queued")
        assert (queued["question"], queued["replyTo"]) == (text, said["id"])
        await finished(bob, queued["turn"])
        started = bob.of("exec.started")[0]
        assert started["command"] == "echo Hello World > hello.txt && cat hello.txt"
        assert (started["turn"], started["by"]["kind"]) == (queued["turn"], "agent")
        assert bob.output(started["exec"]) == b"Hello World\n"
        message = bob.of("message")[-1]
        assert message["text"] == "I create it.\n\n\nIt says Hello World."
        assert (message["turn"], message["replyTo"]) == (queued["turn"], said["id"])
    told = opened.script.told()
    assert "stdout:\nHello World" in told
    assert "exit code: 0" in told


async def test_it_runs_a_native_call(house):
    opened = await house([call("echo $((6*7))")], ["42."], way="native")
    async with two(opened) as (room, alice, _bob):
        turn = (await alice.ok("ask", room=room, text="6*7?"))["turn"]
        end = await finished(alice, turn)
        assert end["status"] == "done"
        assert end["usage"]["commands"] == 1
        assert alice.of("exec.exited")[0]["stdout"] == "42\n"
        assert alice.of("message")[0]["text"] == "42."
    assert [tool.name for tool in opened.script.asked[0][1].function_tools] == ["run"]
    assert "stdout:\n42" in opened.script.told()
