"""The images of sandboxes: whether they are there and as they should be, and how they are built.

By the engine from `images/Dockerfile` where its base can be had, else on a root file system that
`mmdebstrap` makes from the host's own package sources. Their contents are the lists in `images/`.
"""

import asyncio
import hashlib
import io
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox.containers import IMAGE_VERSION, image_tag
from sandbox.engine import Engine
from sandbox.errors import EngineError, EngineUnavailable, ImageBuildFailed
from sandbox.spec import IMAGES

FOLDER: Final = Path(__file__).parent / "images"
CONTENT_LABEL: Final = "duet.content"
BASE: Final = ("debian", "bookworm-slim")
DEFAULT_SUITE: Final = "bookworm"
# A registry that can be reached begins to answer at once; a filtered one never does.
REACH_S: Final = 15.0
PULL_S: Final = 300.0
BOOTSTRAP_S: Final = 1200.0  # 25 s on a fast network, and some networks are slow
READ_BYTES: Final = 256 * 1024
TAIL_LINES: Final = 12
_SOURCES: Final = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ImageState:
    """`current`: built from what `images/` holds now."""

    name: str
    tag: str
    present: bool
    current: bool


async def image_state(engine: Engine) -> list[ImageState]:
    """Raises EngineUnavailable, EngineError."""
    return [await _state(engine, name) for name in IMAGES]


async def ensure_images(
    engine: Engine, names: Sequence[str] = IMAGES, progress: Progress = print
) -> None:
    """Build those of `names` that are missing or not current.

    Raises EngineUnavailable, EngineError, ImageBuildFailed; `progress` gets a line per step.
    """
    wanted = [name for name in names if not (await _state(engine, name)).current]
    for name in set(names) - set(wanted):
        progress(f"Image {name}: up to date.")
    if not wanted:
        return
    pulled = await _has_base(engine, progress)
    for name in wanted:
        progress(f"Image {name}: building.")
        if pulled:
            await _build(engine, name, progress)
        else:
            await _bootstrap(engine, name, progress)
        progress(f"Image {name}: built as {image_tag(name)}.")


def content_hash() -> str:
    """Changes when what images are made of does."""
    digest = hashlib.sha256(IMAGE_VERSION.encode())
    for path in sorted(FOLDER.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


async def _state(engine: Engine, name: str) -> ImageState:
    tag = image_tag(name)
    found = await engine.image(tag)
    labels = ((found or {}).get("Config") or {}).get("Labels") or {}
    current = labels.get(CONTENT_LABEL) == content_hash()
    return ImageState(name, tag, found is not None, current)


# --- built by the engine ------------------------------------------------------------------------


async def _has_base(engine: Engine, progress: Progress) -> bool:
    name, tag = BASE
    if await engine.image(f"{name}:{tag}"):
        return True
    progress(f"Pulling the base image {name}:{tag}.")
    try:
        async with asyncio.timeout(PULL_S):
            await engine.pull(name, tag, first_answer_s=REACH_S)
    except (EngineError, EngineUnavailable, TimeoutError):
        progress("No image registry is reached; making the base with mmdebstrap.")
        return False
    return True


async def _build(engine: Engine, name: str, progress: Progress) -> None:
    tail: list[str] = []
    lines = engine.build(
        _context(),
        tag=image_tag(name),
        target=name,
        args={"BASE": ":".join(BASE)},
        labels={CONTENT_LABEL: content_hash()},
    )
    try:
        async for fields in lines:
            for line in str(fields.get("stream", "")).splitlines():
                tail = [*tail, line][-TAIL_LINES:]
                if line.startswith("Step "):
                    progress(f"Image {name}: {line.strip()}")
    except EngineError as error:
        raise ImageBuildFailed(
            "\n".join([f"The image {name} could not be built: {error.message}", *tail])
        ) from error


def _context() -> bytes:
    """The folder as a tar, which is how the engine takes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(FOLDER.iterdir()):
            tar.add(path, arcname=path.name)
    return buffer.getvalue()


# --- made with mmdebstrap -----------------------------------------------------------------------


def packages(name: str) -> list[str]:
    """What an image holds beside the minimal Debian; `workspace` has all of `debian`."""
    lists = ["debian"] if name == "debian" else ["debian", name]
    return [word for item in lists for word in (FOLDER / f"{item}.packages").read_text().split()]


def bootstrap_command(name: str, sources: Sequence[str], suite: str) -> list[str]:
    """`mmdebstrap` to standard output, from `sources` (files of the host) or its own defaults."""
    return [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(packages(name))}",
        f"--customize-hook=sh '{FOLDER / 'setup.sh'}' \"$1\"",
        suite,
        "-",
        *sources,
    ]


def host_sources() -> tuple[list[str], str]:
    """(files with the host's package sources, its suite); none of them where it isn't Debian."""
    release = Path("/etc/os-release")
    fields = dict(
        line.split("=", 1)
        for line in (release.read_text().splitlines() if release.exists() else ())
        if "=" in line
    )
    if fields.get("ID", "").strip('"') != "debian":
        return [], DEFAULT_SUITE
    suite = fields.get("VERSION_CODENAME", DEFAULT_SUITE).strip('"')
    return [path for path in _SOURCES if Path(path).is_file()][:1], suite


async def _bootstrap(engine: Engine, name: str, progress: Progress) -> None:
    if shutil.which("mmdebstrap") is None:
        raise ImageBuildFailed(
            "No image registry is reached, and mmdebstrap is not installed. "
            "Run `duet doctor --fix`, or `apt-get install mmdebstrap`, then try again."
        )
    command = bootstrap_command(name, *await asyncio.to_thread(host_sources))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    tail: list[str] = []
    try:
        async with asyncio.timeout(BOOTSTRAP_S), asyncio.TaskGroup() as group:
            group.create_task(_report(process, name, progress, tail))
            repo, tag = image_tag(name).split(":")
            changes = (f"LABEL {CONTENT_LABEL}={content_hash()}", "WORKDIR /workspace")
            async for _ in engine.import_image(
                _tar(process, tail), repo=repo, tag=tag, changes=changes
            ):
                pass
    except TimeoutError:
        raise ImageBuildFailed(f"mmdebstrap did not end within {BOOTSTRAP_S:g} s.") from None
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _tar(process: asyncio.subprocess.Process, tail: list[str]) -> AsyncIterator[bytes]:
    """The root file system as it is made. Fails with mmdebstrap, so that no half image is kept."""
    stream = _piped(process.stdout)
    while chunk := await stream.read(READ_BYTES):
        yield chunk
    if await process.wait() != 0:
        raise ImageBuildFailed("\n".join(["mmdebstrap failed.", *tail]))


async def _report(
    process: asyncio.subprocess.Process, name: str, progress: Progress, tail: list[str]
) -> None:
    async for raw in _piped(process.stderr):
        line = raw.decode(errors="replace").strip()
        if line:
            tail[:] = [*tail, line][-TAIL_LINES:]
            progress(f"Image {name}: {line.removeprefix('I: ')}")


def _piped(stream: Any) -> asyncio.StreamReader:
    if not isinstance(stream, asyncio.StreamReader):
        raise TypeError("the process was made without pipes")
    return stream
