"""An exec's log on a real Valkey: the same contract as in memory."""

import asyncio

from hypothesis import HealthCheck, given, settings

from server.execlog import STORE_BYTES, ExecLog
from server.order import Order
from server.output import Kept
from tests.unit.server.streams import STEPS, check_stream


async def test_what_is_read_is_what_was_printed_or_a_hole(node) -> None:
    store = node.store()
    loop = asyncio.get_running_loop()

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def every(steps):
        async def one():
            await store.call("FLUSHDB")
            await check_stream(store, steps)

        asyncio.run_coroutine_threadsafe(one(), loop).result(timeout=30)

    await asyncio.to_thread(every)


async def test_bytes_of_any_kind_and_size_come_back(store) -> None:
    log = ExecLog(store, head_bytes=2**18, tail_bytes=3 * 2**18, kept_s=60)
    writer, kept = log.writer("blue", "x", "pty"), Kept(2**18, 3 * 2**18)
    data = bytes(range(256)) * 4096
    for at in range(0, len(data), STORE_BYTES):
        kept.add(at, data[at : at + STORE_BYTES])
        await log.store(writer.commands(kept))
    pieces = await log.read("blue", "x", "pty", (0, len(data)))
    assert b"".join(piece.data for piece in pieces) == data
    await log.store_ends("blue", "x", {"pty": len(data)}, Order())
    assert (await log.ends("blue", "x"))[0] == {"pty": len(data)}


async def test_everything_has_an_end(store) -> None:
    log = ExecLog(store, head_bytes=4, tail_bytes=4, kept_s=60)
    writer, kept = log.writer("blue", "x", "stdout"), Kept(4, 4)
    kept.add(0, b"x" * 20)
    await log.store(writer.commands(kept))
    await log.store_ends("blue", "x", {"stdout": 20}, Order())
    keys = await store.call("KEYS", "*")
    assert len(keys) == 3
    for key in keys:
        assert 50 < await store.call("TTL", key) <= 60
