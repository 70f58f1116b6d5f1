"""The client's queue: bounded in bytes, oldest out first, closed once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client_queue import ByteQueue, QueueEnd


async def drained(queue):
    items = []
    queue.close()
    while True:
        try:
            items.append(await queue.get())
        except QueueEnd:
            return items


@given(st.lists(st.integers(0, 20)), st.integers(1, 40))
def test_it_never_holds_more_than_its_bytes_but_for_one_item(sizes, limit) -> None:
    queue = ByteQueue(limit)
    for number, size in enumerate(sizes):
        queue.put(number, size)
        assert queue.bytes <= limit or queue.bytes == size
    kept = asyncio.run(drained(queue))
    assert queue.bytes == 0
    assert queue.dropped == len(sizes) - len(kept)
    assert kept == list(range(len(sizes)))[len(sizes) - len(kept) :], "the newest, in order"


async def test_what_is_left_comes_before_the_error() -> None:
    queue = ByteQueue(10)
    queue.put("a", 1)
    queue.close(ValueError("gone"))
    queue.put("late", 1)
    queue.close(KeyError("a second reason"))
    assert await queue.get() == "a"
    for _ in range(2):
        with pytest.raises(ValueError, match="gone"):
            await queue.get()


async def test_a_waiting_get_is_woken_and_cancelling_it_loses_nothing() -> None:
    queue = ByteQueue(10)
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    waiting.cancel()
    queue.put("a", 1)
    queue.put("b", 1)
    assert await queue.get() == "a"
    assert await queue.get() == "b"
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.put("c", 1)
    assert await waiting == "c"
