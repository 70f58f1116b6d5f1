"""Looks at what sandboxes take on disk: of saved ones once, of running ones while there is a limit.

One at a time and for a small share of the time, however many there are.
"""

import asyncio
import logging
from typing import Final

from sandbox.disk import Allowance, too_much, usage
from sandbox.engine import Engine
from sandbox.errors import SandboxError
from sandbox.instance import Instance
from sandbox.provision import Provider
from sandbox.registry import Registry

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.5
REST_SHARE: Final = 9  # rests nine times as long as a look took: a tenth of one CPU at most
# How soon one is looked at again. A disk writes 1 GB/s at best, and a look comes too late by that.
BUSY_AGAIN_S: Final = 2.0
IDLE_AGAIN_S: Final = 30.0  # what runs in the background writes too


class DiskWatch:
    def __init__(
        self, engine: Engine, provider: Provider, registry: Registry, limit_bytes: int | None
    ) -> None:
        self._engine = engine
        self._provider = provider
        self._registry = registry
        self._limit_bytes = limit_bytes
        self._allowances: dict[str, Allowance] = {}
        self._looked: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                instance = await self._next(began)
                if instance is not None:
                    await self.look(instance)
            except SandboxError as error:
                log.debug("disk use not looked at: %s", error.message)
            except Exception:  # the boundary of this task: others must still be looked at
                log.exception("looking at disk use failed")
            await asyncio.sleep(max(PAUSE_S, REST_SHARE * (loop.time() - began)))

    async def look(self, instance: Instance) -> None:
        """Measure one. Raises EngineUnavailable, EngineError."""
        container, saved_at = instance.container, instance.saved_at
        used = await usage(self._engine, container) if container else None
        if used is None or (instance.container, instance.saved_at) != (container, saved_at):
            return
        if saved_at is not None:
            instance.usage = used
            self._registry.keep(instance)
        elif self._limit_bytes is not None and instance.status == "running":
            id = instance.spec.id  # noqa: A001
            allowance = self._allowances.setdefault(id, Allowance(self._limit_bytes))
            if allowance.over(used.size_bytes):
                why = too_much(used.size_bytes, self._limit_bytes)
                log.warning("sandbox %s: %s", id, why)
                await instance.stop(why, error=why)

    async def _next(self, now: float) -> Instance | None:
        """The one that has waited longest of those whose turn has come."""
        there = {instance.spec.id: instance for instance in self._registry}
        for known in (self._looked, self._allowances):
            for id in known.keys() - there.keys():  # noqa: A001
                del known[id]
        due = [one for one in there.values() if await self._is_due(one, now)]
        if not due:
            return None
        first = min(due, key=lambda one: self._looked.get(one.spec.id, 0.0))
        self._looked[first.spec.id] = now
        return first

    async def _is_due(self, instance: Instance, now: float) -> bool:
        unmeasured = instance.saved_at is not None and instance.usage is None
        again_s = BUSY_AGAIN_S if instance.lease.held or unmeasured else IDLE_AGAIN_S
        since = now - self._looked.get(instance.spec.id, -IDLE_AGAIN_S)
        if instance.container is None or since < again_s:
            return False
        if instance.status != "running" or self._limit_bytes is None:
            return unmeasured
        # Drivers hold a container to its size, and no volume.
        return instance.spec.profile == "strict" or not await self._provider.limits_disk()
