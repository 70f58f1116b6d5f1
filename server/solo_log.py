"""What is kept in Redis of commands without a room: that one runs, and how it ended.

Their output is `execlog`'s. Every method may raise Unavailable.
"""

import json
from collections.abc import Mapping
from typing import Any

from server.store import Store


class SoloLog:
    """Of one server, which goes on with what it finds running after a restart."""

    def __init__(self, store: Store, server: str, kept_s: int) -> None:
        self._store = store
        self._running = f"duet:solo:running:{server}"
        self._kept_s = kept_s

    async def begin(self, exec_id: str, started: Mapping[str, Any]) -> None:
        """It is about to run; `started` is what a later life has to know of it."""
        await self._store.call("HSET", self._running, exec_id, json.dumps(started))

    async def drop(self, exec_id: str) -> None:
        """It did not run, or its end was kept before."""
        await self._store.call("HDEL", self._running, exec_id)

    async def end(self, exec_id: str, exited: Mapping[str, Any]) -> None:
        """Its one end, kept as long as its output. Safe to repeat."""
        kept = ("SET", _key(exec_id), json.dumps(exited), "EX", self._kept_s)
        await self._store.pipeline([kept, ("HDEL", self._running, exec_id)])

    async def exited(self, exec_id: str) -> dict[str, Any] | None:
        """How it ended; None for one that runs, or is not known (any more)."""
        found = await self._store.call("GET", _key(exec_id))
        return None if found is None else dict(json.loads(found))

    async def running(self) -> dict[str, dict[str, Any]]:
        """What began and has no end yet, by exec."""
        found = await self._store.call("HGETALL", self._running)
        return {
            name.decode(): json.loads(value)
            for name, value in zip(found[::2], found[1::2], strict=True)
        }


def _key(exec_id: str) -> str:
    space = exec_id.rpartition(".")[0]
    return f"duet:{{{space}}}:x:{exec_id}:exited"
