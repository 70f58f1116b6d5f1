"""Questions whose answer from the history store is lost: none stays open, none is asked twice."""

import asyncio
import contextlib

import pytest

from tests.integration.agent.conftest import finished, of_turn, two
from tests.integration.log.proxy import Proxy
from tests.integration.server.parts import Valkey


@pytest.fixture
def valkey(tmp_path_factory):
    valkey = Valkey(tmp_path_factory.mktemp("v"))
    yield valkey
    valkey.kill()


@pytest.fixture
async def proxy(valkey, tmp_path_factory):
    """Between the server and its history store; it loses the answers of its next `cut` scripts."""
    async with Proxy(str(tmp_path_factory.mktemp("p") / "p.sock"), str(valkey.socket)) as proxy:
        yield proxy


async def open_turns(opened, room):
    return await opened.app.hub.roomlog.turns(room)


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_question_whose_answer_was_lost_is_ended_in_words(house, proxy, key):
    opened = await house(["Here."], redis_url=proxy.url)
    fields = {} if key is None else {"key": key}
    async with two(opened) as (room, alice, bob):
        proxy.cut = 2  # the server tries twice
        refused = await alice.refused("ask", room=room, text="Q?", **fields)
        assert (refused["code"], refused["retryable"]) == ("unavailable", True)
        end = await bob.until("agent.finished")
        assert (end["status"], "did not answer in time" in end["message"]) == ("failed", True)
        lost = end["turn"]
        assert [f["type"] for f in of_turn(bob, lost)] == ["agent.queued", "agent.finished"]
        assert await open_turns(opened, room) == {}
        assert opened.app.agent._turns == {}
        assert (await bob.join(room))["turns"] == []
        if key is not None:  # the first answer, though nobody got it
            assert (await alice.ok("ask", room=room, text="Q?", key=key))["turn"] == lost
        again = (await alice.ok("ask", room=room, text="Q?"))["turn"]
        assert (await finished(alice, again))["status"] == "done"
        assert len(bob.of("agent.queued")) == 2


async def test_a_question_that_is_lost_again_and_again_is_ended_when_it_is_known(house, proxy):
    opened = await house(redis_url=proxy.url)
    async with two(opened) as (room, alice, bob):
        proxy.cut = 6
        await alice.refused("ask", room=room, text="Q?")
        end = await bob.until("agent.finished")
        assert end["status"] == "failed"
        assert len(bob.of("agent.queued")) == 1
        assert await open_turns(opened, room) == {}


async def test_a_caller_who_goes_while_it_is_stored_leaves_no_open_turn(house, proxy, valkey):
    opened = await house(redis_url=proxy.url)
    async with two(opened) as (room, alice, bob):
        before = proxy.forwarded
        valkey.freeze()
        agent, ada = opened.app.agent, opened.app.agent.participant
        asking = asyncio.ensure_future(agent.ask(room, ada, "Q?"))
        while proxy.forwarded == before:  # noqa: ASYNC110 - the proxy tells nobody
            await asyncio.sleep(0.01)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        valkey.thaw()
        end = await bob.until("agent.finished")
        assert (end["status"], "did not answer in time" in end["message"]) == ("failed", True)
        assert await open_turns(opened, room) == {}
        await alice.settle()


async def test_a_question_that_was_refused_is_forgotten_at_once(house, proxy):
    opened = await house(["Here."], redis_url=proxy.url)
    async with two(opened) as (room, alice, _bob):
        await finished(alice, (await alice.ok("ask", room=room, text="Q?", key="k"))["turn"])
        refused = await alice.refused("ask", room=room, text="Other?", key="k")
        assert refused["code"] == "key_conflict"
        assert opened.app.agent._turns == {}


@pytest.mark.parametrize("who", ["somebody else", "the same", "nobody"])
async def test_a_decision_whose_answer_was_lost_is_the_one_that_counts(house, proxy, who):
    limit_s = 1.0 if who == "nobody" else 60.0
    opened = await house(
        ["<run>x</run>"],
        ["ok"],
        redis_url=proxy.url,
        docker_host="unix:///nowhere.sock",
        agent_approval="ask",
        agent_approval_s=limit_s,
    )
    async with two(opened) as (room, alice, bob):
        turn = (await alice.ok("ask", room=room, text="Q?"))["turn"]
        wanted = await bob.until("agent.approval")
        word = {"room": room, "turn": turn, "call": wanted["call"]}
        proxy.cut = 2  # the server tries twice
        refused = await bob.refused("agent.decide", **word, decision="allow", note="go")
        assert refused["code"] == "unavailable"
        if who == "somebody else":
            refused = await alice.refused("agent.decide", **word, decision="deny")
            assert (refused["code"], "Bob" in refused["message"]) == ("conflict", True)
        elif who == "the same":
            await bob.ok("agent.decide", **word, decision="allow", note="go")
        assert (await finished(alice, turn))["status"] == "done"
        (decided,) = alice.of("agent.decided")
        assert (decided["by"]["name"], decided["decision"]) == ("Bob", "allow")
        assert [f["command"] for f in alice.of("exec.started")] == ["x"]


async def test_a_turn_that_the_history_store_lost_is_ended_all_the_same(house, proxy):
    gate = asyncio.Event()
    opened = await house(["It ", gate, "is."], ["Here."], redis_url=proxy.url)
    async with two(opened) as (room, alice, bob):
        turn = (await alice.ok("ask", room=room, text="Q?"))["turn"]
        await bob.until("agent.delta")
        # As a store does that comes back with an older state of itself.
        await opened.app.store.call("DEL", f"duet:{{{room}}}:turns", f"duet:{{{room}}}:said")
        gate.set()
        end = await finished(bob, turn)
        assert (end["status"], bob.of("message")[0]["text"]) == ("done", "It is.")
        again = (await alice.ok("ask", room=room, text="Q?"))["turn"]
        assert (await finished(alice, again))["status"] == "done"
