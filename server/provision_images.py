"""Builds the sandbox images from the command line and tells how far it is.

A thin, synchronous coat over `sandbox.images`, which knows what the images are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.provision_shell import SetupError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.provision_shell import Steps


def state(docker_host: str | None) -> dict[str, bool]:
    """Say of each image whether it is there; raises SetupError when the engine does not answer."""
    raise SetupError(f"not yet: {docker_host}")


def are_ready(docker_host: str | None) -> bool:
    """Say whether every image is there."""
    try:
        return all(state(docker_host).values())
    except SetupError:
        return False


def build(docker_host: str | None, steps: Steps) -> None:
    """Build the images that are not there."""
    raise SetupError(f"not yet: {docker_host} {steps.total}")


def rebuild(docker_host: str | None, names: Sequence[str], steps: Steps) -> None:
    """Build the named images again, all of them when none is named."""
    raise SetupError(f"not yet: {docker_host} {names} {steps.total}")
