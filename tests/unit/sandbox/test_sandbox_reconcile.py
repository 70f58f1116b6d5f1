"""The engine's list held against the records: an old list, and containers in states on the way."""

import asyncio

import pytest

from sandbox.errors import SandboxError
from sandbox.reconcile import MEET_AT_ONCE
from sandbox.spec import SandboxSpec
from tests.unit.sandbox.engines import OWNER, FakeEngine, managing

SOON_S = 5.0


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def changes():
    return []


async def started(manager):
    async with asyncio.timeout(SOON_S):
        await manager.start(SandboxSpec("one"))
        await manager.ready("one")


async def test_what_is_destroyed_while_the_engine_lists_does_not_come_back(
    engine, monkeypatch, changes
):
    engine.add("one")
    engine.add("two")
    async with managing(engine, monkeypatch, changes) as manager:
        assert [one.id for one in manager.list()] == ["one", "two"]
        engine.meanwhile = lambda: manager.destroy("one")
        await manager.reconcile()
        assert [one.id for one in manager.list()] == ["two"]
        assert changes[-1].id == "one"
        assert not changes[-1].workspace_saved


async def test_a_container_of_no_record_is_asked_for_before_one_is_made(
    engine, monkeypatch, changes
):
    async with managing(engine, monkeypatch, changes) as manager:
        there, gone = engine.add("there"), engine.add("gone")

        async def remove():
            await engine.remove(gone)

        engine.meanwhile = remove
        await manager.reconcile()
        assert [one.id for one in manager.list()] == ["there"]
        assert engine.inspected == [there, gone]


async def test_one_that_is_destroyed_while_it_waits_to_be_met_stays_gone(
    engine, monkeypatch, changes
):
    names = [f"s{n}" for n in range(MEET_AT_ONCE + 2)]
    ids = {name: engine.add(name) for name in names}
    async with managing(engine, monkeypatch, changes) as manager:
        for name in names:  # somebody starts them all from outside
            engine.rows[ids[name]]["state"] = "running"
        engine.gate.clear()
        reconciling = asyncio.create_task(manager.reconcile())
        await engine.asked(MEET_AT_ONCE)
        for name in names[MEET_AT_ONCE:]:
            await manager.destroy(name)
        del changes[:]
        engine.gate.set()
        await reconciling
        assert [one.id for one in manager.list()] == names[:MEET_AT_ONCE]
        assert {change.id for change in changes} <= set(names[:MEET_AT_ONCE])


@pytest.mark.parametrize("state", ["exited", "created", "restarting"])
async def test_what_does_not_run_is_stopped_with_its_files(engine, monkeypatch, changes, state):
    engine.add("one", state)
    async with managing(engine, monkeypatch, changes) as manager:
        record = manager.get("one")
        assert (record.status, record.workspace_saved) == ("stopped", True)
        assert record.last_error is None
        assert engine.state("one") in ("exited", "created")


@pytest.mark.parametrize("state", ["running", "paused"])
async def test_one_that_could_not_be_met_yet_is_not_called_stopped(
    engine, monkeypatch, changes, state
):
    engine.add("one", state)
    async with managing(engine, monkeypatch, changes) as manager:
        record = manager.get("one")
        assert (record.status, record.workspace_saved) == ("error", False)
        assert "has not met" in record.last_error
        assert engine.state("one") == "running"


@pytest.mark.parametrize("state", ["removing", "dead"])
async def test_what_is_being_removed_is_no_sandbox(engine, monkeypatch, changes, state):
    engine.add("one", state)
    async with managing(engine, monkeypatch, changes) as manager:
        assert manager.list() == []
        assert len(engine.rows) == (state == "removing")  # dead: its removal did not get to the end


@pytest.mark.parametrize("state", ["removing", "dead"])
async def test_one_that_is_being_removed_from_outside_is_not_called_saved(
    engine, monkeypatch, changes, state
):
    container = engine.add("one")
    async with managing(engine, monkeypatch, changes) as manager:
        assert manager.get("one").workspace_saved
        engine.rows[container]["state"] = state
        await manager.reconcile()
        record = manager.get("one")
        assert (record.status, record.workspace_saved) == ("stopped", False)
        assert "removed from outside" in record.last_error
        assert changes[-1] == record


@pytest.mark.parametrize("state", ["removing", "dead"])
async def test_the_volume_of_one_in_the_strict_profile_is_its_workspace(
    engine, monkeypatch, changes, state
):
    container = engine.add("one", profile="strict")
    engine.volumes[f"duet-{OWNER}-one"] = {"Labels": {}}
    async with managing(engine, monkeypatch, changes) as manager:
        engine.rows[container]["state"] = state
        await manager.reconcile()
        assert manager.get("one").workspace_saved


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("dead", "runs nothing"),  # a new container in its place; this engine can't start it
        ("removing", "being removed"),
    ],
)
async def test_the_next_command_gets_round_it_or_says_what_is_wrong(
    engine, monkeypatch, changes, state, words
):
    monkeypatch.setattr("sandbox.provision.GONE_S", 0.05)
    container = engine.add("one")
    async with managing(engine, monkeypatch, changes) as manager:
        engine.rows[container]["state"] = state
        with pytest.raises(SandboxError) as caught:
            await started(manager)
        assert words in caught.value.message
        assert manager.get("one").status == "error"


async def test_one_that_is_removed_soon_is_waited_for(engine, monkeypatch, changes):
    container = engine.add("one")
    async with managing(engine, monkeypatch, changes) as manager:
        engine.rows[container]["state"] = "removing"
        asyncio.get_running_loop().call_later(0.1, engine.rows.pop, container)
        with pytest.raises(SandboxError) as caught:
            await started(manager)
        assert "runs nothing" in caught.value.message  # a new one was made


async def test_the_volume_of_a_removal_that_had_begun_goes_too(
    engine, monkeypatch, changes, tmp_path
):
    engine.add("one", profile="strict")
    engine.volumes[f"duet-{OWNER}-one"] = {"Labels": {}}
    async with managing(engine, monkeypatch, changes, state_dir=tmp_path) as manager:
        with monkeypatch.context() as patch:

            async def killed(name):
                raise asyncio.CancelledError

            patch.setattr(engine, "remove_volume", killed)
            with pytest.raises(SandboxError):
                await manager.destroy("one")
    assert engine.rows == {}
    async with managing(engine, monkeypatch, changes, state_dir=tmp_path) as manager:
        assert engine.volumes == {}
        assert manager.list() == []


@pytest.mark.parametrize("seconds", [59, 60, -3600])
async def test_each_minute_the_engine_is_asked_whatever_the_clock_does(
    engine, monkeypatch, changes, seconds
):
    now = [1_700_000_000.0]
    async with managing(engine, monkeypatch, changes, clock=lambda: now[0]) as manager:
        await manager.tick()
        engine.meanwhile = nothing  # until the next list
        now[0] += seconds
        await manager.tick()
        assert (engine.meanwhile is None) is (seconds != 59)


async def nothing():
    pass
