"""What goes on without being asked: leases that end, records written, the engine looked at.

Each second and each minute; what is done then is in the modules it calls.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sandbox.errors import SandboxError
from sandbox.instance import Instance
from sandbox.reconcile import Reconciler
from sandbox.registry import Registry

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
RECONCILE_S: Final = 60.0
SLEPT: Final = "The sandbox was idle, so it was saved and stopped."


class Upkeep:
    def __init__(
        self, registry: Registry, reconciler: Reconciler, clock: Callable[[], float]
    ) -> None:
        self._registry = registry
        self._reconciler = reconciler
        self._clock = clock
        self._reconciled_at = clock()

    async def run(self) -> None:
        """Until cancelled. What fails is told, and tried again a tick later."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.tick()
            except SandboxError as error:
                log.warning("upkeep of sandboxes: %s", error.message)
            except Exception:  # the boundary of this task: leases must go on ending
                log.exception("upkeep of sandboxes failed")

    async def tick(self) -> None:
        """Raises EngineUnavailable, EngineError."""
        async with asyncio.TaskGroup() as group:
            for instance in self._registry:
                if instance.status == "running" and instance.lease.due:
                    group.create_task(self._sleep(instance))
        self._registry.tell_leases()
        await self._registry.records.flush()
        if self._clock() - self._reconciled_at >= RECONCILE_S:
            self._reconciled_at = self._clock()
            await self._reconciler.run()

    async def _sleep(self, instance: Instance) -> None:
        log.info("sandbox %s is idle and goes to sleep", instance.spec.id)
        try:
            await instance.stop(SLEPT, still=lambda: instance.lease.due)
        except SandboxError as error:  # told by its record too; tried again a tick later
            log.warning("sandbox %s not stopped: %s", instance.spec.id, error.message)
