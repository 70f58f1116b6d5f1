"""Containers that somebody left paused, created or restarting: what is told, and the next command."""

import asyncio
import os
import signal

from tests.integration.sandbox.houses import Box, Sink

TOLD_S = 5.5  # five seconds, and the time this process takes to see it


async def test_paused_under_a_live_server_the_next_command_works(box_of):
    box = box_of()
    process, sink = await box.begin("echo up; for i in 1 2 3; do sleep 0.2; echo $i; done")
    await sink.until(b"up")
    await box.docker("pause")
    result, _ = await asyncio.wait_for(box.run("echo next"), 10)
    assert result.ok
    assert (await asyncio.wait_for(process.wait(), 10)).ok
    assert sink.stdout == b"up\n1\n2\n3\n"
    assert not (await box.inspect())["State"]["Paused"]


async def test_a_paused_one_is_saved_and_stopped(box_of):
    box = box_of()
    await box.text("echo mine > file")
    await box.docker("pause")
    record = await asyncio.wait_for(box.manager.kill("one"), 15)
    assert (record.status, record.workspace_saved) == ("stopped", True)
    state = (await box.inspect())["State"]
    assert not state["Running"]
    assert not state["Paused"]
    assert await box.text("cat file") == "mine\n"


async def test_a_paused_one_is_destroyed(box_of):
    box = box_of()
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    await box.docker("pause")
    await asyncio.wait_for(box.manager.destroy("one"), 15)
    assert (await process.wait()).reason == "sandbox_terminated"
    assert await box.inspect() is None


async def test_one_that_was_only_created_is_started_by_the_next_command(houses, box_of):
    box = box_of()
    await box.text("true")
    await box.manager.destroy("one")
    obtained, link = await box.manager._registry.shared.provider.obtain(box.spec, 2)
    assert link is None
    assert (await box.inspect())["State"]["Status"] == "created"
    await box.manager.close()
    later = await houses.manager()
    record = later.get("one")
    assert (record.status, record.last_error) == ("stopped", None)
    assert await asyncio.wait_for(Box(later, box.spec).text("echo works"), 20) == "works\n"
    assert (await box.inspect())["Id"] == obtained


async def test_one_that_restarts_by_itself_is_stopped_and_the_next_command_works(houses, box_of):
    box = box_of()
    await box.text("echo mine > file")
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    await box.manager.close()
    await box.docker("update", "--restart=always")
    os.kill((await box.inspect())["State"]["Pid"], signal.SIGKILL)
    later = await houses.manager()
    assert later.get("one").status in ("stopped", "error")
    assert await later.adopt("one", process.exec, Sink(), {}) is None
    again = Box(later, box.spec)
    assert await asyncio.wait_for(again.text("cat file"), 30) == "mine\n"
    await asyncio.wait_for(later.kill("one"), 15)
    assert later.get("one").workspace_saved
    assert not (await box.inspect())["State"]["Running"]


async def test_one_that_restarts_by_itself_under_a_live_server_is_told_as_ended(box_of):
    box = box_of()
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    await box.docker("update", "--restart=always")
    os.kill((await box.inspect())["State"]["Pid"], signal.SIGKILL)
    result = await asyncio.wait_for(process.wait(), TOLD_S)
    assert result.reason == "sandbox_terminated"
    assert await asyncio.wait_for(box.text("echo anew"), 30) == "anew\n"
