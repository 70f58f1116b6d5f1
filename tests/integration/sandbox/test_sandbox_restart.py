"""A start that comes while a stop is on its way: requested at once, run after it; the last word counts."""

import asyncio

import pytest

from sandbox.errors import SandboxLimit
from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box

AGAIN = SandboxSpec("one", instance_type="standard-1")


@pytest.fixture
async def box(box_of):
    box = box_of()
    await box.text("echo mine > file")
    return box


async def reached(box, status):
    async with asyncio.timeout(20):
        while box.manager.get("one").status != status:  # noqa: ASYNC110  (the manager tells no one)
            await asyncio.sleep(0.001)


async def test_a_start_while_it_stops_is_requested_and_runs_after_it(houses, box):
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    killing = asyncio.create_task(box.manager.kill("one"))
    await reached(box, "stopping")
    del houses.changes[:]
    record = await box.manager.start(AGAIN)
    assert (record.status, record.instance_type) == ("requested", "standard-1")
    assert (await box.manager.start(AGAIN)).status == "requested"  # the same start
    await killing
    assert (await process.wait()).reason == "sandbox_terminated"
    assert (await box.manager.ready("one")).status == "running"
    told = [change.status for change in houses.changes]
    assert told == sorted(told, key=["requested", "starting", "running"].index)
    assert await Box(box.manager, AGAIN).text("cat file") == "mine\n"
    await box.manager.settled("one")
    assert (await box.inspect())["HostConfig"]["NanoCpus"] == 5 * 10**8


async def test_a_kill_after_that_start_is_the_last_word(box):
    killing = asyncio.create_task(box.manager.kill("one"))
    await reached(box, "stopping")
    await box.manager.start(AGAIN)
    record = await box.manager.kill("one")
    await killing
    assert (record.status, record.workspace_saved) == ("stopped", True)
    assert not (await box.inspect())["State"]["Running"]


async def test_a_start_after_a_kill_of_a_start_is_the_last_word(box_of):
    box = box_of()
    await box.manager.start(box.spec)
    await reached(box, "starting")
    killing = asyncio.create_task(box.manager.kill("one"))
    await asyncio.sleep(0)
    assert (await box.manager.start(AGAIN)).status == "requested"
    await killing
    await reached(box, "running")
    assert await Box(box.manager, AGAIN).text("echo works") == "works\n"


async def test_a_start_while_it_is_destroyed_makes_a_new_one(box):
    destroying = asyncio.create_task(box.manager.destroy("one"))
    await reached(box, "stopping")
    assert (await box.manager.start(AGAIN)).status == "requested"
    await destroying
    await reached(box, "running")
    assert await Box(box.manager, AGAIN).text("ls") == ""
    await box.manager.destroy("one")
    assert box.manager.list() == []


async def test_a_destroy_takes_back_the_start_after_a_destroy(box):
    manager = box.manager
    destroying = asyncio.create_task(manager.destroy("one"))
    await reached(box, "stopping")
    await manager.start(AGAIN)
    await manager.destroy("one")
    await destroying
    assert manager.list() == []
    assert await box.inspect() is None
    assert (await manager.start(AGAIN)).status == "requested"
    assert (await manager.ready("one")).status == "running"


async def test_a_start_that_finds_no_place_after_a_destroy_says_so(houses):
    manager = await houses.manager(max_running=1)
    box = Box(manager, AGAIN)
    await box.text("true")
    destroying = asyncio.create_task(manager.destroy("one"))
    await reached(box, "stopping")
    await manager.start(AGAIN)
    manager._registry._max_running = 0  # others have come first
    await destroying
    async with asyncio.timeout(20):
        while houses.changes[-1].status != "error":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert houses.changes[-1].id == "one"
    assert "as many as this server allows" in houses.changes[-1].last_error


async def test_one_too_many_is_refused_then_too(houses, box_of):
    manager = await houses.manager(max_running=1)
    box = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    await box.text("true")
    killing = asyncio.create_task(manager.kill("one"))
    await reached(box, "stopping")
    with pytest.raises(SandboxLimit):
        await manager.start(SandboxSpec("two"))
    assert (await manager.start(AGAIN)).status == "requested"
    await killing
    assert (await manager.ready("one")).status == "running"
