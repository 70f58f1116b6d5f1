"""What sandboxes take on disk: measured in blocks, and held to a limit where the driver can't.

A sparse file counts for what it takes. Nothing is followed out of a sandbox's own layer and
volumes: `du` walks them as the kernel has them, and by itself, so that it costs the server nothing.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sandbox.engine import Engine
from sandbox.spec import MIB

# A million files take `du` about two seconds; more than this says that the disk hangs.
MEASURE_S: Final = 60.0
KIB: Final = 1024
# Past its limit a sandbox may still take this much, or its files could not even be removed.
SLACK_BYTES: Final = 16 * MIB
SLACK_SHARE: Final = 8  # ... until it has taken an eighth more than the limit
# Storage drivers that can hold a container to a size, by the file system under them ("": any).
_QUOTA: Final = {"overlay2": "xfs", "btrfs": "", "zfs": ""}
# Of these, the ones whose size counts what a container has of its image.
_WITH_IMAGE: Final = ("btrfs",)


@dataclass(frozen=True, slots=True)
class Usage:
    """`exact` says that these are blocks on disk; else the engine's count, holes included."""

    size_bytes: int
    exact: bool


async def usage(engine: Engine, container: str) -> Usage | None:
    """What was written in a container and its volumes; None when there is no such container.

    Raises EngineUnavailable, EngineError.
    """
    found = await engine.inspect(container)
    if found is None:
        return None
    folders = _folders(found) if engine.host.startswith("unix://") else []
    if folders and (size := await _blocks(folders)) is not None:
        return Usage(size, exact=True)
    found = await engine.inspect(container, size=True, timeout_s=MEASURE_S)
    return Usage(int(found.get("SizeRw") or 0), exact=False) if found else None


def _folders(found: Mapping[str, Any]) -> list[str]:
    """The container's writable layer and the volumes made for it, if they can be read here."""
    upper = ((found.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
    volumes = [
        mount["Source"] for mount in found.get("Mounts") or () if mount.get("Type") == "volume"
    ]
    folders = [upper, *volumes] if upper else []
    readable = all(os.access(folder, os.R_OK | os.X_OK) for folder in folders)
    return folders if readable else []


async def _blocks(folders: list[str]) -> int | None:
    """Bytes of the blocks that they take, hard links once; None when that can't be told."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", "19", "du", "-skx", "--", *folders),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # files that go while it looks
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(MEASURE_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    lines = printed.decode(errors="replace").splitlines()
    sizes = [int(word) for line in lines if (word := line.split("\t")[0]).isdecimal()]
    return sum(sizes) * KIB if len(sizes) == len(folders) else None


def can_limit(driver: str, backing: str) -> bool:
    """Whether it is worth asking the engine for a size; it refuses where quotas are off."""
    wanted = _QUOTA.get(driver)
    return wanted is not None and wanted in ("", backing)


def size_option(driver: str, limit_bytes: int, image_bytes: int) -> str:
    """The size to ask such a driver for, where `limit_bytes` may be written."""
    return str(limit_bytes + (image_bytes if driver in _WITH_IMAGE else 0))


class Allowance:
    """Whether a sandbox has written too much. Pure.

    One that was stopped for it may start again to remove files, so the bar lies a little higher
    then, but does not move with each stop for ever.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._bar = limit_bytes

    def over(self, used_bytes: int) -> bool:
        if used_bytes <= self.limit_bytes:
            self._bar = self.limit_bytes
        if used_bytes <= self._bar:
            return False
        ceiling = self.limit_bytes + self.limit_bytes // SLACK_SHARE
        self._bar = max(used_bytes, min(used_bytes + SLACK_BYTES, ceiling))
        return True


def too_much(used_bytes: int, limit_bytes: int) -> str:
    """For people, as the sandbox's last error."""
    return (
        f"It wrote {used_bytes // MIB} MiB, and a sandbox here may write {limit_bytes // MIB} MiB, "
        "so it was saved and stopped. Start it again and remove files before writing more."
    )
