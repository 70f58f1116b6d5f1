"""One command's life, wherever it was asked for: its spec, its result, its output kept.

Where its start and end are told is for `execs` (rooms) and `solo` (sandboxes without one).
"""

import asyncio
import secrets
import shlex
import time
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from protocol import names
from protocol.commands import Exec
from protocol.errors import Unavailable, UnknownExec
from protocol.model import Participant
from sandbox.errors import (
    Detached,
    InvalidSpec,
    SandboxError,
    SandboxUnavailable,
    UnknownSandbox,
)
from sandbox.manager import Manager
from sandbox.process import Process
from sandbox.results import ExecResult
from sandbox.spec import WORKDIR, ExecSpec, SandboxSpec
from server import logs
from server.execlog import ExecLog
from server.order import Order
from server.output import Piece
from server.run import DELIVERY_S, KeepLimits, Run

log = logs.get("exec")

RETRY_MIN_S, RETRY_MAX_S = 0.2, 2.0
LINGER_S = 6.0
"""A run's output stays in memory this long after its end, for joins that were under way."""


@dataclass(frozen=True, slots=True)
class ExecConfig:
    """What the settings say of commands. `server` tells whose execs are whose in a shared Redis."""

    server: str
    timeout_ms: int
    output_limit_bytes: int
    max_running: int
    keep: KeepLimits


def author(participant: Participant) -> dict[str, Any]:
    """`by` of an event."""
    return {"id": participant.id, "name": participant.name, "kind": participant.kind}


def started_fields(by: Participant, request: Exec) -> dict[str, Any]:
    """What `exec.started` says of a request, besides where it runs."""
    fields: dict[str, Any] = {
        "by": author(by),
        "command": request.command or _shown(request.argv or []),
        "cwd": request.cwd or WORKDIR,
    }
    if request.pty is not None:
        fields["pty"] = request.pty.wire()
    if request.stdin:
        fields["stdin"] = True
    return fields


def _shown(argv: list[str]) -> str:
    """An argv as a shell would need it written, cut where quoting made it longer than a command."""
    line = shlex.join(argv).encode()
    if len(line) <= names.COMMAND_BYTES:
        return line.decode()
    return line[: names.COMMAND_BYTES].decode(errors="ignore") + "…"


def content_of(request: Exec) -> dict[str, Any]:
    """What its author gave, for the fingerprint of its key."""
    return request.model_dump(exclude={"ref", "key"}, exclude_none=True)


async def read_output(
    execlog: ExecLog, run: Run | None, exec_id: str, stream: str, span: tuple[int, int]
) -> tuple[list[Piece], int, Order]:
    """Kept output of a stream between two offsets, its end so far, and its order."""
    if run is not None:
        out = run.streams.get(stream)
        if out is None:
            return [], 0, run.order
        return list(out.kept.read(*span)), out.kept.end, run.order
    space = exec_id.rpartition(".")[0]
    known = await execlog.ends(space, exec_id)
    if known is None:
        raise UnknownExec("There is no such command, or its output is kept no longer.")
    ends, order = known
    end = ends.get(stream, 0)
    return await execlog.read(space, exec_id, stream, (span[0], min(end, span[1]))), end, order


async def streams_of(execlog: ExecLog, run: Run | None, exec_id: str) -> Collection[str]:
    """The names of the streams that an exec has printed to; none for one that is not known."""
    if run is not None:
        return run.streams
    known = await execlog.ends(exec_id.rpartition(".")[0], exec_id)
    return () if known is None else known[0]


def spec_of(request: Exec, exec_id: str, config: ExecConfig) -> ExecSpec:
    """What the sandbox is told of a request. Raises InvalidSpec."""
    return ExecSpec(
        exec=short_id(exec_id),
        command=request.command,
        argv=None if request.argv is None else tuple(request.argv),
        cwd=request.cwd,
        env=request.env or {},
        timeout_ms=request.timeout_ms or config.timeout_ms,
        stdin=request.stdin,
        pty=None if request.pty is None else (request.pty.cols, request.pty.rows),
        output_limit_bytes=config.output_limit_bytes,
    )


def short_id(exec_id: str) -> str:
    """An exec's id within its sandbox: ids on the wire name their place before it."""
    return exec_id.rpartition(".")[2]


async def result_of(
    manager: Manager, sandbox: SandboxSpec, request: Exec, run: Run, config: ExecConfig
) -> ExecResult:
    """Run it; whatever goes wrong becomes a result."""
    began = time.monotonic()
    try:
        spec = spec_of(request, run.exec, config)
        run.process = await manager.execute(sandbox, spec, run)
        run.settled.set()
        if run.cancelled:
            await run.process.cancel()
        return await run.process.wait()
    except Detached:
        raise  # not an end: a later server goes on with it
    except InvalidSpec as error:
        return _failed("command_failed", error.message, began, retryable=False)
    except SandboxError as error:
        return _failed("sandbox_unavailable", error.message, began, retryable=True)
    except Exception:
        incident = secrets.token_hex(4)
        log.exception("an exec failed", exec=run.exec, incident=incident)
        message = f"Something went wrong on the server; incident {incident}."
        return _failed("internal_error", message, began, retryable=False)


async def end_left(manager: Manager, sandbox: str, exec_id: str) -> int:
    """End what a command that ended has left running; how many processes that was.

    Raises Unavailable where the sandbox does not say.
    """
    try:
        return await manager.kill_children(sandbox, short_id(exec_id))
    except UnknownSandbox:
        return 0
    except SandboxError as error:
        raise Unavailable(error.message, retry_after_ms=1000) from None


async def left_by(manager: Manager, sandbox: str, space: str) -> list[dict[str, Any]]:
    """What ended commands left running in a sandbox, whose execs' ids begin with `space`."""
    try:
        found = await manager.children(sandbox)
    except SandboxError:
        return []
    return [
        {
            "exec": f"{space}.{child.exec}",
            "pid": child.pid,
            "command": child.command,
            "startedTs": child.started_ms,
        }
        for child in found
    ]


async def met_again(
    manager: Manager, sandbox: str, run: Run, ends: Mapping[str, int]
) -> Process | None:
    """The process of a command that outlived its server, from `ends` on; None where it is gone.

    Waits for an engine to ask.
    """
    wait_s = RETRY_MIN_S
    while True:
        try:
            process = await manager.adopt(sandbox, short_id(run.exec), run, ends)
        except SandboxUnavailable as error:
            log.warning("a command is not met again yet", exec=run.exec, error=error.message)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)
        else:
            break
    if process is not None:
        run.process = process
        run.settled.set()
        if run.cancelled:
            await process.cancel()
        for stream in run.streams.values():
            run.grant(stream)
    return process


async def unknown_end(started_ms: int) -> ExecResult:
    """The end of an exec that its sandbox does not know any more. It is never ok."""
    elapsed_ms = max(0, int(time.time() * 1000) - started_ms)
    message = "The server stopped while this ran, and its sandbox does not know it any more."
    return ExecResult("sandbox_terminated", message, True, None, None, elapsed_ms)  # noqa: FBT003


async def unavailable(message: str) -> ExecResult:
    """The result of what could not even be tried."""
    return ExecResult("sandbox_unavailable", message, True, None, None, 0)  # noqa: FBT003


def _failed(reason: str, message: str, began: float, *, retryable: bool) -> ExecResult:
    elapsed_ms = int((time.monotonic() - began) * 1000)
    return ExecResult(reason, message, retryable, None, None, elapsed_ms)


async def live(run: Run, work: Awaitable[ExecResult]) -> dict[str, Any]:
    """Await a command's result while its output is stored; returns the fields of its end."""
    storing = asyncio.ensure_future(run.keep_stored())
    # Where the start is never delivered, output must not wait for ever for it.
    late = asyncio.get_running_loop().call_later(DELIVERY_S, run.started)
    try:
        result = await work
        run.ended = True
        run.settled.set()
    finally:
        late.cancel()
        storing.cancel()
    return await run.finish(result)
