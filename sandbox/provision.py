"""The container of a sandbox: the one that is there, else a spare one, else a new one.

And its limits, read back. What it looks like is `containers.py`'s, when it is wanted
`instance.py`'s.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox import containers
from sandbox.disk import can_limit, size_option
from sandbox.engine import Engine
from sandbox.errors import EngineError, ImageMissing, SandboxError, SandboxUnavailable
from sandbox.link import Link
from sandbox.pool import Pool
from sandbox.spec import SandboxSpec

log = logging.getLogger(__name__)

# An engine under load may refuse or be late once; a second later it is not.
LIMIT_TRIES: Final = 3
LIMIT_AGAIN_S: Final = 1.0
# What somebody else removes at the engine is gone within a second or two.
GONE_S: Final = 10.0
GONE_AGAIN_S: Final = 0.1
_NOT_FOUND: Final = 404
_TAKEN: Final = 409


class Provider:
    """Of one owner's containers. `disk_bytes` is the most that each may write, or None."""

    def __init__(
        self, engine: Engine, owner: str, *, pool: Pool, disk_bytes: int | None = None
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._pool = pool
        self._disk_bytes = disk_bytes
        self._refused = False
        pool.create = self.create

    async def obtain(self, spec: SandboxSpec, cpus: int) -> tuple[str, Link | None]:
        """A container that is stopped and at a start's CPU limit; or a spare one, with the link
        to its runner, at the limits of `spec`.

        It is asked for by name each time: it may have been removed, or made by an earlier server.
        Raises SandboxUnavailable, EngineError.
        """
        await check_runtime(self._engine, spec.runtime)
        name = containers.container_name(self._owner, spec.id)
        found = await self._engine.inspect(name)
        if found is not None and await self._reusable(name, found, spec, cpus):
            return str(found["Id"]), None
        if spare := await self._pool.take(spec, name, containers.limits(spec, cpus)):
            return spare.container, spare.link
        config = containers.create_config(self._owner, spec, cpus)
        return await self.create(name, config), None

    async def _reusable(
        self, name: str, found: Mapping[str, Any], spec: SandboxSpec, cpus: int
    ) -> bool:
        labels = found["Config"].get("Labels") or {}
        if labels.get(containers.OWNER_LABEL) != self._owner:
            raise SandboxUnavailable(f"A container named {name} is not Duet's; remove it.")
        if found["State"].get("Status") in containers.GOING:
            await self._gone(found["Id"])
            return False
        # First: one in debt for CPU would take minutes to die.
        await self._engine.update(found["Id"], containers.limits(spec, cpus, starting=True))
        if found["State"].get("Running"):
            await self._engine.kill(found["Id"])
        wanted = containers.create_config(self._owner, spec, cpus)["HostConfig"]
        # What the type decides and can't be changed; the files are in the volume then.
        if spec.profile == "strict" and found["HostConfig"].get("Tmpfs") != wanted["Tmpfs"]:
            await self._engine.remove(found["Id"])
            return False
        return True

    async def _gone(self, container: str) -> None:
        """Returns once one that is being removed is no more. Raises SandboxUnavailable."""
        loop = asyncio.get_running_loop()
        until = loop.time() + GONE_S
        await self._engine.remove(container)
        while await self._engine.inspect(container) is not None:
            if loop.time() >= until:
                raise SandboxUnavailable("Its old container is still being removed. Try again.")
            await asyncio.sleep(GONE_AGAIN_S)

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        """The id of a new container, held to its size on disk where the engine can do that.

        Raises SandboxUnavailable, EngineError.
        """
        if config["HostConfig"]["NetworkMode"] == containers.NETWORK:
            await self._engine.ensure_network(containers.NETWORK, containers.NETWORK_OPTIONS)
        try:
            if await self.limits_disk():
                options = {"StorageOpt": {"size": await self._size(config["Image"])}}
                limited = {**config, "HostConfig": {**config["HostConfig"], **options}}
                try:
                    return await self._engine.create(name, limited)
                except EngineError as error:
                    if error.status in (_NOT_FOUND, _TAKEN):
                        raise
                    made = await self._engine.create(name, config)
                    self._refused = True  # it did so for the size alone
                    log.info("the engine can't limit disks, so they are watched: %s", error.message)
                    return made
            return await self._engine.create(name, config)
        except EngineError as error:
            if error.status == _NOT_FOUND:
                image = config["Image"].removeprefix("duet/").split(":")[0]
                raise ImageMissing(
                    f"The image {image} is not built. Run `duet images build`."
                ) from error
            raise

    async def _size(self, image: str) -> str:
        """What may be written, as the storage driver counts it. Raises as `create`."""
        driver = (await self._engine.info()).driver
        found = await self._engine.image(image) or {}
        return size_option(driver, self._disk_bytes or 0, found.get("Size") or 0)

    async def limits_disk(self) -> bool:
        """Whether the storage driver holds containers to the limit, as far as is known.

        Raises EngineUnavailable, EngineError.
        """
        if self._disk_bytes is None or self._refused:
            return False
        info = await self._engine.info()
        return can_limit(info.driver, info.backing)


async def check_runtime(engine: Engine, runtime: str | None) -> None:
    """A sandbox that is to run under gVisor does not run under anything else instead.

    Raises SandboxUnavailable, EngineError.
    """
    if runtime is None or runtime in (await engine.info()).runtimes:
        return
    known = (await engine.info(fresh=True)).runtimes
    if runtime not in known:
        raise SandboxUnavailable(
            f"The container engine has no runtime {runtime}; it has {', '.join(sorted(known))}. "
            "Install and register it with the engine, or choose another."
        )


async def set_limits(engine: Engine, container: str, wanted: Mapping[str, int]) -> None:
    """Set them and read them back: a limit that was not taken is no limit.

    Raises EngineUnavailable, EngineError; a container that is gone needs none.
    """
    await engine.update(container, wanted)
    found = await engine.inspect(container)
    for name, value in wanted.items():
        if found is not None and found["HostConfig"].get(name) != value:
            raise EngineError(500, f"the engine did not take {name}")


async def insist_on_limits(
    engine: Engine, container: str, wanted: Mapping[str, int], runs: Callable[[], bool]
) -> bool:
    """The same, tried again as long as it `runs`. False when they could not be set."""
    for _ in range(LIMIT_TRIES):
        if not runs():
            return True
        try:
            await set_limits(engine, container, wanted)
        except SandboxError as error:
            if not runs():  # what ends it has set others
                return True
            log.warning("container %s: limits not set: %s", container[:12], error.message)
            await asyncio.sleep(LIMIT_AGAIN_S)
        else:
            return True
    return not runs()
