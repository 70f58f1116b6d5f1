"""What became of a container whose link was lost, as the engine tells it."""

import pytest

from sandbox.errors import EngineUnavailable
from sandbox.health import what_became
from tests.unit.sandbox.engines import FakeEngine


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.mark.parametrize("state", ["exited", "created"])
async def test_one_that_ended_keeps_its_files(engine, state):
    fate = await what_became(engine, engine.add("one", state), None)
    assert (fate.reason, fate.status) == ("sandbox_terminated", "stopped")
    assert (fate.runs, fate.exists, fate.files) == (False, True, True)


@pytest.mark.parametrize("state", ["removing", "dead", None])
async def test_one_that_is_being_removed_has_lost_them(engine, state):
    """The engine ends a container before it takes its files away, and may be asked between."""
    container = engine.add("one", state) if state else "gone"
    fate = await what_became(engine, container, None)
    assert (fate.reason, fate.status) == ("sandbox_terminated", "stopped")
    assert (fate.runs, fate.exists, fate.files) == (False, False, False)


@pytest.mark.parametrize("there", [True, False])
async def test_those_in_a_volume_outlive_it(engine, there):
    if there:
        engine.volumes["files"] = {"Labels": {}}
    fate = await what_became(engine, engine.add("one", "removing"), "files")
    assert (fate.exists, fate.files) == (False, there)


async def test_an_engine_that_does_not_answer_is_what_is_told(engine, monkeypatch):
    async def inspect(*_, **__):
        raise EngineUnavailable("No container engine answers.")

    monkeypatch.setattr("sandbox.health.ASK_FOR_S", 0.0)
    monkeypatch.setattr(engine, "inspect", inspect)
    fate = await what_became(engine, "any", None)
    assert (fate.reason, fate.status) == ("sandbox_unavailable", "error")
