"""Commands outlive the server that began them: it is killed or stops, and a later one goes on."""

import asyncio
import sys
import time

import pytest

from sandbox.errors import Detached
from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box, Sink
from tests.integration.sandbox.keeper import Store, follow

SPEC = SandboxSpec("kept", instance_type="standard-2")
NUMBERS = "for i in $(seq 1 300); do seq $((i*1000)) $((i*1000+999)); sleep 0.01; done; exit 5"
WANTED = "".join(f"{n}\n" for n in range(1000, 301_000)).encode()


@pytest.fixture
async def keeper(houses, tmp_path):
    """Starts a server in small with these commands; it is killed at the latest at the end."""
    started = []

    async def start(*commands):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.sandbox.keeper", houses.owner, tmp_path,
            *commands, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        assert await asyncio.wait_for(process.stdout.readline(), 20) == b"up\n"
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not houses.managers:
        await houses.manager()


async def kill(process):
    process.kill()
    await process.wait()


async def size_of(path, least):
    async with asyncio.timeout(20):
        while not path.exists() or path.stat().st_size < least:  # noqa: ASYNC110 - a file says nothing
            await asyncio.sleep(0.01)


async def go_on(manager, folder, name, *, confirm=True):
    """Adopt as a server does; what is stored in the end, and how it ended."""
    store = Store(folder, name)
    process = await manager.adopt("kept", name, store, store.have())
    await asyncio.wait_for(follow(store, process, confirm=confirm), 25)
    return (folder / f"{name}.stdout").read_bytes(), (folder / f"{name}.end").read_text()


async def test_killed_again_and_again_no_byte_is_missing_or_doubled(houses, keeper, tmp_path):
    first = await keeper(NUMBERS)
    await size_of(tmp_path / "k0.stdout", 100_000)
    await kill(first)
    for _ in range(3):
        manager = await houses.manager()
        assert manager.get("kept").status == "running"
        store = Store(tmp_path, "k0")
        process = await manager.adopt("kept", "k0", store, store.have())
        task = asyncio.create_task(follow(store, process, confirm=True))
        await size_of(tmp_path / "k0.stdout", sum(store.have().values()) + 100_000)
        await manager.close()
        with pytest.raises(Detached):
            await task
    out, end = await go_on(await houses.manager(), tmp_path, "k0")
    assert out == WANTED
    assert end == "command_failed 5\n"
    later = await houses.manager()
    assert await later.adopt("kept", "k0", Sink(), {}) is None  # it was confirmed


async def test_a_flood_is_not_torn_either(houses, keeper, tmp_path):
    """Far more than is kept, faster than it is taken: the command waits meanwhile."""
    first = await keeper("seq 1 3000000")
    await size_of(tmp_path / "k0.stdout", 1_000_000)
    await kill(first)
    await asyncio.sleep(0.3)  # nobody is there to take anything
    out, end = await go_on(await houses.manager(), tmp_path, "k0")
    assert out == "".join(f"{n}\n" for n in range(1, 3_000_001)).encode()
    assert end == "None 0\n"


async def test_an_end_that_nobody_saw_is_told_with_its_output(houses, keeper, tmp_path):
    first = await keeper("echo one; sleep 0.6; echo two; exit 7", "sleep 0.3", "kill -9 $$")
    await size_of(tmp_path / "k0.stdout", 4)
    await kill(first)
    await asyncio.sleep(1)  # they end meanwhile
    manager = await houses.manager()
    assert await go_on(manager, tmp_path, "k0", confirm=False) == (
        b"one\ntwo\n", "command_failed 7\n"
    )  # fmt: skip
    process = await manager.adopt("kept", "k1", Sink(), {})
    assert (await asyncio.wait_for(process.wait(), 5)).ok
    # An end that was told and not confirmed is told again to the next: it may not be stored.
    await manager.close()
    again = await houses.manager()
    process = await again.adopt("kept", "k0", sink := Sink(have={"stdout": 8}), {"stdout": 8})
    result = await asyncio.wait_for(process.wait(), 5)
    assert (result.exit_code, result.bytes["stdout"], sink.stdout) == (7, 8, b"")


async def test_an_adopted_one_is_as_any_other(houses, keeper, tmp_path):
    first = await keeper("cat", "sleep 100", "trap '' TERM; sleep 100 & wait; sleep 100", "sleep 9")
    await kill(first)
    manager = await houses.manager()
    box = Box(manager, SPEC)
    begun = {}
    for name in ("k1", "k2", "k3"):
        begun[name] = await manager.adopt("kept", name, Sink(), {})
    await begun["k1"].signal("INT")
    result = await asyncio.wait_for(begun["k1"].wait(), 5)
    assert (result.reason, result.signal) == ("command_failed", "INT")
    await begun["k2"].cancel()
    assert (await asyncio.wait_for(begun["k2"].wait(), 5)).reason == "cancelled"
    assert await manager.adopt("kept", "k3", Sink(), {}) is begun["k3"]
    assert await box.text("pgrep -c sleep") == "1\n"
    await manager.kill("kept")
    result = await asyncio.wait_for(begun["k3"].wait(), 5)
    assert result.reason == "sandbox_terminated"
    assert result.duration_ms > 0


async def test_deadlines_and_limits_are_kept_while_nobody_is_there(houses, box_of):
    box = box_of()
    late, _ = await box.begin("sleep 100", timeout_ms=700)
    loud, sink = await box.begin("yes", output_limit_bytes=100_000)
    await sink.beyond("stdout", 90_000)
    await box.manager.close()
    with pytest.raises(Detached):
        await late.wait()
    await asyncio.sleep(1)
    manager = await houses.manager()
    again = await manager.adopt("one", late.exec, Sink(), {})
    result = await asyncio.wait_for(again.wait(), 5)
    assert (result.reason, result.message) == (
        "timeout",
        "It ran longer than 700 ms and was stopped.",
    )
    assert 700 <= result.duration_ms < 1500
    again = await manager.adopt("one", loud.exec, Sink(have=sink.size), sink.size)
    result = await asyncio.wait_for(again.wait(), 5)
    assert (result.reason, result.bytes["stdout"]) == ("output_limit", 100_000)
    assert await Box(manager, box.spec).text("pgrep -c yes || true") == "0\n"


async def test_what_is_not_known_is_none(houses, box_of):
    box = box_of()
    await box.text("true")
    await box.manager.close()
    manager = await houses.manager()
    assert await manager.adopt("one", "never-was", Sink(), {}) is None
    assert await manager.adopt("nobody", "e1", Sink(), {}) is None
    await manager.kill("one")
    assert await manager.adopt("one", "e1", Sink(), {}) is None


async def test_several_are_met_at_once_and_stopped_ones_are_left_alone(houses, box_of):
    boxes = [box_of(f"n{n}") for n in range(4)]
    begun = [(await box.begin("sleep 0.5; echo late"))[0] for box in boxes]
    await boxes[3].manager.kill("n3")
    await boxes[0].manager.close()
    began = time.monotonic()
    manager = await houses.manager()
    assert time.monotonic() - began < 5
    states = {record.id: record.status for record in manager.list()}
    assert states == {"n0": "running", "n1": "running", "n2": "running", "n3": "stopped"}
    for box, process in zip(boxes[:3], begun[:3], strict=True):
        again = await manager.adopt(box.spec.id, process.exec, sink := Sink(), {})
        assert (await asyncio.wait_for(again.wait(), 5)).ok
        assert sink.stdout == b"late\n"


async def test_a_paused_one_goes_on(houses, box_of):
    box = box_of()
    process, sink = await box.begin("echo up; sleep 0.3; echo on")
    await sink.until(b"up")
    await box.manager.close()
    await box.docker("pause")
    manager = await houses.manager()
    again = await manager.adopt("one", process.exec, sink := Sink(), {})
    assert (await asyncio.wait_for(again.wait(), 5)).ok
    assert sink.stdout == b"up\non\n"


@pytest.mark.parametrize("how", ["kill", "stop", "dead-runner"])
async def test_one_that_ended_or_does_not_answer_is_stopped_with_its_files(houses, box_of, how):
    box = box_of()
    await box.text("echo mine > file")
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    await box.manager.close()
    if how == "dead-runner":
        await signal_runner(box, "STOP")
    else:
        await box.docker(*{"kill": ("kill",), "stop": ("stop", "-t", "5")}[how])
    manager = await houses.manager()
    assert manager.get("one").status == "stopped"
    assert manager.get("one").workspace_saved
    assert await manager.adopt("one", process.exec, Sink(), {}) is None
    assert await Box(manager, box.spec).text("cat file; pgrep -c sleep || true") == "mine\n0\n"


async def signal_runner(box, name):
    found = await box.inspect()
    killer = await asyncio.create_subprocess_exec("kill", f"-{name}", str(found["State"]["Pid"]))
    assert await killer.wait() == 0


async def test_limits_are_the_type_s_after_it(houses, box_of):
    box = box_of(instance_type="basic")
    await box.begin("sleep 100")  # closed before the start's limits were lowered
    await box.manager.close()
    manager = await houses.manager()
    await manager.settled("one")
    found = await box.inspect()
    assert found["HostConfig"]["NanoCpus"] == 10**9 // 4
