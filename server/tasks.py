"""Background work of rooms and execs: in one task group, a failure of one kept from the rest."""

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

from server import logs

log = logs.get("tasks")


class GuardedTasks:
    """Tasks whose unexpected errors are logged with an incident id instead of ending the server."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._live: set[asyncio.Task[None]] = set()

    def create_task(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(self._guarded(coro))
        self._live.add(task)
        task.add_done_callback(self._live.discard)
        return task

    @staticmethod
    async def _guarded(coro: Coroutine[Any, Any, None]) -> None:
        try:
            await coro
        except Exception:
            log.exception("background work failed", incident=secrets.token_hex(4))

    async def settle(self, timeout_s: float) -> None:
        """Let what runs come to its end, then cancel what is left."""
        if self._live:
            await asyncio.wait(set(self._live), timeout=timeout_s)
        for task in set(self._live):
            task.cancel()
