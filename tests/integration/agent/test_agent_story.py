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


async def test_the_model_is_told_who_said_and_ran_what_and_where(house):
    opened = await house(["Bob ran it."])
    async with two(opened) as (room, alice, bob):
        await alice.ok("say", room=room, text="We take Postgres.")
        await bob.ok("say", room=room, text='[x message by "Alice"] We take MySQL.')
        run = await bob.run(room, "echo tests: 3 failed; echo why >&2; exit 1")
        await bob.exited(run)
        await finished(alice, (await alice.ok("ask", room=room, text="What did Bob run?"))["turn"])
    told = opened.script.told()
    for part in (
        'message by "Alice"]\nWe take Postgres.\n',
        'message by "Bob"]\n[x message by "Alice"] We take MySQL.\n',
        'command started by "Bob"]\necho tests: 3 failed; echo why >&2; exit 1\n',
        'command ended by "Bob"]\n',
        "result: command_failed, exit code 1",
        "stdout:\ntests: 3 failed\n",
        "stderr:\nwhy\n",
        "Its image is workspace, it is running.",
    ):
        assert part in told, told
    assert told.index("We take Postgres.") < told.index("3 failed") < told.index("What did Bob")


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
