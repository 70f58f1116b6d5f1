"""What breaks around a turn: its sandbox, the history store, the line of questions."""

import asyncio
import subprocess

from server.agent import turns
from tests.integration.agent.conftest import finished, two
from tests.integration.agent.provider import provider
from tests.integration.agent.test_agent_provider import ask, serving
from tests.integration.server.harness import SANDBOX_S, owner


def kill_sandboxes(server):
    listed = ["docker", "ps", "-q", "--filter", f"label=duet.owner={owner(server)}"]
    ids = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "kill", *ids], capture_output=True, check=True)


async def test_a_sandbox_that_is_gone_under_a_command_is_told_and_the_turn_goes_on(house):
    opened = await house(["<run>echo on; sleep 300</run>"], ["It is gone."])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        run = await alice.until("exec.started", limit_s=SANDBOX_S)
        await alice.printed(run["exec"], b"on\n")
        kill_sandboxes(opened)
        end = await finished(alice, turn)
        assert end["status"] == "done"
        assert alice.of("message")[0]["text"] == "It is gone."
    assert "sandbox_terminated" in opened.script.told()
    assert "stdout:\non" in opened.script.told()


async def test_the_history_store_is_away_in_a_turn_and_the_end_comes_when_it_is_back(house):
    gate = asyncio.Event()
    opened = await house(["It ", gate, "is four."], ["Here."])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        await alice.until("agent.delta")
        opened.app.valkey._process.kill()
        gate.set()
        end = await finished(alice, turn, limit_s=SANDBOX_S)
        assert end["status"] == "done"
        assert alice.of("message")[0]["text"] == "It is four."
        assert len(alice.of("agent.finished")) == len(alice.of("message")) == 1


async def test_a_mention_that_cannot_be_asked_is_said_and_told(house, monkeypatch):
    monkeypatch.setattr(turns, "WAITING_MAX", 0)
    opened = await house()
    async with two(opened) as (room, alice, bob):
        said = await alice.ok("say", room=room, text="@duet hello")
        refused = await alice.until("error")
        assert (refused["code"], "ref" in refused) == ("limit", False)
        assert (await bob.until("message"))["id"] == said["id"]


async def test_an_empty_stream_is_an_empty_answer(tmp_path):
    async with provider([], ["Here."], [], []) as made:
        with serving(tmp_path / "data", made) as server:
            async with two(server) as (room, alice, _bob):
                assert (await finished(alice, await ask(alice, room)))["status"] == "done"
                end = await finished(alice, await ask(alice, room))
                assert (end["status"], "empty answer" in end["message"]) == ("failed", True), end


async def test_many_questions_at_once_are_answered_one_after_the_other(house):
    """Also while a line of questions ends and the next begins."""
    opened = await house(*[["x"]] * 40)
    async with two(opened) as (room, alice, bob):
        asked = [
            client.ok("ask", room=room, text=f"{n}") for n in range(20) for client in (alice, bob)
        ]
        asked_turns = {reply["turn"] for reply in await asyncio.gather(*asked)}
        await alice.until(lambda _: len(alice.of("agent.finished")) == 40, limit_s=SANDBOX_S)
        queued = [f["turn"] for f in alice.of("agent.queued")]
        assert queued == [f["turn"] for f in alice.of("agent.started")]
        assert queued == [f["turn"] for f in alice.of("agent.finished")]
        assert set(queued) == asked_turns
        assert opened.app.agent._lines == {}


async def test_a_turn_keeps_its_sandboxs_lease_open(house):
    gate = asyncio.Event()
    opened = await house(["It ", gate, "is."])
    async with two(opened) as (room, alice, _bob):
        turn = await ask(alice, room)
        await alice.until("agent.delta")
        holds = opened.app.manager._registry._holds
        assert [name for name, held in holds.items() if held] == [f"sandbox-{room}"]
        gate.set()
        await finished(alice, turn)
        assert not any(holds.values())
