"""The engine itself stops, is killed, freezes and restarts; with live-restore commands go on."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.containers import image_tag
from sandbox.errors import SandboxUnavailable
from sandbox.spec import SandboxSpec
from tests.integration.sandbox.dockerd import Dockerd
from tests.integration.sandbox.houses import Box, Houses

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = "for i in $(seq 1 400); do seq $((i*1000)) $((i*1000+999)); sleep 0.01; done; exit 3"
WANTED = "".join(f"{n}\n" for n in range(1000, 401_000)).encode()
TOLD_S = 5.5  # five seconds, and the time this process takes to see it


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dockerd():
    # A socket's path is short, so pytest's own folder is too deep.
    made = Dockerd(Path(tempfile.mkdtemp(prefix="duet-")))
    try:
        await made.open()
        await made.start(live_restore=True)
        await made.load(image_tag("debian"))
        yield made
    finally:
        await made.clean_up()
        shutil.rmtree(made.folder, ignore_errors=True)


@pytest_asyncio.fixture(loop_scope="module")
async def houses(dockerd):
    made = Houses()
    yield made
    await made.clean_up()


@pytest_asyncio.fixture(loop_scope="module")
async def box_of(houses, dockerd):
    manager = await houses.manager(docker_host=dockerd.host)

    def make(name):
        spec = SandboxSpec(name, "debian", instance_type="standard-2", network="none")
        return Box(manager, spec)

    return make


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_with_live_restore_only_what_ended_is_told_as_ended(dockerd, box_of, number):
    box, other = box_of("one"), box_of("two")
    process, sink = await box.begin(NUMBERS)
    short, _ = await box.begin("sleep 1; echo late; exit 9")
    doomed, doomed_sink = await other.begin("echo up; sleep 100")
    await doomed_sink.until(b"up")
    await sink.beyond("stdout", 100_000)
    runner = (await other.inspect())["State"]["Pid"]
    await dockerd.down(number)
    os.kill(runner, signal.SIGKILL)
    await asyncio.sleep(1)  # commands print on, and one ends, while there is no engine
    began = time.monotonic()
    await dockerd.start(live_restore=True)
    result = await asyncio.wait_for(doomed.wait(), TOLD_S)
    assert result.reason == "sandbox_terminated"
    assert time.monotonic() - began < TOLD_S + 5
    assert (await asyncio.wait_for(short.wait(), 5)).exit_code == 9
    result = await asyncio.wait_for(process.wait(), 20)
    assert result.exit_code == 3
    assert sink.stdout == WANTED
    assert box.manager.get("one").status == "running"
    assert await other.text("echo anew") == "anew\n"


async def freeze(dockerd):
    dockerd.send(signal.SIGSTOP)


async def stop(dockerd):
    await dockerd.down()


async def kill(dockerd):
    await dockerd.down(signal.SIGKILL)


@pytest.mark.parametrize("harm", [stop, kill, freeze])
async def test_without_it_every_command_is_told_and_the_next_says_what_is_wrong(
    dockerd, box_of, harm
):
    await dockerd.down()
    await dockerd.start(live_restore=False)
    box = box_of("one")
    await box.text("echo mine > file")
    begun = [await box.begin("echo up; sleep 100") for _ in range(3)]
    for _, sink in begun:
        await sink.until(b"up")
    began = time.monotonic()
    await harm(dockerd)
    for process, _ in begun:
        result = await asyncio.wait_for(process.wait(), TOLD_S + 2)
        assert result.reason in ("sandbox_unavailable", "sandbox_terminated")
        assert result.retryable
    assert time.monotonic() - began < TOLD_S + (harm is stop) * 2  # a stop itself takes a while
    assert box.manager.get("one").status in ("error", "stopped")
    with pytest.raises(SandboxUnavailable) as caught:
        await asyncio.wait_for(box.run("true"), 15)
    assert "duet doctor" in caught.value.message
    if harm is freeze:
        dockerd.send(signal.SIGCONT)
    else:
        await dockerd.start(live_restore=False)
    assert await box.text("cat file; grep -lz '[s]leep' /proc/*/cmdline || true") == "mine\n"


async def test_a_quick_restart_without_it_ends_what_ran(dockerd, box_of):
    await dockerd.down()
    await dockerd.start(live_restore=False)
    box = box_of("one")
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    await dockerd.down()
    began = time.monotonic()
    await dockerd.start(live_restore=False)
    result = await asyncio.wait_for(process.wait(), TOLD_S)
    assert result.reason in ("sandbox_unavailable", "sandbox_terminated")
    assert time.monotonic() - began < TOLD_S
    assert await box.text("echo anew") == "anew\n"
