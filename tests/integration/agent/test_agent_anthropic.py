"""The whole server in front of a server that speaks Anthropic's Messages API over real HTTP."""

import asyncio

import pytest

from tests.integration.agent.anthropic_provider import Anthropic
from tests.integration.agent.conftest import finished, of_turn, two
from tests.integration.agent.provider import Tool, provider
from tests.integration.agent.test_agent_provider import KEY, ask, serving, shown

MODEL = {"DUET_AGENT_MODEL": "anthropic:scripted"}


async def test_words_a_tool_call_its_result_and_the_conclusion_go_round(tmp_path):
    gate = asyncio.Event()
    answers = [
        ["I will ", gate, "look \U0001f389.", Tool("echo $((6*7)); echo no >&2; exit 3")],
        ["It printed ", "42."],
    ]
    async with provider(*answers, kind=Anthropic) as made:
        with serving(tmp_path / "data", made, **MODEL) as server:
            async with two(server) as (room, alice, bob):
                turn = await ask(alice, room, "6*7?")
                await bob.until(lambda _: shown(bob, turn) == "I will ")
                gate.set()
                end = await finished(bob, turn)
                assert (end["status"], end["usage"]["commands"]) == ("done", 1), end
                assert end["usage"]["inputTokens"] == 20
                assert end["usage"]["outputTokens"] == 10
                assert [f["type"] for f in of_turn(bob, turn)] == [
                    "agent.queued",
                    "agent.started",
                    "exec.started",
                    "message",
                    "agent.finished",
                ]
                (run,), (exited,) = bob.of("exec.started"), bob.of("exec.exited")
                assert (run["command"], run["at"]) == ("echo $((6*7)); echo no >&2; exit 3", 14)
                assert (exited["stdout"], exited["exitCode"]) == ("42\n", 3)
                text = bob.of("message")[0]["text"]
                assert text == shown(bob, turn) == "I will look \U0001f389.\n\nIt printed 42."
                assert KEY not in str(bob.frames)
            assert KEY not in server.log()
            assert "Traceback" not in server.log()
    headers, body = made.requests[0]
    assert any(KEY in value for value in headers.values())
    assert (body["model"], body["stream"]) == ("scripted", True)
    assert [tool["name"] for tool in body["tools"]] == ["run"]
    assert "6*7?" in str(body["messages"])
    assert "agent in the room" in str(body["system"])
    _, body = made.requests[1]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    said, called = body["messages"][1]["content"]
    assert (said["type"], said["text"]) == ("text", "I will look \U0001f389.")
    assert (called["type"], called["id"], called["name"]) == ("tool_use", "call_1", "run")
    assert called["input"] == {"command": "echo $((6*7)); echo no >&2; exit 3"}
    (result,) = body["messages"][2]["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "call_1")
    for part in ("exit code: 3", "42", "no"):
        assert part in str(result["content"])


async def test_two_calls_in_one_answer_each_get_their_result(tmp_path):
    answers = [[Tool("echo one", call="a"), Tool("echo two", call="b")], ["Both."], ["Later."]]
    async with provider(*answers, kind=Anthropic) as made:
        with serving(tmp_path / "data", made, **MODEL) as server:
            async with two(server) as (room, alice, _bob):
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"
                assert [f["command"] for f in alice.of("exec.started")] == ["echo one", "echo two"]
                assert (await finished(alice, await ask(alice, room, "And?")))["status"] == "done"
    results = made.requests[1][1]["messages"][-1]["content"]
    assert [(one["tool_use_id"], one["type"]) for one in results] == [
        ("a", "tool_result"),
        ("b", "tool_result"),
    ]
    assert ["one" in str(results[0]), "two" in str(results[1])] == [True, True]
    # The next turn's history is valid: roles take turns, and the words are the agent's.
    roles = [message["role"] for message in made.requests[2][1]["messages"]]
    assert roles == ["user", "assistant", "user"]


async def test_halves_of_characters_do_not_end_the_turn(tmp_path):
    answers = [["\ud83c", "\udf89", Tool("x \ud83c")], ["It was refused."]]
    async with provider(*answers, kind=Anthropic) as made:
        with serving(tmp_path / "data", made, **MODEL) as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert end["status"] == "done", end
                assert alice.of("message")[0]["text"] == "\U0001f389\n\nIt was refused."
                assert alice.of("exec.started") == []
    said, called = made.requests[1][1]["messages"][1]["content"]
    assert (said["text"], called["input"]) == ("\U0001f389", {"command": "x \ufffd"})
    assert "surrogates" in str(made.requests[1][1]["messages"][2])


async def test_a_denial_is_the_result_of_its_call(tmp_path):
    answers = [["I try.", Tool("rm -rf /")], ["I leave it."]]
    async with provider(*answers, kind=Anthropic) as made:
        env = MODEL | {"DUET_AGENT_APPROVAL": "ask"}
        with serving(tmp_path / "data", made, **env) as server:
            async with two(server) as (room, alice, bob):
                turn = await ask(alice, room)
                wanted = await bob.until("agent.approval")
                assert (wanted["command"], wanted["at"]) == ("rm -rf /", 6)
                decision = {"room": room, "turn": turn, "call": wanted["call"], "note": "never"}
                await bob.ok("agent.decide", **decision, decision="deny")
                assert (await finished(alice, turn))["status"] == "done"
    (result,) = made.requests[1][1]["messages"][-1]["content"]
    assert "denied by Bob" in str(result)
    assert "never" in str(result)


async def test_busy_and_refusing_providers_are_told_as_everyones(tmp_path):
    async with provider(429, 529, ["Here."], 401, kind=Anthropic) as made:
        with serving(tmp_path / "data", made, **MODEL) as server:
            async with two(server) as (room, alice, _bob):
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"
                first, second = alice.of("agent.retry")
                assert "fewer requests" in first["message"]
                assert "overloaded" in second["message"]
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], "refused the key" in end["message"]) == ("failed", True)
                assert "sk-secret" not in str(alice.frames) + server.log()


OVERLOADED = {"type": "overloaded_error", "message": "sk-secret"}


@pytest.mark.parametrize(
    "cut", [Anthropic.BREAK, Anthropic.EOF, OVERLOADED], ids=["reset", "eof", "error"]
)
async def test_a_stream_that_breaks_off_keeps_its_words_and_runs_nothing(tmp_path, cut):
    answers = [["It is ", cut], [Tool("echo never"), cut], ["It may be asked again."]]
    async with provider(*answers, kind=Anthropic) as made:
        with serving(tmp_path / "data", made, **MODEL) as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], "broke off" in end["message"]) == ("failed", True), end
                (message,) = alice.of("message")
                assert (message["text"], message["partial"]) == ("It is ", True)
                await finished(alice, await ask(alice, room))
                assert alice.of("exec.started") == []
                assert "sk-secret" not in str(alice.frames) + server.log()
            assert "Traceback" not in server.log()
