"""What goes on without being asked: leases that end, records written, the engine looked at.

Each second and each minute; what is done then is in the modules it calls.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from sandbox.errors import SandboxError
from sandbox.instance import Instance
from sandbox.pool import Pool
from sandbox.reconcile import Reconciler
from sandbox.registry import Registry
from sandbox.saved import SavedLimits, to_remove

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
RECONCILE_S: Final = 60.0
SLEPT: Final = "The sandbox was idle, so it was saved and stopped."


class Upkeep:
    def __init__(
        self,
        registry: Registry,
        reconciler: Reconciler,
        pool: Pool,
        saved: SavedLimits,
        *,
        clock: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._registry = registry
        self._reconciler = reconciler
        self._pool = pool
        self._saved = saved
        self._clock = clock
        self._spawn = spawn
        self._removing = asyncio.Lock()
        self._reconciled_at = clock()

    async def run(self) -> None:
        """Until cancelled. A round does not wait for an earlier one that is slow somewhere."""
        while True:
            await asyncio.sleep(TICK_S)
            self._spawn(self._guarded())

    async def _guarded(self) -> None:
        try:
            await self.tick()
        except SandboxError as error:
            log.warning("upkeep of sandboxes: %s", error.message)

    async def tick(self) -> None:
        """Raises EngineUnavailable, EngineError."""
        async with asyncio.TaskGroup() as group:
            for instance in self._registry:
                if instance.status == "running" and instance.lease.due:
                    group.create_task(self._sleep(instance))
        self._registry.tell_leases()
        await self._registry.records.flush()
        if not self._removing.locked():
            async with self._removing:
                await self._remove_saved()
        since_s = self._clock() - self._reconciled_at
        if not 0 <= since_s < RECONCILE_S:  # below 0: the clock was set back
            self._reconciled_at = self._clock()
            await self._reconciler.run()
            self._pool.refill_soon()

    async def _remove_saved(self) -> None:
        """Those beyond the limits, unless somebody has started them meanwhile."""
        for removal in to_remove(self._registry.saved(), self._saved, self._clock()):
            instance = self._registry.get(removal.workspace.id)
            if instance is not None and not instance.active:
                log.warning("sandbox %s: %s", removal.workspace.id, removal.why)
                await self._registry.remove(
                    instance, error=removal.why, still=partial(_unused, instance)
                )

    async def _sleep(self, instance: Instance) -> None:
        log.info("sandbox %s is idle and goes to sleep", instance.spec.id)
        try:
            await instance.stop(SLEPT, still=lambda: instance.lease.due)
        except SandboxError as error:  # told by its record too; tried again a tick later
            log.warning("sandbox %s not stopped: %s", instance.spec.id, error.message)


def _unused(instance: Instance) -> bool:
    return not instance.active
