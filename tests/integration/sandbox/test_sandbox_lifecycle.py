"""Sandboxes come, go, are taken away, and the engine may not be there: what commands are told."""

import asyncio
import time

import pytest
import uvloop

from sandbox.errors import InvalidSpec, SandboxLimit, SandboxUnavailable, UnknownSandbox
from sandbox.images import ensure_images, image_state
from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import ExecSpec, SandboxSpec
from tests.integration.sandbox.houses import Box, Houses, Sink


async def test_the_first_command_starts_it_and_two_make_one(houses, box_of):
    box = box_of()
    results = await asyncio.gather(*(box.run("hostname") for _ in range(5)))
    assert all(result.ok for result, _ in results)
    assert [change.status for change in houses.changes] == ["starting", "running"]
    found = await box.manager.engine.list(f"duet.owner={houses.owner}")
    assert len(found) == 1


async def test_stop_keeps_the_files_and_the_next_command_resumes(houses, box_of):
    box = box_of()
    await box.text("echo kept > file; ln -s file link; chmod 600 file; touch /etc/mark")
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    record = await box.manager.kill("ONE ")
    assert (record.status, record.workspace_saved) == ("stopped", True)
    assert (await process.wait()).reason == "sandbox_terminated"
    assert (await box.manager.kill("one")).status == "stopped"
    assert await box.text("cat link; stat -c %a file; ls /etc/mark") == "kept\n600\n/etc/mark\n"
    assert box.manager.get("one").workspace_saved is False


async def test_destroy_removes_it_for_good(houses, box_of):
    box = box_of()
    await box.text("touch file")
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    await asyncio.gather(box.manager.destroy("one"), box.manager.destroy("one"))
    assert (await process.wait()).reason == "sandbox_terminated"
    assert box.manager.get("one") is None
    assert await box.inspect() is None
    assert await box.text("ls") == ""
    await box.manager.destroy("never-was")


@pytest.mark.parametrize("words", [("rm", "-f"), ("kill",), ("stop", "-t", "5")])
async def test_taken_away_in_the_middle(houses, box_of, words):
    box = box_of()
    begun = [await box.begin("while :; do echo line; sleep 0.01; done") for _ in range(3)]
    for _, sink in begun:
        await sink.until(b"line")
    began = time.monotonic()
    await box.docker(*words)
    for process, _ in begun:
        result = await asyncio.wait_for(process.wait(), 5)
        assert (result.reason, result.retryable) == ("sandbox_terminated", True)
        assert result.exit_code is None
        assert result.bytes["stdout"] > 0
    assert time.monotonic() - began < 7
    assert await box.text("echo again") == "again\n"
    assert [change.status for change in houses.changes][-2:] == ["starting", "running"]


async def test_a_removed_container_is_made_anew(box_of):
    box = box_of()
    await box.text("true")
    await box.manager.kill("one")
    await box.docker("rm")
    assert await box.text("echo new") == "new\n"


async def test_out_of_memory(box_of):
    box = box_of(instance_type="lite")
    result, _ = await box.run("python3 -c 'x = bytearray(10**9)'; exit $?")
    assert (result.reason, result.exit_code) == ("out_of_memory", 137)
    result, _ = await box.run("kill -9 $$")
    assert result.reason == "command_failed"
    assert await box.text("echo alive") == "alive\n"


async def test_no_engine(houses):
    manager = await houses.manager(docker_host="unix:///nowhere/docker.sock")
    with pytest.raises(SandboxUnavailable) as caught:
        await manager.execute(SandboxSpec("one"), ExecSpec("e1", "true"), Sink())
    assert "duet doctor" in caught.value.message
    assert caught.value.code == "sandbox_unavailable"
    await houses.manager()  # cleans up with an engine that is there
    houses.managers.reverse()


async def test_an_engine_that_comes_later(houses, tmp_path):
    path = tmp_path / "docker.sock"
    manager = await houses.manager(docker_host=f"unix://{path}")
    box = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    with pytest.raises(SandboxUnavailable):
        await box.run("true")
    path.symlink_to("/var/run/docker.sock")
    assert await box.text("echo now") == "now\n"


async def test_an_image_that_is_missing(houses, monkeypatch):
    monkeypatch.setattr("sandbox.containers.IMAGE_VERSION", "never-built")
    manager = await houses.manager()
    assert (await manager.start(SandboxSpec("one"))).status == "requested"
    with pytest.raises(SandboxUnavailable) as caught:
        await manager.ready("one")
    assert "duet images build" in caught.value.message
    assert manager.get("one").status == "error"
    assert "duet images build" in manager.get("one").last_error


async def test_a_runtime_that_is_missing(houses):
    manager = await houses.manager()
    await manager.start(SandboxSpec("one", runtime="no-such-runtime"))
    with pytest.raises(SandboxUnavailable) as caught:
        await manager.ready("one")
    assert "no-such-runtime" in caught.value.message


async def test_a_limit_refuses_and_harms_nobody(houses):
    manager = await houses.manager(max_running=1)
    first = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    await first.text("true")
    with pytest.raises(SandboxLimit):
        await manager.start(SandboxSpec("two"))
    assert await first.text("echo here") == "here\n"
    await manager.kill("one")
    await manager.start(SandboxSpec("two"))
    assert (await manager.ready("two")).status == "running"


async def test_unknown_ids(manager):
    assert manager.get("nobody") is None
    assert manager.get("../etc") is None
    with pytest.raises(UnknownSandbox):
        await manager.kill("nobody")


async def test_close_is_quick_and_tells_every_command(houses, box_of):
    boxes = [box_of(name) for name in ("one", "two")]
    begun = [await box.begin("echo up; sleep 100") for box in boxes]
    for _, sink in begun:
        await sink.until(b"up")
    began = time.monotonic()
    await boxes[0].manager.close(keep=False)
    assert time.monotonic() - began < 6
    for process, _ in begun:
        assert (await process.wait()).reason == "sandbox_terminated"
    with pytest.raises(SandboxUnavailable):
        await boxes[0].run("true")


async def test_a_later_server_finds_what_an_earlier_left(houses, box_of):
    box = box_of()
    await box.text("echo mine > file")
    await box.manager.close(keep=False)
    later = await houses.manager()
    assert [record.id for record in later.list()] == ["one"]
    assert later.get("one").status == "stopped"
    assert later.get("one").workspace_saved
    assert await Box(later, box.spec).text("cat file") == "mine\n"


async def test_servers_do_not_touch_each_other_s(houses, box_of):
    """Of the same ids, running, stopped and spare: neither reconciles, ends or removes the other's."""
    box, quiet = box_of(), box_of("quiet")
    await box.text("echo mine > file")
    await quiet.text("echo kept > file")
    await box.manager.kill("quiet")
    process, sink = await box.begin("echo up; read line; echo still here", stdin=True)
    await sink.until(b"up")
    other = Houses()
    try:
        stranger = Box(await other.manager(pool=1), box.spec)
        assert stranger.manager.list() == []
        assert await stranger.text("ls") == ""
        for manager in (box.manager, stranger.manager):
            await manager.reconcile()
            await manager.tick()
        assert [record.id for record in stranger.manager.list()] == ["one"]
        assert {record.id for record in box.manager.list()} == {"one", "quiet"}
        for id_ in ("one", "quiet"):
            await stranger.manager.destroy(id_)
        await stranger.manager.close(keep=False)
        await box.manager.reconcile()
        await process.write(b"\n")
        assert (await process.wait()).ok
        assert sink.stdout.endswith(b"still here\n")
    finally:
        await other.clean_up()
    assert await box.text("cat file") == "mine\n"
    assert await quiet.text("cat file") == "kept\n"


async def test_a_type_may_change_at_a_later_start(box_of):
    box = box_of(instance_type="lite")
    await box.text("true")
    await box.manager.kill("one")
    bigger = Box(box.manager, SandboxSpec("one", instance_type="basic"))
    await box.manager.start(bigger.spec)
    assert (
        await bigger.text(
            "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null || true"
        )
        == "1073741824\n"
    )
    assert box.manager.get("one").instance_type == "basic"


def test_it_works_on_uvloop():
    async def story():
        houses = Houses()
        try:
            box = Box(await houses.manager(), SandboxSpec("one", instance_type="standard-2"))
            result, sink = await box.run("head -c 5000000 /dev/zero")
            assert result.ok
            assert len(sink.stdout) == 5_000_000
            process, sink = await box.begin("echo up; sleep 100")
            await sink.until(b"up")
            await box.docker("kill")
            assert (await asyncio.wait_for(process.wait(), 5)).reason == "sandbox_terminated"
        finally:
            await houses.clean_up()

    uvloop.run(story())


async def test_a_manager_needs_an_owner_that_is_safe_in_names():
    with pytest.raises(InvalidSpec):
        Manager(ManagerConfig("../x"), on_change=print)


async def test_images_that_are_there_are_not_built_again(manager):
    assert all(state.present and state.current for state in await image_state(manager.engine))
    said = []
    await ensure_images(manager.engine, progress=said.append)
    assert sorted(said) == ["Image debian: up to date.", "Image workspace: up to date."]
