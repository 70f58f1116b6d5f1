"""Leases, starts and records on the real engine, with a clock of the test's own."""

import asyncio

import pytest

from sandbox.errors import EngineError, SandboxLimit, SandboxUnavailable
from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import SandboxSpec
from sandbox.startup import startup as process_of
from tests.integration.sandbox.houses import Box

SOON_S = 20.0


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


class Home:
    """Managers of one data folder, one after the other."""

    def __init__(self, houses, folder):
        self.houses, self.folder, self.clock = houses, folder, Clock()

    async def manager(self, **fields):
        config = ManagerConfig(owner=self.houses.owner, state_dir=self.folder, **fields)
        manager = Manager(config, on_change=self.houses.changes.append, clock=self.clock)
        await manager.open()
        self.houses.managers.append(manager)
        return manager


@pytest.fixture
def home(houses, tmp_path):
    return Home(houses, tmp_path / "sandboxes")


@pytest.fixture
def startups(monkeypatch):
    """Set once a startup command is made."""
    made = asyncio.Event()

    def startup(*words):
        asyncio.get_running_loop().call_soon(made.set)
        return process_of(*words)

    monkeypatch.setattr("sandbox.instance.startup", startup)
    return made


def spec(name="one", **fields):
    return SandboxSpec(name, **{"instance_type": "standard-2", **fields})


async def test_an_idle_sandbox_is_saved_and_stopped_on_time(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=600))
    await box.text("echo kept > file")
    record = manager.get("one")
    assert record.expected_stop_at == round((home.clock.now + 600) * 1000)
    home.clock.now += 599
    await manager.tick()
    assert manager.get("one").status == "running"
    home.clock.now += 1
    await manager.tick()
    record = manager.get("one")
    assert (record.status, record.workspace_saved) == ("stopped", True)
    assert record.expected_stop_at is None
    assert [change.status for change in home.houses.changes][-2:] == ["stopping", "stopped"]
    assert await box.text("cat file") == "kept\n"


@pytest.mark.parametrize("how", ["lease", "hand"])
async def test_both_ways_to_stop_are_one_save_then_stop(home, monkeypatch, how):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=60, startup_command="echo mine > file"))
    process, sink = await box.begin("sleep 100 & echo up")
    await sink.until(b"up")
    await process.wait()
    asked, stop = [], manager.engine.stop

    async def stopped(container, grace_s):
        asked.append((container, grace_s, manager.get("one").status))
        await stop(container, grace_s)

    monkeypatch.setattr(manager.engine, "stop", stopped)
    begin = len(home.houses.changes)
    if how == "lease":
        home.clock.now += 60
        await manager.tick()
    else:
        await manager.kill("one")
    assert asked == [((await box.inspect())["Id"], 1, "stopping")]
    told = [(c.status, c.workspace_saved, c.expected_stop_at) for c in home.houses.changes[begin:]]
    assert told == [("stopping", False, None), ("stopped", True, None)]
    assert manager.get("one").last_error is None
    assert (await box.inspect())["State"]["ExitCode"] == 0  # by its own runner, not by force
    assert await box.text("cat file; pgrep -c sleep || true") == "mine\n0\n"


async def test_a_save_that_fails_as_it_falls_asleep_is_told_and_tried_again(home, monkeypatch):
    manager = await home.manager(saved_max_age_s=1, saved_max_bytes=1024**2)
    box = Box(manager, spec(sleep_after=30))
    await box.text("echo mine > file")

    async def refuse(container, grace_s):
        raise EngineError(500, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(manager.engine, "stop", refuse)
        home.clock.now += 30
        await manager.tick()
        record = manager.get("one")
        assert (record.status, record.workspace_saved) == ("error", False)
        assert "no space left" in record.last_error
        home.clock.now += 10
        await manager.tick()  # what is not saved is not removed, however old
        assert await box.inspect() is not None
        assert manager.get("one").status == "error"
    home.clock.now += 30
    await manager.tick()  # the minute is over, so it is met again
    assert manager.get("one").status == "running"
    await manager.tick()
    record = manager.get("one")
    assert (record.status, record.workspace_saved) == ("stopped", True)
    assert not (await box.inspect())["State"]["Running"]


async def test_what_goes_on_holds_it_open(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=5))
    process, sink = await box.begin("echo up; read line", stdin=True)
    await sink.until(b"up")
    home.clock.now += 3600
    await manager.tick()
    assert manager.get("one").expected_stop_at is None
    await process.write(b"on\n", eof=True)
    assert (await process.wait()).ok
    with manager.hold("one", "turn"):
        home.clock.now += 3600
        await manager.tick()
        assert manager.get("one").status == "running"
    terminal, sink = await box.begin("echo up; read line", pty=(80, 24))
    await sink.until(b"up")
    home.clock.now += 3600
    await manager.tick()
    assert manager.get("one").status == "running"
    await terminal.write(b"\n")
    await terminal.wait()
    home.clock.now += 5
    await manager.tick()
    assert manager.get("one").status == "stopped"


async def test_a_turn_that_began_before_the_sandbox_holds_it(home):
    manager = await home.manager()
    with manager.hold("ONE", "turn"):
        await Box(manager, spec(sleep_after=5)).text("true")
        home.clock.now += 60
        await manager.tick()
        assert manager.get("one").status == "running"


async def test_looking_at_it_and_starting_it_again_give_no_time(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=10))
    await box.text("true")
    stop_at = manager.get("one").expected_stop_at
    home.clock.now += 9
    record = await manager.start(box.spec)
    manager.list()
    assert (record.status, record.expected_stop_at) == ("running", stop_at)
    home.clock.now += 1
    await manager.tick()
    assert manager.get("one").status == "stopped"


async def test_keep_alive_off_arms_it_again(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=10, keep_alive=True))
    await box.text("true")
    home.clock.now += 5000
    await manager.tick()
    assert manager.get("one").expected_stop_at is None
    record = await manager.start(spec(sleep_after=10))
    assert record.expected_stop_at == round((home.clock.now + 10) * 1000)
    assert home.houses.changes[-1] == record
    home.clock.now += 10
    await manager.tick()
    assert manager.get("one").status == "stopped"


async def test_a_moved_lease_is_told_once_it_rests(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=600))
    await box.text("true")
    home.clock.now += 2
    await box.text("true")
    before = len(home.houses.changes)
    await manager.tick()
    home.clock.now += 4
    await manager.tick()
    assert len(home.houses.changes) == before
    home.clock.now += 1
    await manager.tick()
    await manager.tick()
    assert home.houses.changes[before:] == [manager.get("one")]


async def test_a_lease_and_its_sandbox_survive_the_server(home):
    first = await home.manager()
    box = Box(first, spec(sleep_after=600, startup_command="test -d /workspace"))
    await box.text("echo kept > file")
    await first.kill("one")
    home.clock.now += 100
    await first.tick()
    later = await home.manager()
    record = later.get("one")
    assert (record.status, record.workspace_saved) == ("stopped", True)
    assert record.instance_type == "standard-2"
    assert later._known("one").spec == box.spec
    assert later.saved()[0].saved_at_ms == round((home.clock.now - 100) * 1000)
    assert await Box(later, SandboxSpec("one")).text("cat file") == "kept\n"
    assert later.get("one").instance_type == "standard-2"  # as it was last started


async def test_a_start_is_answered_at_once_and_told_as_it_goes_on(home):
    manager = await home.manager()
    record = await manager.start(spec())
    assert record.status == "requested"
    again = await manager.start(spec())
    assert again.status in ("requested", "starting")
    assert (await manager.ready("one")).status == "running"
    assert [change.status for change in home.houses.changes] == ["requested", "starting", "running"]
    assert len(await manager.engine.list(f"duet.owner={home.houses.owner}")) == 1


async def test_a_kill_right_after_the_start_wins(home):
    manager = await home.manager()
    await manager.start(spec())
    assert (await manager.kill("one")).status == "stopped"
    await asyncio.gather(*(manager.kill("one") for _ in range(3)))
    assert manager.get("one").status == "stopped"
    assert await Box(manager, spec()).text("echo works") == "works\n"


async def test_a_startup_command_runs_before_any_other(home):
    manager = await home.manager()
    box = Box(manager, spec(startup_command="sleep 0.3; echo ready > state"))
    assert await box.text("cat state") == "ready\n"
    await manager.kill("one")
    assert await box.text("rm state; echo gone") == "gone\n"


async def test_a_startup_command_that_fails(home):
    manager = await home.manager()
    box = Box(
        manager, spec(startup_command="echo first > kept; seq 2000; echo no disk >&2; exit 3")
    )
    with pytest.raises(SandboxUnavailable) as caught:
        await box.run("true")
    assert "exited with 3" in caught.value.message
    record = manager.get("one")
    assert (record.status, record.workspace_saved) == ("error", True)
    assert record.last_error.endswith("2000\nno disk") or "no disk" in record.last_error
    assert len(record.last_error) < 2500
    assert (await box.inspect())["State"]["Running"] is False
    assert home.houses.changes[-1] == record
    await manager.start(spec())
    await manager.ready("one")
    assert await box.text("cat kept") == "first\n"
    assert manager.get("one").last_error is None


async def test_a_startup_command_that_takes_too_long(home):
    manager = await home.manager()
    box = Box(manager, spec(startup_command="echo waiting; sleep 600", startup_timeout_ms=300))
    with pytest.raises(SandboxUnavailable) as caught:
        await box.run("true")
    assert "0.3 s" in caught.value.message
    assert "waiting" in manager.get("one").last_error


async def test_a_startup_command_can_be_killed(home, startups):
    manager = await home.manager()
    await manager.start(spec(startup_command="sleep 600", startup_timeout_ms=600_000))
    async with asyncio.timeout(SOON_S):
        await startups.wait()
        assert (await manager.kill("one")).status == "stopped"


async def test_a_sandbox_lost_during_its_startup_command(home, startups):
    manager = await home.manager()
    await manager.start(spec(startup_command="sleep 600", startup_timeout_ms=600_000))
    async with asyncio.timeout(SOON_S):
        await startups.wait()
        await Box(manager, spec()).docker("kill")
        with pytest.raises(SandboxUnavailable):
            await manager.ready("one")
    assert manager.get("one").status == "error"


async def test_two_at_once_and_room_for_one(home):
    manager = await home.manager(max_running=1)
    results = await asyncio.gather(
        *(manager.start(spec(name)) for name in ("one", "two")), return_exceptions=True
    )
    assert isinstance(results[1], SandboxLimit)
    assert "as many as this server allows" in results[1].message
    assert [record.id for record in manager.list()] == ["one"]
    await manager.ready("one")
    assert (await manager.kill("one")).status == "stopped"
    await Box(manager, spec("two")).text("true")
    with pytest.raises(SandboxLimit):  # resuming counts too
        await Box(manager, spec("one")).run("true")
    assert (manager.get("one").status, manager.get("one").workspace_saved) == ("stopped", True)
    assert manager.get("two").status == "running"


async def test_a_command_at_the_very_moment_it_goes_to_sleep(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=60))
    for _ in range(3):
        await box.text("echo once >> log")
        home.clock.now += 60
        tick = asyncio.ensure_future(manager.tick())
        await asyncio.sleep(0)  # the stop has been asked for
        assert await box.text("echo again >> log; tail -n 1 log") == "again\n"
        await tick
        assert manager.get("one").status == "running"
    assert (await box.text("wc -l < log")).strip() == "6"


async def test_kill_and_destroy_of_many_callers_are_one(home, monkeypatch):
    manager = await home.manager()
    box = Box(manager, spec())
    await box.text("true")
    asked = []
    for name in ("stop", "remove_with_volumes"):
        real = getattr(manager.engine, name)

        async def counted(*words, name=name, real=real):
            asked.append(name)
            await real(*words)

        monkeypatch.setattr(manager.engine, name, counted)
    records = await asyncio.gather(*(manager.kill("one") for _ in range(5)))
    assert {record.status for record in records} == {"stopped"}
    impatient = asyncio.ensure_future(manager.destroy("one"))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(*(manager.destroy("one") for _ in range(4)))
    assert asked == ["stop", "remove_with_volumes"]
    assert manager.list() == []
    assert not list(home.folder.glob("*.json"))


async def test_a_lease_that_ran_out_while_no_server_ran(home):
    first = await home.manager()
    await Box(first, spec(sleep_after=60)).text("echo kept > file")
    home.clock.now += 6
    await first.tick()
    home.clock.now += 5
    await first.tick()  # it is written down
    kept = await first._registry.records.load()
    assert (kept[0].idle_since, kept[0].held) == (home.clock.now - 11, False)
    await first.close()
    home.clock.now += 3600
    later = await home.manager()
    await later.tick()
    assert later.get("one").status == "stopped"
    assert await Box(later, spec()).text("cat file") == "kept\n"


async def test_a_busy_one_s_lease_is_written_down_all_the_while(home):
    manager = await home.manager()
    box = Box(manager, spec(sleep_after=600))
    for _ in range(4):
        await box.text("true")
        home.clock.now += 3
        await manager.tick()
    [kept] = await manager._registry.records.load()
    assert kept.idle_since >= home.clock.now - 9
    changes = len(home.houses.changes)
    process, sink = await box.begin("echo up; read line", stdin=True)
    await sink.until(b"up")
    home.clock.now += 6
    await manager.tick()
    [kept] = await manager._registry.records.load()
    assert kept.held
    assert len(home.houses.changes) == changes
    await process.write(b"", eof=True)
    await process.wait()


async def test_closing_writes_down_when_it_was_last_used(home):
    manager = await home.manager()
    await Box(manager, spec(sleep_after=600)).text("true")
    home.clock.now += 3
    await Box(manager, spec()).text("true")
    await manager.close()
    later = await home.manager()
    record = later.get("one")
    assert (record.status, record.expected_stop_at) == (
        "running",
        round((home.clock.now + 600) * 1000),
    )
