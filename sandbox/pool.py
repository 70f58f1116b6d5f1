"""Spare containers with a runner that is up, so that a new sandbox need not wait for one.

A spare is taken once, by a new name and its limits; what was used never comes back here.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sandbox import containers
from sandbox.engine import Engine
from sandbox.errors import SandboxError
from sandbox.frames import Frame
from sandbox.link import Link
from sandbox.spec import IMAGES, SandboxSpec

log = logging.getLogger(__name__)

# The command that took a spare comes first; making the next one takes CPU.
REFILL_AFTER_S: Final = 1.0
# After a failure (no image, no engine) the next try waits; each would only fail the same way.
AGAIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What can't be changed in a container that is there, so that each kind has its own spares.

    The strict profile has none: its volume could not be renamed.
    """

    image: str = "workspace"
    network: str | None = None
    runtime: str | None = None
    profile: str = "default"

    @classmethod
    def of(cls, spec: SandboxSpec) -> "Kind":
        network = None if spec.network == "bridge" else spec.network  # two words for one thing
        return cls(spec.image, network, spec.runtime, spec.profile)


EVERY_IMAGE: Final = tuple(Kind(image) for image in IMAGES)


@dataclass(frozen=True, slots=True)
class Spare:
    name: str
    container: str
    link: Link


class Pool:
    """`size` spares of each of `kinds`; 0 keeps none. `create` is given by the provider."""

    create: Callable[[str, Mapping[str, Any]], Awaitable[str]]

    def __init__(
        self,
        engine: Engine,
        owner: str,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        size: int = 0,
        kinds: tuple[Kind, ...] = EVERY_IMAGE,
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._spawn = spawn
        self._size = size
        self._kinds = tuple(kind for kind in kinds if kind.profile != "strict")
        self._spares: defaultdict[Kind, list[Spare]] = defaultdict(list)
        # With those taken since: a list of the engine's may be older than that.
        self._names: set[str] = set()
        self._filling = asyncio.Lock()
        self._closed = False
        self._rests_until = 0.0

    def knows(self, name: str) -> bool:
        return name in self._names

    def count(self, kind: Kind) -> int:
        return len(self._spares[kind])

    async def take(self, spec: SandboxSpec, name: str, limits: Mapping[str, int]) -> Spare | None:
        """A spare under its new name and limits; None when there is none to be had."""
        spares = self._spares[Kind.of(spec)]
        while spares:
            spare = spares.pop()
            self.refill_soon()
            if not spare.link.closed:
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._engine.rename(spare.container, name))
                        group.create_task(self._engine.update(spare.container, limits))
                except* SandboxError as errors:
                    log.warning("a spare container was not taken: %s", errors.exceptions[0])
                else:
                    return spare
            await self._discard(spare)
        return None

    def refill_soon(self) -> None:
        if self._size and not self._closed:
            self._spawn(self._refill_later())

    async def _refill_later(self) -> None:
        await asyncio.sleep(REFILL_AFTER_S)
        await self.refill()

    async def refill(self) -> None:
        """Make what is missing, one after the other. What fails is told, and tried again later."""
        loop = asyncio.get_running_loop()
        async with self._filling:
            for kind in self._kinds:
                while len(self._spares[kind]) < self._size and not self._closed:
                    if loop.time() < self._rests_until:
                        return
                    try:
                        await self._make(kind)
                    except SandboxError as error:
                        self._rests_until = loop.time() + AGAIN_S
                        log.warning("no spare container of %s: %s", kind.image, error.message)

    async def _make(self, kind: Kind) -> None:
        cpus = (await self._engine.info()).cpus
        spec = SandboxSpec(
            "spare", kind.image, network=kind.network, runtime=kind.runtime, profile=kind.profile
        )
        name = containers.spare_name(self._owner, secrets.token_hex(6))
        self._names.add(name)
        link = Link(_ignore, lambda: self._lost(kind, link))
        spare = Spare(name, name, link)  # by name, until its id is known
        try:
            config = containers.spare_config(self._owner, spec, cpus)
            spare = Spare(name, await self.create(name, config), link)
            if not self._closed:
                await link.start(self._engine, spare.container)
        except BaseException:
            await self._discard(spare)
            raise
        if self._closed or link.closed:
            await self._discard(spare)
        else:
            self._spares[kind].append(spare)

    def _lost(self, kind: Kind, link: Link) -> None:
        """One ended by itself, or by somebody at the engine."""
        for spare in self._spares[kind]:
            if spare.link is link:
                self._spares[kind].remove(spare)
                self._spawn(self._discard(spare))
                self.refill_soon()
                return

    async def _discard(self, spare: Spare) -> None:
        spare.link.close()
        self._names.discard(spare.name)  # so that reconciling removes it, should this fail
        with suppress(SandboxError):
            await self._engine.remove(spare.container)

    async def close(self) -> None:
        """Remove the spares; nothing is made any more."""
        self._closed = True
        spares = [spare for each in self._spares.values() for spare in each]
        self._spares.clear()
        await asyncio.gather(*(self._discard(spare) for spare in spares))
        async with self._filling:  # one that is being made sees that it is not wanted
            pass


def _ignore(frame: Frame) -> None:
    """A spare runs nothing, so it says nothing that matters."""
