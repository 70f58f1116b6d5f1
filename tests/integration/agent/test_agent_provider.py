"""The real client over real HTTP against a scripted provider, and a server that dies in a turn."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.integration.agent.conftest import finished, two
from tests.integration.agent.provider import Provider, Tool, provider
from tests.integration.server.harness import Server, remove_containers

KEY = "sk-very-secret"


@contextlib.contextmanager
def serving(data_dir, made, **env):
    """`duet serve` as a process of its own, with the provider as its model."""
    given = {"DUET_AGENT_MODEL": "openai:scripted", "DUET_AGENT_API_KEY": KEY}
    given |= {"DUET_AGENT_BASE_URL": made.url, "DUET_LOG_LEVEL": "debug"} | env
    server = Server(data_dir, **given)
    try:
        yield server.wait_ready()
    finally:
        server.stop()
        remove_containers(server)


def shown(client, turn):
    """The words of a turn that a client was sent live."""
    return "".join(delta["text"] for delta in client.of("agent.delta", turn=turn))


async def ask(client, room, text="Q?"):
    return (await client.ok("ask", room=room, text=text))["turn"]


async def test_a_turn_over_http_and_the_key_goes_nowhere_else(tmp_path):
    answers = [["I look: <run>env; cat /proc/self/environ | tr '\\0' '\\n'</run>"], ["Nothing."]]
    async with provider(*answers) as made:
        with serving(tmp_path / "data", made) as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert end["status"] == "done", end
                assert end["usage"]["inputTokens"] == 20
                assert alice.of("message")[0]["text"] == "I look: \n\nNothing."
                assert KEY not in str(alice.frames)
            assert KEY not in server.log()
        headers, body = made.requests[-1]
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert "HOME=" in json.dumps(body)
        # A server of one's own refuses more than its window has left, which only it knows.
        assert {"max_tokens", "max_completion_tokens"} & set(body) == set()
        assert KEY not in json.dumps([request[1] for request in made.requests])


async def test_rate_limits_are_tried_again_and_a_refused_key_is_said(tmp_path):
    async with provider(429, 503, ["Here."], 401) as made:
        with serving(tmp_path / "data", made) as server:
            async with two(server) as (room, alice, _bob):
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"
                assert [f["attempt"] for f in alice.of("agent.retry")] == [1, 2]
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], "refused the key" in end["message"]) == ("failed", True)
                assert "sk-secret" not in str(alice.frames) + server.log()
        assert len(made.requests) == 4


async def test_native_calls_and_their_results_go_round_also_malformed_ones(tmp_path):
    answers = [
        ["I look.", Tool("printf '%s\n' 42", call="a"), Tool("", call="b", args='{"command": ')],
        [Tool("", call="c", args='{"command": "ls", "command": ["x"]}')],
        ["It says 42."],
    ]
    env = {"DUET_AGENT_TOOLS": "native"}
    async with provider(*answers) as made:
        with serving(tmp_path / "data", made, **env) as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], end["usage"]["commands"]) == ("done", 1), end
                assert [f["command"] for f in alice.of("exec.started")] == ["printf '%s\n' 42"]
                assert alice.of("message")[0]["text"] == "I look.\n\nIt says 42."
            assert "Traceback" not in server.log()
    assert [tool["function"]["name"] for tool in made.requests[0][1]["tools"]] == ["run"]
    called, *results = made.requests[1][1]["messages"][-3:]
    assert [one["id"] for one in called["tool_calls"]] == ["a", "b"]
    assert all(json.loads(one["function"]["arguments"]) for one in called["tool_calls"])
    assert [(one["role"], one["tool_call_id"]) for one in results] == [("tool", "a"), ("tool", "b")]
    assert "stdout:\n42" in results[0]["content"]
    assert "not run: the arguments were not JSON" in results[1]["content"]
    assert "must be a text" in made.requests[2][1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("reason", "status", "words"),
    [(Provider.LENGTH, "limit", "longest length"), (Provider.FILTER, "failed", "filtered")],
)
async def test_the_reason_an_answer_ended_for_is_told(tmp_path, reason, status, words):
    async with provider(["It is <run>ls</run> ", reason], ["Four."]) as made:
        with serving(tmp_path / "data", made, DUET_AGENT_APPROVAL="ask") as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], words in end["message"]) == (status, True), end
                assert alice.of("message")[0]["partial"] is True
                assert alice.of("exec.started") == []
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"


async def test_halves_of_characters_do_not_end_the_turn(tmp_path):
    """A model may split a pair across deltas, or send half of one; its words go back to it."""
    answers = [["It is \ud83c", "\udf89 or \ud83c. <run>x</run>"], ["Off."]]
    env = {"DUET_AGENT_APPROVAL": "off", "DUET_DOCKER_HOST": "unix:///nowhere.sock"}
    async with provider(*answers) as made:
        with serving(tmp_path / "data", made, **env) as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert end["status"] == "done", end
                text = "It is \U0001f389 or \ufffd. \n\nOff."
                assert alice.of("message")[0]["text"] == text
        said = made.requests[1][1]["messages"][-2]
        assert said["content"] == "It is \U0001f389 or \ufffd. <run>x</run>"


@pytest.mark.parametrize("cut", [Provider.BREAK, Provider.EOF], ids=["reset", "eof"])
async def test_a_stream_that_breaks_off_keeps_its_words(tmp_path, cut):
    async with provider(["It is ", cut], ["Four."]) as made:
        with serving(tmp_path / "data", made) as server:
            async with two(server) as (room, alice, _bob):
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], "broke off" in end["message"]) == ("failed", True), end
                (message,) = alice.of("message")
                assert (message["text"], message["partial"]) == ("It is ", True)
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"
            assert "Traceback" not in server.log()


async def test_a_server_that_dies_in_a_turn_settles_it_when_it_is_back(tmp_path):
    async with provider(["It is ", asyncio.Event()], ["Four."]) as made:
        data = tmp_path / "data"
        with serving(data, made) as server:
            async with two(server) as (room, alice, bob):
                first = await ask(alice, room)
                await alice.until("agent.delta")
                waiting = await ask(bob, room)
                await alice.until(lambda f: f["type"] == "agent.queued" and f["turn"] == waiting)
                server.process.send_signal(signal.SIGKILL)
                await alice.until_closed()
        with serving(data, made) as server:
            async with server.client() as alice:
                joined = await alice.join(room)
                assert joined["turns"] == []
                ends = {e["turn"]: e for e in joined["events"] if e["type"] == "agent.finished"}
                assert {first, waiting} == set(ends)
                assert all(end["status"] == "failed" for end in ends.values())
                assert all("restarted" in end["message"] for end in ends.values())
                (message,) = [e for e in joined["events"] if e["type"] == "message"]
                assert (message["text"], message["partial"]) == ("It is ", True)
                assert (message["turn"], message["by"]["kind"]) == (first, "agent")
                end = await finished(alice, await ask(alice, room))
                assert end["status"] == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("approval", ["auto", "ask"])
async def test_a_server_that_goes_while_a_command_runs_or_is_asked_about(
    tmp_path, number, approval
):
    async with provider(["I wait. <run>echo on; sleep 300</run>"], ["Here."]) as made:
        data, env = tmp_path / "data", {"DUET_AGENT_APPROVAL": approval}
        with serving(data, made, **env) as server:
            async with two(server) as (room, alice, bob):
                turn = await ask(alice, room)
                if approval == "ask":
                    await bob.until("agent.approval")
                else:
                    run = (await bob.until("exec.started", limit_s=60))["exec"]
                    await bob.printed(run, b"on\n")
                waiting = await ask(bob, room)
                server.process.send_signal(number)
                await alice.until_closed()
            server.process.wait(20)
        with serving(data, made, DUET_AGENT_APPROVAL="off") as server:
            async with server.client() as alice:
                joined = await alice.join(room)
                assert joined["turns"] == []
                ends = [e for e in joined["events"] if e["type"] == "agent.finished"]
                assert sorted(e["turn"] for e in ends) == sorted([turn, waiting])
                assert {e["status"] for e in ends} == {"failed"}
                (message,) = [e for e in joined["events"] if e["type"] == "message"]
                assert (message["text"], message["partial"]) == ("I wait. ", True)
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"
                for running in joined["execs"]:  # it has outlived its server, as anyone's
                    await alice.ok("exec.cancel", exec=running["started"]["exec"])
                    await alice.exited(running["started"]["exec"])
            assert "Traceback" not in server.log()


async def test_a_server_that_dies_in_an_answer_loses_no_word_that_was_shown(tmp_path):
    words = [f"wörd{n} \U0001f389 " for n in range(300)]
    stop = asyncio.Event()
    async with provider([*words, stop]) as made:
        data = tmp_path / "data"
        with serving(data, made) as server:
            async with two(server) as (room, alice, bob):
                turn = await ask(alice, room)
                await bob.until(lambda _: shown(bob, turn).endswith(words[-1]))
                server.process.send_signal(signal.SIGKILL)
                await alice.until_closed()
                await bob.until_closed()
        with serving(data, made) as server:
            async with server.client() as cleo:
                events = (await cleo.join(room))["events"]
                (message,) = [e for e in events if e["type"] == "message"]
                assert message["partial"] is True
                assert message["text"] == shown(bob, turn) == "".join(words)
                assert message["text"].startswith(shown(alice, turn))


async def test_a_server_that_dies_between_words_keeps_all_that_were_shown(tmp_path):
    async with provider(["It is ", *(f"{n} " for n in range(100_000))]) as made:
        made.pause_s = 0.001
        data = tmp_path / "data"
        with serving(data, made) as server:
            async with two(server) as (room, alice, bob):
                turn = await ask(alice, room)
                await bob.until(lambda _: len(bob.of("agent.delta")) >= 8)
                server.process.send_signal(signal.SIGKILL)
                await alice.until_closed()
                await bob.until_closed()
        with serving(data, made) as server:
            async with server.client() as cleo:
                events = (await cleo.join(room))["events"]
                (message,) = [e for e in events if e["type"] == "message"]
                for viewer in (alice, bob):
                    assert message["text"].startswith(shown(viewer, turn))
                # At most the frame that was being sent is in the message and was seen by nobody.
                assert len(message["text"]) - len(shown(bob, turn)) < 1_000


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"DUET_AGENT_MODEL": "x"}, "PROVIDER:NAME"),
        ({"DUET_AGENT_MODEL": "openai:x"}, "DUET_AGENT_API_KEY"),
        ({"DUET_AGENT_ALWAYS_ASK": "("}, "DUET_AGENT_ALWAYS_ASK"),
        ({"DUET_AGENT_APPROVAL": "maybe"}, "DUET_AGENT_APPROVAL"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_1(tmp_path, env, words):
    server = Server(tmp_path / "data", **env)
    assert server.process.wait(30) == 1
    lines = server.log().strip().splitlines()
    assert len(lines) == 1, lines
    assert words in lines[0]


IMPORTED = """
import asyncio, pathlib, sys
from server.app import running
from server.settings import Settings

async def main():
    async with running(Settings(port=0, data_dir=pathlib.Path(sys.argv[1]))):
        found = {name.partition(".")[0] for name in sys.modules}
        print("imported:", *sorted(found & {"pydantic_ai", "openai", "anthropic", "pydantic"}))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("model", "imported"), [(None, "pydantic"), ("openai:x", "openai pydantic pydantic_ai")]
)
def test_the_model_library_is_imported_only_with_a_model(tmp_path, model, imported):
    env = {name: value for name, value in os.environ.items() if not name.startswith("DUET_")}
    if model is not None:
        env |= {"DUET_AGENT_MODEL": model, "DUET_AGENT_API_KEY": KEY}
    command = [sys.executable, "-c", IMPORTED, tmp_path / "data"]
    run = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert f"imported: {imported}" in run.stdout.splitlines()
