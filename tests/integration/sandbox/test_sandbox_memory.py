"""Memory that is used up by what nobody can be killed for, until the kernel takes the runner itself."""

import asyncio
from contextlib import suppress

from sandbox.errors import SandboxUnavailable
from sandbox.spec import MIB

# Memory of no process: both are kept in it, and count as the sandbox's.
FILL = "head -c 60M /dev/zero > /dev/shm/fill; head -c 60M /dev/zero > /dev/fill"
USED = "cat /sys/fs/cgroup/memory/memory.usage_in_bytes /sys/fs/cgroup/memory.current 2>/dev/null || true"
TRIES = 40


async def squeeze(box, limit):
    """Lower the limit to what is used, as somebody at a shell would; what it is now."""
    found = await box.inspect()
    for wanted in range(limit, 0, -MIB // 4):
        process = await asyncio.create_subprocess_exec(
            "docker", "update", f"--memory={wanted}", f"--memory-swap={wanted}", found["Id"],
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        if await process.wait():
            return wanted + MIB // 4
    return MIB


async def test_each_command_has_its_one_end_and_the_next_works(houses, box_of):
    box = box_of(instance_type="lite")
    await box.text(FILL)
    await box.text("echo mine > file")
    await box.manager.settled("one")
    begun = [await box.begin(f"echo up; sleep 10{n}") for n in range(3)]
    for _, sink in begun:
        await sink.until(b"up")
    first = (await box.inspect())["State"]["StartedAt"]
    limit = int(await box.text(USED)) + 4 * MIB
    for _ in range(TRIES):  # until there is nothing left to kill for it but the runner
        if box.manager.get("one").status != "running":
            break
        limit = await squeeze(box, limit)
        with suppress(SandboxUnavailable):
            await asyncio.wait_for(box.run("head -c 1M /dev/zero | tail -c 1M | wc -c"), 20)
    else:
        raise AssertionError("the runner lives on")
    ends = [await asyncio.wait_for(process.wait(), 6) for process, _ in begun]
    assert {end.reason for end in ends} <= {"out_of_memory", "sandbox_terminated"}
    for end in ends:
        assert "memory" in end.message
    assert await asyncio.wait_for(box.text("cat file"), 20) == "mine\n"
    assert (await box.inspect())["State"]["StartedAt"] != first
    await box.manager.settled("one")
    assert (await box.inspect())["HostConfig"]["Memory"] == 256 * MIB
