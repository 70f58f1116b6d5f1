"""A storage driver that can hold sandboxes to a size does: btrfs on a disk of the test's own."""

import asyncio
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from sandbox.containers import image_tag
from sandbox.spec import MIB, SandboxSpec
from tests.integration.sandbox.dockerd import Dockerd
from tests.integration.sandbox.houses import Box

DISK_BYTES = 4 * 1024 * MIB  # sparse; the image takes a third of a GiB of it
LIMIT_BYTES = 96 * MIB


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
async def btrfs():
    made = Dockerd(Path(tempfile.mkdtemp(prefix="duet-")))
    try:
        disk = made.folder / "disk"
        with disk.open("wb") as file:
            file.truncate(DISK_BYTES)
        (made.folder / "data").mkdir()
        await asyncio.to_thread(run, "mkfs.btrfs", "-q", disk)
        await asyncio.to_thread(run, "mount", "-o", "loop", disk, made.folder / "data")
        await made.open()
        await made.start(live_restore=False, driver="btrfs")
        await made.load(image_tag("debian"))
        yield made
    finally:
        await made.clean_up()
        shutil.rmtree(made.folder, ignore_errors=True)


async def test_the_driver_holds_a_writer_to_its_size(btrfs, houses):
    manager = await houses.manager(docker_host=btrfs.host, disk_bytes=LIMIT_BYTES)
    box = Box(manager, SandboxSpec("one", "debian", instance_type="standard-2", network="none"))
    result, sink = await box.run("echo keep > kept; head -c 400M /dev/urandom > data")
    assert not result.ok
    assert b"quota exceeded" in sink.of("stderr").lower()
    assert manager.get("one").status == "running"  # nobody stopped it: what it wrote was refused
    image = (await manager.engine.image(image_tag("debian")))["Size"]
    asked = {"size": str(LIMIT_BYTES + image)}  # this driver counts the image too
    assert (await box.inspect())["HostConfig"]["StorageOpt"] == asked
    assert await manager._registry.shared.provider.limits_disk()
    size = int(await box.text("stat -c %s data"))
    assert LIMIT_BYTES / 2 < size < 2 * LIMIT_BYTES  # as exactly as image sizes are told
    assert await box.text("rm data; sync; echo more >> kept; cat kept") == "keep\nmore\n"
    await manager.kill("one")
    assert await box.text("cat kept") == "keep\nmore\n"  # its own type's limits, and its files
