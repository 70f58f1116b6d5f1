"""Limits are set and read back: an engine that answers 200 and does nothing is not believed."""

import asyncio

import pytest

from sandbox.errors import EngineError, EngineUnavailable
from sandbox.provision import LIMIT_TRIES, insist_on_limits, set_limits
from sandbox.spec import SandboxSpec
from sandbox.throttle import Throttle

WANTED = {"NanoCpus": 250_000_000, "Memory": 2**30, "MemorySwap": 2**30}


class Engine:
    """Takes the limits after `deaf` updates that it answers and forgets."""

    def __init__(self, deaf=0, error=None):
        self.deaf, self.error, self.asked, self.there = deaf, error, 0, True
        self.has = {"NanoCpus": 0, "Memory": 0, "MemorySwap": 0}

    async def update(self, container, limits):
        self.asked += 1
        if self.error:
            raise self.error
        if self.asked > self.deaf:
            self.has |= limits

    async def inspect(self, container):
        return {"HostConfig": self.has} if self.there else None

    async def info(self):
        class Info:
            cpus = 8

        return Info


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("sandbox.provision.LIMIT_AGAIN_S", 0.0)


async def test_what_was_taken_is_read_back():
    engine = Engine()
    await set_limits(engine, "c", WANTED)
    assert engine.has == WANTED


@pytest.mark.parametrize("forgets", list(WANTED))
async def test_one_that_was_not_taken_is_named(forgets):
    class Forgetful(Engine):
        async def inspect(self, container):
            return {"HostConfig": {**self.has, forgets: 1}}

    with pytest.raises(EngineError) as caught:
        await set_limits(Forgetful(), "c", WANTED)
    assert forgets in caught.value.message


async def test_a_container_that_is_gone_needs_none():
    engine = Engine()
    engine.there = False
    await set_limits(engine, "c", WANTED)


async def test_it_is_tried_again_and_not_for_ever():
    engine = Engine(deaf=LIMIT_TRIES - 1)
    assert await insist_on_limits(engine, "c", WANTED, lambda: True)
    assert engine.has == WANTED
    engine = Engine(deaf=LIMIT_TRIES)
    assert not await insist_on_limits(engine, "c", WANTED, lambda: True)
    assert engine.asked == LIMIT_TRIES


async def test_what_does_not_run_any_more_needs_none():
    engine = Engine(deaf=10)
    assert await insist_on_limits(engine, "c", WANTED, lambda: False)
    assert engine.asked == 0


async def test_one_that_was_ended_meanwhile_has_others_and_nobody_is_warned(caplog):
    engine = Engine(deaf=1)
    assert await insist_on_limits(engine, "c", WANTED, lambda: engine.asked == 0)
    assert engine.asked == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    "engine", [Engine(deaf=100), Engine(error=EngineUnavailable("away"))], ids=["deaf", "away"]
)
async def test_without_its_limits_nothing_may_run(engine):
    given_up = []

    def spawn(work):
        return asyncio.get_running_loop().create_task(work)

    spec = SandboxSpec("one", instance_type="basic")
    throttle = Throttle(engine, spawn, spec, "c", given_up.append)
    await throttle.settled()
    assert len(given_up) == 1
    assert "limits could not be set" in given_up[0]
