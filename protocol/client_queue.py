"""A queue bounded in bytes, between the client's reader and the code that consumes events.

It never makes the reader wait: what does not fit pushes the oldest out, and is counted.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class QueueEnd(Exception):
    """The queue was closed without an error and everything in it has been taken."""


class ByteQueue(Generic[Item]):
    """First in, first out, for one consumer at a time.

    `max_bytes` is required: it is what an application that does not read costs, per queue. One
    item alone may exceed it, so that the newest is never lost.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: deque[tuple[Item, int]] = deque()
        self._ready = asyncio.Event()
        self._closed: Exception | None = None
        self.bytes = 0
        self.dropped = 0
        """Items pushed out by newer ones since the beginning."""

    def put(self, item: Item, size: int) -> None:
        """Append; `size` is the item's cost in bytes. Ignored once closed."""
        if self._closed is not None:
            return
        self._items.append((item, size))
        self.bytes += size
        while self.bytes > self._max_bytes and len(self._items) > 1:
            self.bytes -= self._items.popleft()[1]
            self.dropped += 1
        self._ready.set()

    def close(self, error: Exception | None = None) -> None:
        """No more items: what is left can be taken, then `get` raises `error` or QueueEnd."""
        if self._closed is None:
            self._closed = error or QueueEnd()
            self._ready.set()

    async def get(self) -> Item:
        """The oldest item; waits for one. Cancelling loses nothing."""
        while not self._items:
            if self._closed is not None:
                raise self._closed
            self._ready.clear()
            await self._ready.wait()
        item, size = self._items.popleft()
        self.bytes -= size
        return item
