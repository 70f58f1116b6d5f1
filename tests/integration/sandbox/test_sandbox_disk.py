"""The most that a sandbox may write: the writer is stopped, and told why."""

import asyncio

import pytest

from sandbox.containers import image_tag
from sandbox.spec import MIB, SandboxSpec
from tests.integration.sandbox.houses import Box

WAIT_S = 30.0
CONFIG = {"Image": image_tag("debian"), "HostConfig": {"NetworkMode": "none"}}


@pytest.mark.parametrize("profile", ["default", "strict"])
async def test_a_writer_is_stopped_and_told_why(houses, profile):
    manager = await houses.manager(disk_bytes=64 * MIB)
    box = Box(manager, SandboxSpec("one", instance_type="standard-2", profile=profile))
    other = Box(manager, SandboxSpec("two", instance_type="standard-2"))
    process, _ = await box.begin(
        "echo keep > kept; while :; do head -c 8M /dev/zero >> data; sleep 0.05; done"
    )
    quiet, sink = await other.begin("echo up; read line", stdin=True)
    await sink.until(b"up")
    async with asyncio.timeout(WAIT_S):
        result = await process.wait()
    assert result.reason == "sandbox_terminated"
    assert "may write 64 MiB" in result.message
    record = manager.get("one")
    async with asyncio.timeout(WAIT_S):
        while (record := manager.get("one")).status != "stopped":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert record.last_error == result.message
    assert record.workspace_saved
    assert await box.text("cat kept; rm data") == "keep\n"
    assert manager.get("one").last_error is None
    await quiet.write(b"", eof=True)
    assert (await quiet.wait()).reason != "sandbox_terminated"


async def test_holes_are_not_counted(houses):
    manager = await houses.manager(disk_bytes=64 * MIB)
    box = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    await box.text("truncate -s 3G sparse")
    await manager._watch.look(manager._known("one"))
    assert manager.get("one").status == "running"
    await box.text("head -c 70M /dev/zero > data")
    await manager._watch.look(manager._known("one"))
    assert manager.get("one").status == "stopped"


async def test_an_engine_that_cannot_limit_disks_makes_sandboxes_all_the_same(houses, monkeypatch):
    """Whether quotas are on can't be asked; the engine says so when it makes a container."""
    monkeypatch.setattr("sandbox.provision.can_limit", lambda *_: True)
    manager = await houses.manager(disk_bytes=64 * MIB)
    provider = manager._registry.shared.provider
    assert await provider.limits_disk()
    box = Box(manager, SandboxSpec("one", instance_type="standard-2"))
    assert await box.text("echo works") == "works\n"
    limited = (await box.inspect())["HostConfig"].get("StorageOpt")
    assert (limited is not None) == await provider.limits_disk()


async def test_an_engine_that_can_is_asked_to(houses, monkeypatch):
    monkeypatch.setattr("sandbox.provision.can_limit", lambda *_: True)
    manager = await houses.manager(disk_bytes=64 * MIB)
    asked = []

    async def create(name, config):
        asked.append(config["HostConfig"].get("StorageOpt"))
        return "0" * 64

    monkeypatch.setattr(manager.engine, "create", create)
    provider = manager._registry.shared.provider
    assert await provider.create("name", CONFIG) == "0" * 64
    assert asked == [{"size": str(64 * MIB)}]
