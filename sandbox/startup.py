"""A sandbox's startup command: run once it is up, before it counts as running.

It must exit 0 in time; otherwise the end of what it printed is told. The sandbox's own state is
`instance.py`'s.
"""

from typing import Final

from sandbox.errors import StartupFailed
from sandbox.process import CREDIT_BYTES, Process
from sandbox.results import ExecResult
from sandbox.spec import ExecSpec, SandboxSpec

STARTUP_EXEC: Final = "startup"
TAIL_BYTES: Final = 2048  # of its output, in lastError
_NOTHING: Final = ("", "true", ":")  # commands that need not be run


class Tail:
    """An output sink that keeps the end of both streams, as they came."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self._kept = b""

    def output(self, stream: str, at: int, data: bytes) -> None:
        self._kept = (self._kept + data)[-TAIL_BYTES:]
        if self.process is not None:
            end = at + len(data)
            self.process.ack(stream, end)
            self.process.grant(stream, end + CREDIT_BYTES)

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace").strip()


def startup(spec: SandboxSpec) -> tuple[ExecSpec, Tail]:
    """What is to be run, and where the output goes."""
    wanted = ExecSpec(
        STARTUP_EXEC, command=spec.startup_command, timeout_ms=spec.startup_timeout_ms
    )
    return wanted, Tail()


def is_needed(spec: SandboxSpec) -> bool:
    return spec.startup_command.strip() not in _NOTHING


def judge(spec: SandboxSpec, result: ExecResult, tail: Tail) -> None:
    """Raises StartupFailed, in words for people, with the end of the output."""
    if result.ok:
        return
    if result.reason == "timeout":
        what = f"did not end within {spec.startup_timeout_ms / 1000:g} s"
    elif result.exit_code is not None:
        what = f"exited with {result.exit_code}"
    else:
        what = f"failed: {result.message.rstrip('.')}"
    printed = f" Its output ended:\n{tail.text}" if tail.text else " It printed nothing."
    raise StartupFailed(f"The startup command {what}.{printed}")
