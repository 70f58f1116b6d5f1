"""What a fork bomb in one room costs the commands of another: beside it, and without it."""

import asyncio
import statistics
from dataclasses import dataclass

from tests.bench.harness import Client, Row, duet

ROUNDS = 5
WARM_RUNS = 30
LOOP_RUNS = 4
SPREAD_S = 1.5  # until it has all the processes it may have
# A shell's own bomb waits when a fork is refused; this one never does.
BOMB = "exec python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n'"
LOOP = "python3 -c 'x = 0\nfor i in range(2_500_000): x += i\n'"  # 0.2 s of a CPU
BOMBED = ("lite", "standard-2")


@dataclass
class Times:
    """Of one room's commands, in ms."""

    warm: list[float]
    loop: list[float]

    async def measure(self, client: Client) -> None:
        self.warm += [await client.run("calm", "true") * 1e3 for _ in range(WARM_RUNS)]
        self.loop += [await client.run("calm", LOOP) * 1e3 for _ in range(LOOP_RUNS)]


async def fork_bomb() -> list[Row]:
    with duet(room_instance_type="standard-1") as server:
        server.http("POST", "/api/rooms", {"id": "calm"})
        client = await Client.open(server.port, "calm")
        await client.run("calm", "true")
        await asyncio.sleep(3)  # limits are set, and the pool is full again
        rows = []
        for kind in BOMBED:
            rows += await _beside(server.port, client, kind, server.http)
        client.close()
    return rows


async def _beside(port: int, client: Client, kind: str, http) -> list[Row]:
    room = f"bomb-{kind}"
    http("POST", "/api/rooms", {"id": room})
    bomber = await Client.open(port, room)
    bomber.send(type="sandbox.start", id=f"sandbox-{room}", instanceType=kind)
    await bomber.until(b'"status":"running"')
    without, beside = Times([], []), Times([], [])
    for _ in range(ROUNDS):
        await without.measure(client)
        bomber.send(type="exec", room=room, command=BOMB)
        await bomber.until(b'"type":"exec.started"')
        await bomber.until(b'"exec":"')
        exec_id = await bomber.word(b'"')
        await asyncio.sleep(SPREAD_S)
        await beside.measure(client)
        bomber.send(type="exec.cancel", exec=exec_id)
        await bomber.until(b'"type":"exec.exited"')
    bomber.close()
    return [
        _row(f"command `true` beside a fork bomb in {kind}: p50", beside.warm, without.warm),
        _row(f"0.2 s of CPU beside a fork bomb in {kind}: p50", beside.loop, without.loop),
    ]


def _row(name: str, beside: list[float], without: list[float]) -> Row:
    ours, usual = statistics.median(beside), statistics.median(without)
    p90 = sorted(beside)[int(len(beside) * 0.9)]
    note = f"p90 {p90:.1f} ms, on standard-1"
    ratio = ours / usual
    return Row(name, ours, "ms", "without it", usual, ratio, "<= 2 times", ratio <= 2, note)
