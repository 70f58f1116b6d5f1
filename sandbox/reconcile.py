"""What the engine has, held against what we know: adopts, marks and reaps, by label alone.

At the start and then each minute. Containers without our owner's label are not even looked at.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from sandbox import containers
from sandbox.engine import Engine
from sandbox.errors import InvalidSpec, SandboxError
from sandbox.instance import Instance
from sandbox.pool import Pool
from sandbox.registry import NOT_MET, Registry

log = logging.getLogger(__name__)

_DOWN: Final = ("exited", "created")
MEET_AT_ONCE: Final = 8  # each costs the engine an attachment and an update
ASK_AT_ONCE: Final = 16
GONE: Final = "Its container was removed from outside, and its files with it."


class Reconciler:
    def __init__(self, engine: Engine, owner: str, registry: Registry, pool: Pool) -> None:
        self._engine = engine
        self._owner = owner
        self._registry = registry
        self._pool = pool
        self._warned: set[str] = set()
        self._turn = asyncio.Lock()
        self._meeting = asyncio.Semaphore(MEET_AT_ONCE)
        self._asking = asyncio.Semaphore(ASK_AT_ONCE)
        self.settled = False  # once it was done in this life

    async def run(self) -> None:
        """Raises EngineUnavailable, EngineError when the engine can't be asked."""
        async with self._turn:
            known = {one.container for one in self._registry}
            listed = await self._engine.list(f"{containers.OWNER_LABEL}={self._owner}")
            found = [one for one in listed if one["State"] not in containers.GOING]
            await asyncio.gather(*(self._reap(one) for one in listed if one["State"] == "dead"))
            await asyncio.gather(*(self._guarded(container) for container in found))
            names = {name for one in found if (name := self._sandbox(one))}
            for instance in self._registry:
                # Only what was known before the question was asked can be missing in its answer.
                if instance.spec.id not in names and instance.container in known:
                    await self._vanished(instance)
            for id in set(self._registry.doomed) - names:  # noqa: A001
                await self._finish_removal(id)
            self.settled = True

    def _sandbox(self, container: Mapping[str, Any]) -> str | None:
        try:
            return containers.sandbox_of(container, self._owner)
        except InvalidSpec:
            return None

    async def _guarded(self, container: dict[str, Any]) -> None:
        try:
            await self._settle(container)
        except SandboxError as error:
            log.warning("container %s not settled: %s", container["Id"][:12], error.message)

    async def _settle(self, container: dict[str, Any]) -> None:
        if containers.is_spare(container, self._owner):
            if not self._pool.knows(containers.name_of(container)):  # of an earlier life, or lost
                await self._engine.remove(container["Id"])
            return
        id = self._sandbox(container)  # noqa: A001
        if id is None:
            if container["Id"] not in self._warned:
                self._warned.add(container["Id"])
                log.warning("container %s has our label but no sandbox", container["Id"][:12])
        elif id in self._registry.doomed and self._registry.get(id) is None:
            await self._finish_removal(id, container)
        else:
            instance = self._registry.get(id) or await self._unknown(container)
            if instance is not None:
                await self._compare(instance, container)

    async def _unknown(self, container: dict[str, Any]) -> Instance | None:
        """A record of a container that has none, if it is there: the list may be older than its
        removal, whose record is gone then.
        """
        async with self._asking:
            if await self._engine.inspect(container["Id"]) is None:
                return None
        spec = containers.spec_of(container, self._owner)
        if instance := self._registry.get(spec.id):  # started meanwhile
            return instance
        instance = self._registry.make(spec)
        if container["State"] not in _DOWN:
            instance.status, instance.last_error = "error", NOT_MET
        return instance

    async def _reap(self, container: dict[str, Any]) -> None:
        try:
            await self._engine.remove(container["Id"])
        except SandboxError as error:
            log.warning("container %s stays dead: %s", container["Id"][:12], error.message)

    async def _finish_removal(self, id: str, container: dict[str, Any] | None = None) -> None:  # noqa: A002
        """A destroy that an earlier server did not get to the end of."""
        log.info("removing sandbox %s, whose removal had begun", id)
        if container is not None:
            await self._engine.remove_with_volumes(container["Id"], containers.OWNER_LABEL)
        if self._registry.doomed[id].profile == "strict":  # a volume outlives its container
            await self._engine.remove_volume(containers.container_name(self._owner, id))
        self._registry.doomed.pop(id, None)
        self._registry.records.drop(id)

    async def _compare(self, instance: Instance, container: dict[str, Any]) -> None:
        if instance.busy or instance.status == "running":  # its own link tells what becomes of it
            return
        runs = container["State"] not in _DOWN
        if runs:
            async with self._meeting:
                await instance.meet(container["Id"])
        elif instance.container is None or instance.saved_at is None:
            before = instance.record()
            if instance.last_error == NOT_MET:
                instance.last_error = None
            instance.adopt(container["Id"])
            if instance.record() != before:
                self._registry.changed(instance.record())

    async def _vanished(self, instance: Instance) -> None:
        if instance.spec.profile == "strict" and await self._engine.volume(instance.name):
            return  # the files are in the volume, and the next start makes a container around it
        if instance.busy or instance.status == "running":
            return
        if instance.container or instance.saved_at or instance.last_error == NOT_MET:
            instance.lost(GONE)
            self._registry.changed(instance.record())
