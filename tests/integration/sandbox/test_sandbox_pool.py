"""Spare containers: taken once, by name and limits, and gone with their server."""

import asyncio

import pytest

from sandbox import containers
from sandbox.pool import Kind
from sandbox.spec import GIB, SandboxSpec
from tests.integration.sandbox.houses import Box, Houses

WAIT_S = 30.0
KIND = Kind("workspace")


async def spares(manager):
    found = await manager.engine.list(f"duet.owner={manager._config.owner}")
    return [one for one in found if containers.is_spare(one, manager._config.owner)]


@pytest.fixture
async def manager(houses):
    manager = await houses.manager(pool=1, pool_kinds=(KIND,), max_running=2)
    await manager._pool.refill()
    return manager


async def filled(manager):
    async with asyncio.timeout(WAIT_S):
        await manager._pool.refill()
    assert manager._pool.count(KIND) == 1


async def test_a_new_sandbox_takes_the_spare_with_its_own_limits(houses, manager):
    [spare] = await spares(manager)
    box = Box(manager, SandboxSpec("one", instance_type="basic"))
    assert await box.text("hostname; pwd") == "sandbox\n/workspace\n"
    found = await box.inspect()
    assert found["Id"] == spare["Id"]
    assert found["HostConfig"]["Memory"] == found["HostConfig"]["MemorySwap"] == GIB
    await manager.settled("one")
    found = await box.inspect()
    assert found["HostConfig"]["NanoCpus"] == 10**9 // 4
    assert [change.status for change in houses.changes] == ["starting", "running"]
    await filled(manager)
    assert len(await spares(manager)) == 1


async def test_what_was_used_never_goes_to_another(manager):
    one, two = Box(manager, SandboxSpec("one")), Box(manager, SandboxSpec("two"))
    await one.text("touch secret")
    await manager.destroy("one")
    await filled(manager)
    assert await two.text("ls") == ""
    ids = {(await two.inspect())["Id"], *(each["Id"] for each in await spares(manager))}
    assert len(ids) == 1 + len(await spares(manager))


async def test_spares_do_not_count_as_running(manager):
    for name in ("one", "two"):
        await Box(manager, SandboxSpec(name)).text("true")
    await filled(manager)
    assert len(manager.list()) == 2


async def test_another_kind_is_made_anew(manager):
    [spare] = await spares(manager)
    for fields in ({"network": "none"}, {"profile": "strict"}, {"image": "debian"}):
        box = Box(manager, SandboxSpec("other", **fields))
        await box.text("true")
        assert (await box.inspect())["Id"] != spare["Id"]
        await manager.destroy("other")
    assert [one["Id"] for one in await spares(manager)] == [spare["Id"]]


async def test_it_is_known_again_by_a_later_server(houses, manager):
    box = Box(manager, SandboxSpec("one"))
    await box.text("echo kept > file")
    await manager.kill("one")
    later = await houses.manager()
    assert [record.id for record in later.list()] == ["one"]
    assert await Box(later, SandboxSpec("one")).text("cat file") == "kept\n"


async def test_spares_of_an_earlier_life_are_removed(houses, manager):
    assert len(await spares(manager)) == 1
    await houses.manager()  # the earlier one did not get to close
    assert await spares(manager) == []


async def test_closing_removes_them(houses, manager):
    other = Houses()
    try:
        theirs = await other.manager(pool=1, pool_kinds=(KIND,))
        await theirs._pool.refill()
        await manager.close()
        manager.engine = houses.managers[0].engine
        assert await spares(manager) == []
        assert len(await spares(theirs)) == 1
    finally:
        await other.clean_up()


async def test_one_that_ended_by_itself_is_replaced(manager):
    [spare] = await spares(manager)
    await manager.engine.remove(spare["Id"])
    box = Box(manager, SandboxSpec("one"))
    assert await box.text("echo works") == "works\n"
    await filled(manager)


async def test_without_an_image_there_are_no_spares_and_no_noise(houses, monkeypatch, caplog):
    monkeypatch.setattr("sandbox.containers.IMAGE_VERSION", "never-built")
    manager = await houses.manager(pool=2, pool_kinds=(KIND,))
    for _ in range(3):
        await manager._pool.refill()
    assert caplog.text.count("no spare container") == 1


async def test_closing_leaves_none_that_was_being_made(houses):
    manager = await houses.manager(pool=2, pool_kinds=(KIND,))
    making = asyncio.ensure_future(manager._pool.refill())
    async with asyncio.timeout(WAIT_S):
        while not manager._pool._names:  # noqa: ASYNC110  (it is being made, which nobody tells)
            await asyncio.sleep(0.001)
    await manager.close()
    await making
    assert await spares(manager) == []
    await manager.engine.close()
