"""Commands: a warm one, the first in a room, a flood through the link, a viewer that stops reading."""

import asyncio
import statistics
import subprocess
import time

from sandbox.containers import image_tag
from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import ExecSpec, SandboxSpec
from tests.bench.harness import Client, Process, Row, container_of, duet, timed

WARM_RUNS = 200
DOCKER_RUNS = 15
FIRST_RUNS = 9
FLOOD_BYTES = 200_000_000
YES_S = 6.0
MIB = 1024 * 1024


async def warm(server: Process) -> list[Row]:
    rows = []
    for kind, targeted in (("standard-2", True), ("lite", False)):
        if targeted:
            rows += await _warm(server, kind, targeted=True)
        else:
            with duet(room_instance_type=kind) as other:
                rows += await _warm(other, kind, targeted=False)
    return rows


async def _warm(server: Process, kind: str, *, targeted: bool) -> list[Row]:
    room = f"warm-{kind}"
    server.http("POST", "/api/rooms", {"id": room})
    client = await Client.open(server.port, room)
    for _ in range(10):
        await client.run(room, "true")
    cpu = server.cpu_us(with_children=True)
    times = [await client.run(room, "true") for _ in range(WARM_RUNS)]
    cpu = (server.cpu_us(with_children=True) - cpu) / WARM_RUNS
    container = container_of(room)
    docker = [timed(["docker", "exec", container, "true"]) for _ in range(DOCKER_RUNS)]
    client.close()
    ours, theirs = statistics.median(times) * 1e3, statistics.median(docker) * 1e3
    p99 = sorted(times)[int(len(times) * 0.99)] * 1e3
    name = f"command `true`, warm, {kind}: p50"
    note = f"p99 {p99:.1f} ms, server CPU {cpu / 1e3:.2f} ms each"
    if not targeted:
        return [Row(name, ours, "ms", "docker exec", theirs, theirs / ours, note=note)]
    met = ours <= 5 and theirs / ours >= 10
    target = "<= 5 ms and >= 10 times faster"
    return [Row(name, ours, "ms", "docker exec", theirs, theirs / ours, target, met, note)]


async def first(server: Process) -> Row:
    """The first command in a new room, alternating with `docker run` of the same image."""
    ours, theirs = [], []
    for index in range(FIRST_RUNS):
        room = f"first-{index}"
        server.http("POST", "/api/rooms", {"id": room})
        client = await Client.open(server.port, room)
        ours.append(await client.run(room, "true"))
        client.close()
        name = f"duet-bench-{index}"
        theirs.append(timed(["docker", "run", "--name", name, image_tag("workspace"), "true"]))
        subprocess.run(["docker", "rm", "-f", name], stdout=subprocess.DEVNULL, check=True)
        server.http("DELETE", f"/api/rooms/{room}")
    mine, docker = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
    return Row(
        "first command in a new room: p50",
        mine,
        "ms",
        "docker run",
        docker,
        mine / docker,
        "<= 1.3 times",
        mine / docker <= 1.3,
    )


class _Sink:
    """Takes everything and asks for more, as a server without viewers does."""

    def __init__(self) -> None:
        self.process = None
        self.count = 0

    def output(self, stream: str, at: int, data: bytes) -> None:
        self.count += len(data)
        if self.process is not None:
            self.process.grant(stream, at + len(data) + 256 * 1024)
            self.process.ack(stream, at + len(data))


async def flood() -> Row:
    """200 MB of zeros through runner and link, against `docker exec` into a pipe."""
    manager = Manager(ManagerConfig(owner="bench"), on_change=lambda _: None)
    await manager.open()
    sandbox = SandboxSpec("bench-flood", instance_type="standard-3")
    command = f"head -c {FLOOD_BYTES} /dev/zero"
    try:
        rates, cpus = [], []
        for index in range(4):
            sink = _Sink()
            spec = ExecSpec(exec=f"flood{index}", command=command)
            began, cpu = time.perf_counter(), time.process_time()
            sink.process = await manager.execute(sandbox, spec, sink)
            for stream in ("stdout",):
                sink.process.grant(stream, sink.count + 256 * 1024)
            result = await sink.process.wait()
            if not result.ok or sink.count != FLOOD_BYTES:
                raise RuntimeError(f"{result} after {sink.count} bytes")
            rates.append(FLOOD_BYTES / (time.perf_counter() - began) / 1e6)
            cpus.append(time.process_time() - cpu)
        container = _container("bench-flood")
        docker = [
            FLOOD_BYTES / timed(["sh", "-c", f"docker exec {container} {command} | cat"]) / 1e6
            for _ in range(3)
        ]
    finally:
        await manager.destroy(sandbox.id)
        await manager.close()
    ours, theirs = statistics.median(rates[1:]), statistics.median(docker)
    note = f"our CPU {statistics.median(cpus[1:]) * 1e3 / (FLOOD_BYTES / 1e6):.1f} ms per MB"
    return Row(
        "output through runner and link",
        ours,
        "MB/s",
        "docker exec | cat",
        theirs,
        ours / theirs,
        ">= 100 MB/s",
        ours >= 100,
        note,
    )


def _container(sandbox: str) -> str:
    return subprocess.run(
        ["docker", "ps", "-q", "--filter", f"label=duet.sandbox={sandbox}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[0]


async def frozen_viewer() -> list[Row]:
    """`yes` runs, one viewer stops reading: memory stays bounded, another viewer keeps up."""
    drop, close = 1 * MIB, 8 * MIB
    with duet(exec_output_limit_bytes=str(1 << 40)) as server:
        server.http("POST", "/api/rooms", {"id": "yes"})
        frozen = await Client.open(server.port, "yes")
        viewer = await Client.open(server.port, "yes")
        await viewer.run("yes", "true")
        frozen.writer.transport.pause_reading()
        before, cpu = server.memory_bytes(), server.cpu_us()
        viewer.send(type="exec", room="yes", command="yes", ref="yes")
        lags, peak = [], before
        began = time.perf_counter()
        while time.perf_counter() - began < YES_S:
            sent = time.perf_counter()
            viewer.send(type="say", room="yes", text=f"mark {len(lags)}.")
            await viewer.until(f"mark {len(lags)}.".encode())
            lags.append((time.perf_counter() - sent) * 1e3)
            peak = max(peak, server.memory_bytes())
            await asyncio.sleep(0.01)
        cpu = (server.cpu_us() - cpu) / 1e6 / (time.perf_counter() - began)
        viewer.close()
        frozen.close()
    grown = (peak - before) / MIB
    p99 = sorted(lags)[int(len(lags) * 0.99)]
    # Kept head and tail, what is on its way to Redis, and what one slow session may hold.
    bound = (1 * MIB + 512 * 1024 + close + drop) / MIB
    note = f"bound {bound:.1f} MiB and the allocator's slack; server CPU {cpu:.0%}"
    return [
        Row(
            "`yes`, one viewer frozen: memory grown",
            grown,
            "MiB",
            target="<= 64 MiB",
            met=grown <= 64,
            note=note,
        ),
        Row(
            "`yes`, one viewer frozen: chat of another, p99",
            p99,
            "ms",
            target="<= 50 ms",
            met=p99 <= 50,
            note=f"p50 {statistics.median(lags):.1f} ms, {len(lags)} messages",
        ),
    ]
