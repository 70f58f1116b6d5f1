"""The CPU limit of a sandbox as it moves: raised for a start or a kill, then the type's own.

What the limits are is `containers.py`'s; how they are set and read back, `provision.py`'s.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from sandbox import containers
from sandbox.engine import Engine
from sandbox.errors import SandboxError
from sandbox.provision import insist_on_limits
from sandbox.spec import SandboxSpec

log = logging.getLogger(__name__)

# How long a kill that needed more CPU may have it.
RAISED_S: Final = 3.5
HURRY_S: Final = 2.0  # an engine that takes longer is asked for the end itself


class Throttle:
    """Of one run of a container; `give_up` is called when it would run without its limits."""

    def __init__(
        self,
        engine: Engine,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        spec: SandboxSpec,
        container: str,
        give_up: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._spawn = spawn
        self._spec = spec
        self._container = container
        self._give_up = give_up
        self._raised = self._over = False
        self._settling = spawn(self._settle())

    def close(self) -> None:
        """The run is over; its limits are nobody's business any more."""
        self._over = True

    async def settled(self) -> None:
        """Returns once the limits of the start are the type's own."""
        await asyncio.wait({self._settling})

    def up(self) -> None:
        """For a while: a kill takes too long, perhaps the runner has no CPU left to do it with."""
        if not self._raised:
            self._raised = True
            self._spawn(self._raise_and_restore())

    async def _raise_and_restore(self) -> None:
        await asyncio.wait({self._settling})
        try:
            cpus = (await self._engine.info()).cpus
            limits = containers.limits(self._spec, cpus, starting=True)
            await self._engine.update(self._container, limits)
            await asyncio.sleep(RAISED_S)
        except SandboxError as error:
            log.warning("sandbox %s: CPU limit not raised: %s", self._spec.id, error.message)
        finally:
            self._raised = False
        await self._settle()

    async def _settle(self) -> None:
        """To the type's own limits; without them it may not run."""
        try:
            cpus = (await self._engine.info()).cpus
        except SandboxError as error:
            log.warning("sandbox %s: %s", self._spec.id, error.message)
            taken = False
        else:
            wanted = containers.limits(self._spec, cpus)
            taken = await insist_on_limits(
                self._engine, self._container, wanted, lambda: not self._over
            )
        if not taken and not self._over:
            self._give_up("Its limits could not be set, so the sandbox was stopped.")


async def hurry(engine: Engine, spec: SandboxSpec, container: str) -> None:
    """The limits of a start for what must not take long, where the engine sets them soon.

    It clears a debt too: what overran its quota may not run for minutes, not even to die.
    """
    with suppress(SandboxError, TimeoutError):
        async with asyncio.timeout(HURRY_S):
            cpus = (await engine.info()).cpus
            await engine.update(container, containers.limits(spec, cpus, starting=True))
