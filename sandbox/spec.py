"""What is asked for: a sandbox, a command, and the table of instance types. Pure, checked here.

An id that passes `sandbox_id` is safe in container names, labels and volume names.
"""

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sandbox.errors import InvalidSpec
from sandbox.lease import check_sleep_after

GIB: Final = 1024**3
MIB: Final = 1024**2
IMAGES: Final = ("workspace", "debian")
NETWORKS: Final = (None, "bridge", "none")
PROFILES: Final = ("default", "strict")
WORKDIR: Final = "/workspace"
STATUSES: Final = ("requested", "starting", "running", "stopping", "stopped", "error")
# One argument of execve may have 128 KiB, its NUL included; longer commands cannot be run at all.
ARGUMENT_BYTES: Final = 128 * 1024 - 1
SIGNAL_MAX: Final = 64
SIZE_CELLS: Final = 1000  # columns or rows of a terminal; wider ones crash programs
STARTUP_MAX_MS: Final = 600_000
SANDBOX_ID_CHARS: Final = 80  # with the owner's name still short enough for a container's
_ID = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{SANDBOX_ID_CHARS - 1}}}")
_RUNTIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,63}")
_EXEC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """`nano_cpus` are billionths of a CPU, as the engine counts them."""

    nano_cpus: int
    memory_bytes: int


INSTANCE_TYPES: Final[Mapping[str, InstanceType]] = MappingProxyType(
    {
        "lite": InstanceType(10**9 // 16, 256 * MIB),
        "basic": InstanceType(10**9 // 4, 1 * GIB),
        "standard-1": InstanceType(10**9 // 2, 4 * GIB),
        "standard-2": InstanceType(1 * 10**9, 6 * GIB),
        "standard-3": InstanceType(2 * 10**9, 8 * GIB),
        "standard-4": InstanceType(4 * 10**9, 12 * GIB),
    }
)


def sandbox_id(raw: str) -> str:
    """The id as it is used: trimmed and lower-cased. Raises InvalidSpec."""
    name = raw.strip().lower()
    if not _ID.fullmatch(name):
        raise InvalidSpec(
            "id", "A sandbox id has 1 to 80 of a-z, 0-9, _ and -, and begins with a-z or 0-9."
        )
    return name


def _one_of(name: str, value: str | None, allowed: tuple[str | None, ...]) -> None:
    if value not in allowed:
        words = ", ".join(str(item) for item in allowed if item is not None)
        raise InvalidSpec(name, f"Unknown {name.replace('_', ' ')}; use one of: {words}.")


def _text(name: str, value: str) -> None:
    if "\0" in value:
        raise InvalidSpec(name, f"The {name} holds a NUL character.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidSpec(name, f"The {name} is not valid Unicode text.") from None
    if size > ARGUMENT_BYTES:
        raise InvalidSpec(name, f"The {name} is longer than {ARGUMENT_BYTES} bytes.")


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A sandbox as it is asked for. Times in seconds but where the name says ms."""

    id: str
    image: str = "workspace"
    instance_type: str = "lite"
    network: str | None = None
    profile: str = "default"
    runtime: str | None = None
    sleep_after: float = 600.0
    keep_alive: bool = False
    startup_command: str = "true"
    startup_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", sandbox_id(self.id))
        _one_of("image", self.image, IMAGES)
        _one_of("instance_type", self.instance_type, tuple(INSTANCE_TYPES))
        _one_of("network", self.network, NETWORKS)
        _one_of("profile", self.profile, PROFILES)
        if self.runtime is not None and not _RUNTIME.fullmatch(self.runtime):
            raise InvalidSpec("runtime", "A runtime has a name of the engine's, such as runsc.")
        object.__setattr__(self, "sleep_after", check_sleep_after(self.sleep_after))
        _text("startup_command", self.startup_command)
        if not 0 < self.startup_timeout_ms <= STARTUP_MAX_MS:
            raise InvalidSpec(
                "startup_timeout_ms", f"The startupTimeoutMs lies between 1 and {STARTUP_MAX_MS}."
            )


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """A sandbox as it is now. `expected_stop_at` and `saved_at` in ms since the epoch.

    `workspace_bytes` is what a saved workspace takes on disk, as SavedWorkspace tells it. It is
    measured a while after the stop, which makes the record no other one.
    """

    id: str
    status: str
    workspace_saved: bool
    image: str
    instance_type: str
    expected_stop_at: int | None = None
    last_error: str | None = None
    saved_at: int | None = None
    workspace_bytes: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SavedWorkspace:
    """What a stopped sandbox left on disk. `saved_at_ms` since the epoch.

    `size_bytes` are blocks on disk; when not `exact`, the engine's count, which takes the holes of
    sparse files for data; None while it was not measured.
    """

    id: str
    size_bytes: int | None
    saved_at_ms: int
    image: str
    exact: bool = True


@dataclass(frozen=True, slots=True)
class ExecSpec:
    """One run of a command: `command` through `bash -c`, or `argv` as it stands."""

    exec: str
    command: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_ms: int = 600_000
    stdin: bool = False
    pty: tuple[int, int] | None = None
    output_limit_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        if not _EXEC_ID.fullmatch(self.exec):
            raise InvalidSpec("exec", "An exec id has 1 to 64 of A-Z, a-z, 0-9, _ and -.")
        if (self.command is None) == (self.argv is None):
            raise InvalidSpec("command", "Give either a command or an argv.")
        if self.command is not None and not self.command.strip():
            raise InvalidSpec("command", "The command is empty.")
        if self.argv is not None and not (self.argv and self.argv[0]):
            raise InvalidSpec("argv", "The argv names no program.")
        for name, value in (("command", self.command), ("cwd", self.cwd)):
            _text(name, value or "")
        for value in self.argv or ():
            _text("argv", value)
        self._check_env()
        if self.timeout_ms <= 0 or self.output_limit_bytes <= 0:
            raise InvalidSpec("timeout_ms", "Timeout and output limit must be above zero.")
        if self.pty is not None:
            check_size(*self.pty)

    def _check_env(self) -> None:
        for name, value in self.env.items():
            _text("env", name)
            _text("env", value)
            if not name or "=" in name:
                raise InvalidSpec("env", "A variable's name is empty or holds '='.")


def check_size(cols: int, rows: int) -> None:
    """A terminal's size in character cells. Raises InvalidSpec."""
    if not (0 < cols <= SIZE_CELLS and 0 < rows <= SIZE_CELLS):
        raise InvalidSpec("pty", f"Columns and rows lie between 1 and {SIZE_CELLS}.")


def signal_number(name: str) -> int:
    """The number of `TERM`, `SIGTERM` or `15`. Raises InvalidSpec."""
    word = name.strip().upper().removeprefix("SIG")
    if word.isdecimal() and 0 < int(word[:3]) <= SIGNAL_MAX:
        return int(word)
    try:
        return int(signal.Signals[f"SIG{word}"])
    except KeyError:
        raise InvalidSpec("signal", f"Unknown signal {name[:20]!r}.") from None
