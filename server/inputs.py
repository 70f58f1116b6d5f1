"""What people type into a command: queued in order with a bound, so that nobody's session waits."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from protocol.errors import DuetError, RateLimited
from sandbox.errors import SandboxError
from sandbox.process import Process

QUEUE_BYTES = 1024 * 1024
"""Input that a command has not read yet; beyond it who types is asked to wait."""


class InputQueue:
    """One command's input. `running` gives its process once there is one, or raises."""

    def __init__(self, running: Callable[[], Awaitable[Process]]) -> None:
        self._running = running
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, data: bytes, *, eof: bool) -> None:
        """Queue input. Raises RateLimited where the command does not read what it was given."""
        if self._size + len(data) > QUEUE_BYTES:
            message = "The command does not read its input; wait until it does, or stop it."
            raise RateLimited(message, retry_after_ms=500)
        self._waiting.append((data, eof))
        self._size += len(data)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._feed())

    async def _feed(self) -> None:
        with suppress(DuetError, SandboxError):  # it has ended, and its end is told elsewhere
            process = await self._running()
            while self._waiting:
                data, eof = self._waiting.popleft()
                await process.write(data, eof=eof)
                self._size -= len(data)

    def close(self) -> None:
        """The command has ended: what it did not read is for nobody."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
