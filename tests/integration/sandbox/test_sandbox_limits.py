"""Sandboxes at the end of their means: no memory, no CPU, a runner that is dead or does not answer."""

import asyncio
import os
import signal
import time

from sandbox.results import LOW_MEMORY
from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box


async def runner_of(box):
    """The pid of the runner, as the host counts."""
    return (await box.inspect())["State"]["Pid"]


async def test_a_kill_for_memory_is_a_warning_to_whatever_else_runs(box_of):
    box = box_of(instance_type="lite")
    before, _ = await box.begin("sleep 0.1")
    beside, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    assert (await before.wait()).warnings == ()
    around, _ = await box.run("python3 -c 'x = bytearray(10**9)' || echo survived")
    assert around.ok
    assert around.warnings == (LOW_MEMORY,)
    await beside.cancel()
    result = await beside.wait()
    assert (result.reason, result.warnings) == ("cancelled", (LOW_MEMORY,))
    after, _ = await box.run("true")
    assert after.warnings == ()


async def test_a_runner_that_dies_takes_its_sandbox_with_it(box_of):
    """As the kernel ends it when nothing else is left to end for memory."""
    box = box_of()
    await box.text("echo mine > file")
    begun = [await box.begin("while :; do echo line; sleep 0.01; done") for _ in range(3)]
    for _, sink in begun:
        await sink.until(b"line")
    began = time.monotonic()
    os.kill(await runner_of(box), signal.SIGKILL)
    for process, _ in begun:
        result = await asyncio.wait_for(process.wait(), 5)
        assert (result.reason, result.retryable) == ("sandbox_terminated", True)
    assert time.monotonic() - began < 5
    assert box.manager.get("one").status == "stopped"
    assert await box.text("cat file") == "mine\n"


HOGS = """
import os, time
def hog():
    open("/proc/self/oom_score_adj", "w").write("0")  # no more likely to go than the runner
    x = bytearray(3_000_000)
    time.sleep(60)
for _ in range(300):
    if os.fork() == 0:
        hog()
time.sleep(60)
"""


async def test_when_memory_is_used_up_by_many_the_truth_is_told(box_of):
    """Each smaller than the runner, so that the kernel may take that one."""
    box = box_of(instance_type="lite")
    beside, sink = await box.begin("echo up; sleep 30")
    await sink.until(b"up")
    hogs, _ = await box.begin(argv=("python3", "-c", HOGS), timeout_ms=6000)
    result = await asyncio.wait_for(hogs.wait(), 15)
    assert result.reason in ("sandbox_terminated", "out_of_memory", "timeout")
    await beside.cancel()
    told = await asyncio.wait_for(beside.wait(), 10)
    if told.reason == "cancelled":
        assert told.warnings == (LOW_MEMORY,)
    else:  # it was taken itself, or the runner was
        assert told.reason in ("out_of_memory", "sandbox_terminated")
    assert await box.text("echo anew") == "anew\n"


async def test_a_kill_that_is_not_confirmed_takes_the_sandbox_and_keeps_its_reason(box_of):
    box = box_of()
    stuck, sink = await box.begin("echo up; sleep 100")
    beside, other = await box.begin("echo up; sleep 100")
    for each in (sink, other):
        await each.until(b"up")
    os.kill(await runner_of(box), signal.SIGSTOP)
    began = time.monotonic()
    await stuck.cancel()
    assert (await asyncio.wait_for(stuck.wait(), 8)).reason == "cancelled"
    assert (await asyncio.wait_for(beside.wait(), 1)).reason == "sandbox_terminated"
    assert 3 < time.monotonic() - began < 6
    late, sink = await box.begin("echo up; sleep 100", timeout_ms=500)
    await sink.until(b"up")
    os.kill(await runner_of(box), signal.SIGSTOP)
    assert (await asyncio.wait_for(late.wait(), 8)).reason == "timeout"
    assert await box.text("pgrep -c sleep || true") == "0\n"


async def test_a_cancel_works_where_a_sixteenth_of_a_cpu_is_used_up(box_of):
    box = box_of(instance_type="lite")
    await box.text("true")
    await box.manager.settled("one")
    busy, sink = await box.begin(
        "echo up; for i in $(seq 8); do (while :; do :; done) & done; wait"
    )
    await sink.until(b"up")
    await asyncio.sleep(1)
    began = time.monotonic()
    await busy.cancel()
    result = await asyncio.wait_for(busy.wait(), 8)
    assert result.reason == "cancelled"
    assert time.monotonic() - began < 4
    assert box.manager.get("one").status == "running"  # it was not needed to take it
    await box.manager.settled("one")


async def test_a_fork_bomb_leaves_other_sandboxes_at_work(houses, box_of):
    box = box_of()
    await box.text("true")
    bombed = Box(box.manager, SandboxSpec("bomb", instance_type="lite"))
    bomb, _ = await bombed.begin(":(){ :|:& };:; sleep 8", timeout_ms=8000)
    await asyncio.sleep(1)
    for _ in range(10):
        assert await box.text("echo fine") == "fine\n"
    await bomb.cancel()
    assert (await asyncio.wait_for(bomb.wait(), 15)).reason in ("cancelled", "timeout")
    assert await bombed.text("echo anew") == "anew\n"
