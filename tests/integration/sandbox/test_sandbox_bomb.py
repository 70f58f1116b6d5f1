"""Fork bombs: what they cost others, and that a sandbox in debt for CPU is answered for and ended.

A kernel lets a bomb overrun its quota inside system calls, and then lets nothing of its group run,
the runner included, until the debt is paid: on a sixteenth of a CPU that takes minutes.
"""

import asyncio

import pytest

from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box

# A shell's own bomb waits when a fork is refused; this one never does. It is nobody's: its command
# ends at once.
BOMB = "python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n' & exit 0"
SPREAD_S = 4.0
SOON_S = 12.0


@pytest.fixture
async def bombed(box_of):
    box = box_of(instance_type="lite")
    await box.text("echo mine > file")
    await box.manager.settled("one")
    await box.text(BOMB)
    await asyncio.sleep(SPREAD_S)
    return box


async def test_the_next_command_is_answered(bombed):
    result, _ = await asyncio.wait_for(bombed.run("echo next"), SOON_S)
    # It runs, or it is told that the sandbox does not answer, or was ended for that beside it.
    assert result.reason in (None, "sandbox_unavailable", "sandbox_terminated"), result
    assert result.ok or result.message


async def test_it_is_saved_and_stopped_and_works_again(bombed):
    record = await asyncio.wait_for(bombed.manager.kill("one"), SOON_S)
    assert (record.status, record.workspace_saved) == ("stopped", True)
    assert await bombed.text("cat file; ps -e --no-headers | wc -l") == "mine\n4\n"


async def test_it_is_destroyed(bombed):
    await asyncio.wait_for(bombed.manager.destroy("one"), SOON_S)
    assert await bombed.inspect() is None


async def test_a_later_server_ends_or_meets_it(houses, bombed):
    await bombed.manager.close()
    later = await asyncio.wait_for(houses.manager(), SOON_S * 2)
    result, _ = await asyncio.wait_for(Box(later, bombed.spec).run("echo next"), SOON_S * 2)
    # It runs, or it is told that the sandbox does not answer, or was ended for that beside it.
    assert result.reason in (None, "sandbox_unavailable", "sandbox_terminated"), result
    assert result.ok or result.message
    await asyncio.wait_for(later.kill("one"), SOON_S)
    assert later.get("one").workspace_saved


@pytest.mark.parametrize("kind", ["lite", "standard-3"])
async def test_another_room_s_commands_all_succeed(bombed, kind):
    other = Box(bombed.manager, SandboxSpec("other", instance_type="standard-1"))
    worse = Box(bombed.manager, SandboxSpec("worse", instance_type=kind))
    await worse.text(BOMB)
    for number in range(20):
        assert await asyncio.wait_for(other.text(f"echo {number}"), SOON_S) == f"{number}\n"
    for box, nano_cpus in ((other, 10**9 // 2), (bombed, 10**9 // 16)):
        await box.manager.settled(box.spec.id)
        limits = (await box.inspect())["HostConfig"]
        assert limits["PidsLimit"] == 1024
        assert limits["NanoCpus"] == nano_cpus
        assert limits["CpuShares"] == 0  # the engine's default: all weigh the same
