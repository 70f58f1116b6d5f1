"""Questions, decisions, stops and lost answers of the history store, in an order of chance."""

import asyncio
import random

import pytest

from tests.integration.agent.conftest import two
from tests.integration.agent.test_agent_lost import open_turns, proxy, valkey
from tests.integration.server.harness import SANDBOX_S

__all__ = ["proxy", "valkey"]

ASKED = 30


def answers(chance):
    """Words and commands of one answer, or a stream that breaks off."""
    found = ["word ", f"more {chance.random()} "]
    found += [f"<run>echo {chance.random()}</run>"] * chance.randint(0, 2)
    found += [None] * chance.randint(0, 40)
    return [*found, ConnectionResetError()] if chance.random() < 0.1 else found


async def meddle(client, room, chance, proxy, done):
    """Do what people may do, whether it is of use or not, and lose answers of the store."""
    while not done.is_set():
        asked = client.of("agent.queued")
        turn = chance.choice(asked)["turn"] if asked else "t_none"
        wanted = [f for f in client.of("agent.approval") if f["expiresTs"] > f["ts"]]
        what = chance.random()
        if what < 0.05:
            await client.ask("agent.stop", room=room, turn=turn)
        elif what < 0.8 and wanted:
            word = {"turn": wanted[-1]["turn"], "call": wanted[-1]["call"]}
            decision = chance.choice(["allow", "deny", "always"])
            await client.ask("agent.decide", room=room, **word, decision=decision)
        elif what < 0.9:
            proxy.cut = chance.randint(1, 3)
        await asyncio.sleep(chance.random() / 50)


@pytest.mark.parametrize("seed", range(2))
async def test_every_question_has_one_end_whatever_happens(house, proxy, seed):
    chance = random.Random(seed)
    opened = await house(
        *[answers(chance) for _ in range(ASKED * 8)],
        redis_url=proxy.url,
        docker_host="unix:///nowhere.sock",
        agent_approval="ask",
        agent_approval_s=1.0,
    )
    async with two(opened) as (room, alice, bob):
        done = asyncio.Event()
        meddling = [
            asyncio.ensure_future(meddle(client, room, chance, proxy, done))
            for client in (alice, bob)
        ]
        for number in range(ASKED):
            await chance.choice((alice, bob)).ask("ask", room=room, text=f"{number}?")
        asked = {f["turn"] for f in alice.of("agent.queued")}
        await alice.until(
            lambda _: asked <= {f["turn"] for f in alice.of("agent.finished")}, limit_s=SANDBOX_S
        )
        done.set()
        await asyncio.gather(*meddling)
        proxy.cut = 0
        while opened.app.agent._turns:  # noqa: ASYNC110 - nobody tells of the last
            await asyncio.sleep(0.05)
        await alice.settle()
        assert await open_turns(opened, room) == {}
        assert opened.app.agent._lines == {}
        assert opened.app.hub.rooms[room].turns == {}
        check(alice.log(room))


def check(log):
    """One end for each question and each command, one word on each wanted one, none without."""

    def of(kind, name):
        return [event[name] for event in log if event["type"] == kind]

    ends = of("agent.finished", "turn")
    assert len(set(ends)) == len(ends) >= ASKED // 2
    assert sorted(of("agent.queued", "turn")) == sorted(ends)
    assert len(set(of("agent.decided", "call"))) == len(of("agent.decided", "call"))
    assert sorted(of("exec.started", "exec")) == sorted(of("exec.exited", "exec"))
    wanted, free = {}, set()
    allowed = set()
    for event in log:
        if event["type"] == "agent.approval":
            wanted[event["call"]] = (event["turn"], event["command"])
        elif event["type"] == "agent.decided" and event["decision"] != "deny":
            allowed.add(wanted[event["call"]])
            free |= {event["turn"]} if event["decision"] == "always" else set()
        elif event["type"] == "exec.started":
            asked = (event["turn"], event["command"])
            assert asked in allowed or event["turn"] in free, asked
