"""The container of a sandbox: the one that is there, else a new one; and its limits, read back.

What it looks like is `containers.py`'s, when it is wanted `instance.py`'s.
"""

from collections.abc import Mapping
from typing import Final

from sandbox import containers
from sandbox.engine import Engine
from sandbox.errors import EngineError, ImageMissing, SandboxUnavailable
from sandbox.spec import SandboxSpec

_NOT_FOUND: Final = 404


async def obtain(engine: Engine, owner: str, spec: SandboxSpec, cpus: int) -> str:
    """The id of a container that is stopped and at a start's CPU limit.

    It is asked for by name each time: it may have been removed, or made by an earlier server.
    Raises SandboxUnavailable, EngineError.
    """
    await check_runtime(engine, spec.runtime)
    name = containers.container_name(owner, spec.id)
    found = await engine.inspect(name)
    if found is None:
        return await _create(engine, owner, spec, cpus)
    labels = found["Config"].get("Labels") or {}
    if labels.get(containers.OWNER_LABEL) != owner:
        raise SandboxUnavailable(f"A container named {name} is not Duet's; remove it.")
    container = str(found["Id"])
    if found["State"].get("Running"):
        await engine.kill(container)
    await engine.update(container, containers.limits(spec, cpus, starting=True))
    return container


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


async def _create(engine: Engine, owner: str, spec: SandboxSpec, cpus: int) -> str:
    name = containers.container_name(owner, spec.id)
    config = containers.create_config(owner, spec, cpus)
    if spec.network != "none":
        await engine.ensure_network(containers.NETWORK, containers.NETWORK_OPTIONS)
    try:
        return await engine.create(name, config)
    except EngineError as error:
        if error.status == _NOT_FOUND:
            raise ImageMissing(
                f"The image {spec.image} is not built. Run `duet images build`."
            ) from error
        raise


async def set_limits(engine: Engine, container: str, wanted: Mapping[str, int]) -> None:
    """Set them and read them back: a limit that was not taken is no limit.

    Raises EngineUnavailable, EngineError; a container that is gone needs none.
    """
    await engine.update(container, wanted)
    found = await engine.inspect(container)
    for name, value in wanted.items():
        if found is not None and found["HostConfig"].get(name) != value:
            raise EngineError(500, f"the engine did not take {name}")
