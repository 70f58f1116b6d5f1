"""The result of a command, made from state: what the runner saw, or why it can see no more.

Never from words in the output. The reasons are those of PROTOCOL.md.
"""

import errno
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.spec import ExecSpec

_RETRYABLE = frozenset({"timeout", "sandbox_terminated", "sandbox_unavailable"})
# A spawn that fails for these says nothing about the command: the sandbox is out of something.
_EXHAUSTED = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
LOW_MEMORY = "The sandbox ran out of memory while this ran, and the kernel killed something in it."
_NOT_FOUND, _NOT_RUNNABLE = 127, 126  # as shells say it


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How one run ended. `reason` None means it succeeded; `bytes` counts what was printed.

    `warnings` say, for people, what else happened in the sandbox meanwhile.
    """

    reason: str | None
    message: str
    retryable: bool
    exit_code: int | None
    signal: str | None
    duration_ms: int
    bytes: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.reason is None


def signal_name(number: int | None) -> str | None:
    """`KILL`, `TERM`, ...; real-time and unknown signals by number."""
    if number is None:
        return None
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def from_exit(spec: ExecSpec, end: Mapping[str, Any]) -> ExecResult:
    """The result from the runner's `exit`: exit status, its own kill, the kernel's counters."""
    ms, printed = int(end["ms"]), {str(k): int(v) for k, v in end["bytes"].items()}
    if "spawn" in end:
        return _unspawned(str(end["spawn"]), int(end["errno"]), ms, printed)
    code, name = end["code"], signal_name(end["sig"])
    reason, message = _judge(spec, end, code, name)
    warnings = (LOW_MEMORY,) if end.get("low") else ()
    return ExecResult(reason, message, reason in _RETRYABLE, code, name, ms, printed, warnings)


def _judge(
    spec: ExecSpec, end: Mapping[str, Any], code: int | None, name: str | None
) -> tuple[str | None, str]:
    ours = {
        "timeout": f"It ran longer than {_duration(spec.timeout_ms)} and was stopped.",
        "cancelled": "It was cancelled.",
        "output_limit": f"It printed more than {_size(spec.output_limit_bytes)}.",
    }
    if end["why"] is not None:
        return str(end["why"]), ours[end["why"]]
    if end["oom"]:
        return "out_of_memory", "The sandbox ran out of memory, and the kernel killed it."
    if name is not None:
        return "command_failed", f"It was ended by signal {name}."
    if code != 0:
        return "command_failed", f"It exited with code {code}."
    return None, ""


def _unspawned(what: str, number: int, ms: int, printed: Mapping[str, int]) -> ExecResult:
    if number in _EXHAUSTED:
        message = (
            f"The sandbox could not start it ({what}). End some of what runs there, then retry."
        )
        return ExecResult("sandbox_unavailable", message, True, None, None, ms, printed)  # noqa: FBT003
    code = _NOT_FOUND if number == errno.ENOENT else _NOT_RUNNABLE
    message = f"It could not be started: {what}."
    return ExecResult("command_failed", message, False, code, None, ms, printed)  # noqa: FBT003


def lost(
    reason: str, message: str, duration_ms: int, printed: Mapping[str, int] | None = None
) -> ExecResult:
    """The result of a command whose end nobody saw. Never ok."""
    return ExecResult(reason, message, reason in _RETRYABLE, None, None, duration_ms, printed or {})


def _duration(ms: int) -> str:
    return f"{ms / 1000:g} s" if ms >= 1000 else f"{ms} ms"  # noqa: PLR2004


def _size(count: int) -> str:
    for unit, size in (("MiB", 1024**2), ("KiB", 1024)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} bytes"
