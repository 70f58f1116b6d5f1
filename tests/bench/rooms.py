"""Rooms: what a delivery costs in CPU, and what an idle member costs in memory."""

import asyncio

from tests.bench.harness import Client, Process, Row, duet, members, script

MEMBERS = 100
MESSAGES = 1500
TEXT = "x" * 200
IDLE_MEMBERS = 1000

# The least a Python server can do: read a message, send it to everyone, one write each.
REFERENCE = """
import asyncio, uvloop
from websockets.asyncio.server import broadcast, serve
everyone = set()
async def handler(connection):
    everyone.add(connection)
    async for message in connection:
        broadcast(everyone, message)
async def main():
    async with serve(handler, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        print(f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await asyncio.Event().wait()
uvloop.run(main())
"""


async def fan_out(server: Process) -> Row:
    server.http("POST", "/api/rooms", {"id": "fan"})
    ours, valkey = await _deliveries(server, "fan", {"type": "say", "room": "fan", "text": TEXT})
    with script(REFERENCE) as bare:
        theirs, _ = await _deliveries(bare, None, {"text": TEXT})
    return Row(
        f"CPU per delivery, {MEMBERS} members",
        ours,
        "µs",
        "websockets' broadcast alone",
        theirs,
        ours / theirs,
        "<= 12 µs",
        ours <= 12,
        f"Valkey's own {valkey:.2f} µs more",
    )


async def _deliveries(server: Process, room: str | None, say: dict) -> tuple[float, float]:
    """Server CPU and its children's CPU in µs per delivery, one message at a time."""
    async with members(server.port, room, MEMBERS) as clients:
        await _say(clients, say, 100)
        own, everything = server.cpu_us(), server.cpu_us(with_children=True)
        await _say(clients, say, MESSAGES)
        own, everything = server.cpu_us() - own, server.cpu_us(with_children=True) - everything
    count = MESSAGES * MEMBERS
    return own / count, (everything - own) / count


async def _say(clients: list[Client], say: dict, count: int) -> None:
    for _ in range(count):
        clients[0].send(**say)
        await asyncio.gather(*(client.until(TEXT.encode()) for client in clients))


async def idle_members() -> Row:
    with duet() as server:
        server.http("POST", "/api/rooms", {"id": "idle"})
        async with members(server.port, "idle", 50):
            await asyncio.sleep(0.5)
            before = server.memory_bytes()
            async with members(server.port, "idle", IDLE_MEMBERS):
                await asyncio.sleep(1.0)
                each = (server.memory_bytes() - before) / IDLE_MEMBERS / 1024
    return Row("memory per idle member", each, "KiB", target="<= 24 KiB", met=each <= 24)
