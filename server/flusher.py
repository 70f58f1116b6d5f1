"""Writes what waits for sessions once per turn of the loop: one callback for all of them.

A callback of its own for each session costs as much as the session's share of the write.
"""

import asyncio
from typing import Protocol


class Flushable(Protocol):
    def flush(self) -> None: ...


class Flusher:
    """Sessions that have something to send, until the end of this turn."""

    def __init__(self) -> None:
        self._waiting: list[Flushable] = []

    def add(self, session: Flushable) -> None:
        """Flush it at the end of this turn. The caller adds itself once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(session)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for session in waiting:
            session.flush()
