"""Many clients at once: they vanish without a word, or stop reading, and nobody else suffers."""

import asyncio
import json
import time

from tests.integration.server.harness import JSON, UPGRADE, WAIT_S, head

CROWD = 10_000
ROOMS = 250


def frame(**fields: object) -> bytes:
    """A masked text frame (the mask is zero) of at most 64 KiB."""
    data = json.dumps(fields).encode()
    size = bytes((0x80 | len(data),)) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + data


async def appear(server, room):
    """A bare session in a room, without a task of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head(server, "GET /ws", *UPGRADE))
    await reader.readuntil(b"\r\n\r\n")
    writer.write(frame(type="hello", name="Ghost", ref="h"))
    writer.write(frame(type="join", room=room, ref="j"))
    await reader.readuntil(b'"joined"')
    return writer


async def test_a_crowd_that_vanishes_at_once_leaves_no_noise(server) -> None:
    rooms = [await server.new_room() for _ in range(ROOMS)]
    gate = asyncio.Semaphore(100)

    async def one(number):
        async with gate:
            return await appear(server, rooms[number % ROOMS])

    async with server.client(JSON, "Watcher") as watcher:
        await watcher.join(rooms[0])
        before = server.log()
        async with asyncio.timeout(120):
            ghosts = await asyncio.gather(*map(one, range(CROWD)))
        joined = await watcher.join(rooms[0])
        assert len(joined["participants"]) == CROWD // ROOMS + 1
        for ghost in ghosts:
            ghost.transport.abort()
        begin = time.monotonic()
        await watcher.until(lambda _: len(watcher.of("participant.left")) == CROWD // ROOMS)
        assert time.monotonic() - begin < WAIT_S
        await watcher.ok("say", room=rooms[0], text="all gone")
        again = await watcher.join(rooms[0])
        assert len(again["participants"]) == 1
    noise = server.log()[len(before) :]
    assert "Traceback" not in noise
    assert len(noise.splitlines()) < 10, noise[:2000]


async def test_handshakes_that_vanish_leave_no_noise(server) -> None:
    before = server.log()

    async def one(data):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        writer.transport.abort()

    whole = head(server, "GET /ws", *UPGRADE)
    for data in (b"", whole[:50], whole, whole + b"\x81", head(server, "GET /")):
        await asyncio.gather(*(one(data) for _ in range(100)))
    assert (await server.http("GET", "/health"))[0] == 200
    assert server.log()[len(before) :] == ""


async def test_a_client_that_stops_reading_slows_nobody(start, codec) -> None:
    """It loses output first, is closed with 4001 then, and the other has had everything."""
    server = start(DUET_OUTBOX_DROP_BYTES="65536", DUET_OUTBOX_CLOSE_BYTES="262144")
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada, server.client(JSON, "Slow") as slow:
        await ada.join(room)
        await slow.join(room)
        slow.socket.transport.pause_reading()
        text = "x" * 10_000
        last = 0
        for _ in range(2_000):
            began = time.monotonic()
            ack = await ada.ok("say", room=room, text=text)
            assert time.monotonic() - began < 5
            last = ack["offset"]
            if ada.of("participant.left"):
                break
        await ada.until("participant.left")
        await ada.event(last, room)
        slow.socket.transport.resume_reading()
        assert await slow.until_closed() in (4001, 1006)
    assert "Traceback" not in server.log()


async def test_output_is_dropped_for_the_slow_and_can_be_read_again(start, codec) -> None:
    server = start(DUET_OUTBOX_DROP_BYTES="65536")
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada, server.client(JSON, "Slow") as slow:
        await ada.join(room)
        await slow.join(room)
        assert (await ada.exited(await ada.run(room, "true")))["ok"]
        slow.socket.transport.pause_reading()
        size = 3_000_000
        flood = await ada.run(room, f"head -c {size} /dev/zero | tr '\\0' x")
        end = await ada.exited(flood)
        assert end["bytes"]["stdout"] == size
        cut = sum(f["to"] - f["from"] for f in ada.of("exec.gap", exec=flood))
        assert len(ada.output(flood)) + cut == size
        # The kernel's own buffers may hold all of one flood; more of them cannot fit.
        for _ in range(3):
            await ada.exited(await ada.run(room, f"head -c {size} /dev/zero | tr '\\0' x"))
        slow.socket.transport.resume_reading()
        runs = {frame["exec"] for frame in ada.of("exec.started")}
        for run in runs:
            await slow.exited(run)
        gaps = slow.of("exec.gap")
        assert gaps
        for run in runs:
            seen = sum(f["size"] for f in slow.of("exec.output", exec=run))
            missed = sum(f["to"] - f["from"] for f in slow.of("exec.gap", exec=run))
            assert seen + missed == slow.of("exec.exited", exec=run)[0]["bytes"].get("stdout", 0)
        gap = gaps[0]
        limit = min(1000, gap["to"] - gap["from"])
        begin = len(slow.frames)
        read = await slow.ok("exec.read", exec=gap["exec"], at=gap["from"], limit=limit)
        answers = [f for f in slow.frames[begin:] if f.get("ref") == read["ref"]]
        assert answers[0]["type"] in ("exec.output", "exec.gap")
