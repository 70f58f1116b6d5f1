"""What a runner says of the commands it has when it is met again. Pure: checked, not acted upon."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import LinkBroken
from sandbox.frames import STREAMS
from sandbox.spec import ExecSpec

RUNNER_VERSION: Final = 2  # of what both sides say; an older runner can't be met again
_SIZE: Final = (80, 24)  # stands for a terminal; its true size is the runner's


@dataclass(frozen=True, slots=True)
class Survivor:
    """One exec. `printed` and `granted` are positions per stream, `written` one in its input."""

    exec: str
    printed: Mapping[str, int]
    granted: Mapping[str, int]
    terminal: bool
    takes_input: bool
    written: int
    timeout_ms: int
    limit_bytes: int
    age_ms: int
    done: bool

    def spec(self) -> ExecSpec:
        """As far as it matters from here on; its command line is not the runner's to keep."""
        return ExecSpec(
            self.exec,
            command="(running)",
            timeout_ms=self.timeout_ms,
            stdin=self.takes_input,
            pty=_SIZE if self.terminal else None,
            output_limit_bytes=self.limit_bytes,
        )


def survivors(hello: Mapping[str, Any]) -> dict[str, Survivor]:
    """By exec. Raises LinkBroken for a hello that is no runner's, or an older runner's."""
    if hello.get("v") != RUNNER_VERSION:
        raise LinkBroken(f"The runner speaks version {hello.get('v')!r}.")
    try:
        found = [_survivor(row) for row in hello["execs"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LinkBroken(f"a broken hello: {error!r}") from error
    return {each.exec: each for each in found}


def _survivor(row: Mapping[str, Any]) -> Survivor:
    streams = {name: row["streams"][name] for name in STREAMS if name in row["streams"]}
    return Survivor(
        exec=str(row["x"]),
        printed={name: int(each["at"]) for name, each in streams.items()},
        granted={name: int(each["granted"]) for name, each in streams.items()},
        terminal=bool(row["pty"]),
        takes_input=bool(row["stdin"]),
        written=int(row["in"]),
        timeout_ms=int(row["timeout"]),
        limit_bytes=int(row["limit"]),
        age_ms=int(row["age"]),
        done=bool(row["done"]),
    )
