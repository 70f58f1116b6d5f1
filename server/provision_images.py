"""Builds the sandbox images from the command line and tells how far it is.

A thin, synchronous coat over `sandbox.images`, which knows what the images are made of.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sandbox.engine import Engine
from sandbox.errors import SandboxError
from sandbox.images import ensure_images, image_state
from sandbox.spec import IMAGES
from server.provision_shell import SetupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from server.provision_shell import Steps

NAMES = tuple(IMAGES)


def state(docker_host: str | None) -> dict[str, bool]:
    """Say of each image whether it is there and current; SetupError without an engine."""
    found = _with_engine(docker_host, image_state)
    return {image.name: image.current for image in found}


def are_ready(docker_host: str | None) -> bool:
    """Say whether every image is there and current."""
    try:
        return all(state(docker_host).values())
    except SetupError:
        return False


def build(docker_host: str | None, steps: Steps, names: Sequence[str] = NAMES) -> None:
    """Build those of ``names`` that are not there or not current; raises SetupError."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise SetupError(f"no image {', '.join(unknown)}: there are {', '.join(NAMES)}")
    _with_engine(docker_host, lambda engine: ensure_images(engine, names, steps.detail))


def _with_engine(docker_host: str | None, work: Callable[[Engine], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        engine = Engine(docker_host)
        try:
            return await work(engine)
        finally:
            await engine.close()

    try:
        return asyncio.run(run())
    except SandboxError as error:
        raise SetupError(error.message) from error
