"""Execs of rooms: started in the log, run in the room's sandbox, ended in the log exactly once."""

import asyncio
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.codec import JSON
from protocol.commands import Exec
from protocol.errors import DuetError, LimitReached, UnknownExec, UnknownRoom
from protocol.model import Participant
from sandbox.errors import SandboxError
from sandbox.manager import Manager
from sandbox.results import ExecResult
from sandbox.spec import WORKDIR, ExecSpec, SandboxSpec
from server import logs
from server.execlog import ExecLog
from server.order import Order
from server.output import Piece
from server.room import Room, Tasks
from server.roomlog import Append, Appended, RoomLog
from server.run import KeepLimits, Run

log = logs.get("exec")

LINGER_S = 6.0
"""A run's output stays in memory this long after its end, for joins that were under way."""
_RETRY_MIN_S, _RETRY_MAX_S = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class ExecConfig:
    """What the settings say of commands. `server` tells whose execs are whose in a shared Redis."""

    server: str
    timeout_ms: int
    output_limit_bytes: int
    max_running: int
    keep: KeepLimits


class Execs:
    """Starts, finds and ends execs. `sandbox_of` gives the spec of a room's own sandbox."""

    def __init__(
        self,
        *,
        roomlog: RoomLog,
        execlog: ExecLog,
        manager: Manager,
        sandbox_of: Callable[[str], SandboxSpec],
        config: ExecConfig,
        tasks: Tasks,
    ) -> None:
        self._roomlog = roomlog
        self._execlog = execlog
        self._manager = manager
        self._sandbox_of = sandbox_of
        self._config = config
        self._tasks = tasks
        self._runs: dict[str, Run] = {}
        self._live: dict[str, set[str]] = {}

    async def start(
        self, room: Room, by: Participant, request: Exec, *, turn: str | None = None
    ) -> tuple[Appended, Run | None]:
        """Store `exec.started` and begin to run it; `turn` is the agent's, where it wants this.

        With a key that was used before, the first answer and no new run. Raises LimitReached.
        """
        if len(self._live.get(room.id, ())) >= self._config.max_running:
            message = f"{self._config.max_running} commands run in this room; wait for one to end."
            raise LimitReached(message)
        exec_id = f"{room.id}.{secrets.token_hex(8)}"
        run = Run(room.id, exec_id, room, self._execlog, self._config.keep)
        run.takes_input = request.stdin or request.pty is not None
        run.gone = lambda: self._linger(room, exec_id)
        self._begin(room, run)
        try:
            started = self._started(room, by, request, run, turn)
            appended = await self._roomlog.append(room.id, started)
        except BaseException:
            self._forget(room, exec_id)
            raise
        if appended.answer != exec_id:
            self._forget(room, exec_id)
            return appended, self._runs.get(appended.answer)
        self._tasks.create_task(self._live_and_end(room, by, request, run))
        return appended, run

    def _started(
        self, room: Room, by: Participant, request: Exec, run: Run, turn: str | None
    ) -> Append:
        body: dict[str, Any] = {
            "type": "exec.started",
            "room": room.id,
            "by": author(by),
            "exec": run.exec,
            "command": shown(request),
            "cwd": request.cwd or WORKDIR,
        }
        if request.pty is not None:
            body["pty"] = request.pty.wire()
        if request.key is not None:
            body["key"] = request.key
        if turn is not None:
            body["turn"] = turn
        return Append(
            body,
            content=request.model_dump(exclude={"ref", "key"}, exclude_none=True),
            key=request.key,
            answer=run.exec,
            op="start",
            subject=run.exec,
            value=f"{self._config.server} {JSON.encode(body).decode()}",
        )

    def find(self, exec_id: str) -> Run:
        """A run that is live or ended a moment ago. Raises UnknownExec."""
        run = self._runs.get(exec_id)
        if run is None:
            raise UnknownExec("There is no such running command.")
        return run

    async def cancel(self, run: Run) -> None:
        """Ask for its end; `exec.exited` tells when it came. Idempotent."""
        run.cancelled = True
        if run.process is not None:
            await run.process.cancel()

    async def read(
        self, room: str, exec_id: str, stream: str, span: tuple[int, int]
    ) -> tuple[list[Piece], int, Order]:
        """Kept output of a stream between two offsets, its end so far, and its order."""
        run = self._runs.get(exec_id)
        if run is not None:
            out = run.streams.get(stream)
            if out is None:
                return [], 0, run.order
            return list(out.kept.read(*span)), out.kept.end, run.order
        known = await self._execlog.ends(room, exec_id)
        if known is None:
            raise UnknownExec("There is no such command, or its output is kept no longer.")
        ends, order = known
        end = ends.get(stream, 0)
        pieces = await self._execlog.read(room, exec_id, stream, (span[0], min(end, span[1])))
        return pieces, end, order

    def live(self, room: str) -> list[str]:
        return sorted(self._live.get(room, ()))

    async def settle(self, room: str) -> None:
        """Tell the end of what an earlier life of this server left running: nobody saw it."""
        for exec_id, running in (await self._roomlog.running(room)).items():
            if running.server != self._config.server or exec_id in self._runs:
                continue
            started = running.started.event()
            ends = await self._execlog.stored_ends(room, exec_id)
            await self._execlog.store_ends(room, exec_id, ends, Order())
            fields = {
                "ok": False,
                "reason": "sandbox_terminated",
                "message": "The server stopped while this ran; how it went on is not known.",
                "retryable": True,
                "durationMs": max(0, int(time.time() * 1000) - started["ts"]),
                "bytes": {"stdout": 0, "stderr": 0, **ends},
                "truncated": dict.fromkeys(ends, True),
            }
            await self._append_exited(room, exec_id, started["by"], fields)

    # One life

    async def _live_and_end(self, room: Room, by: Participant, request: Exec, run: Run) -> None:
        storing = asyncio.ensure_future(run.keep_stored())
        try:
            result = await self._result(room.id, request, run)
            storing.cancel()
            run.ended = True
            run.settled.set()
            fields = await run.finish(result)
            await self._tell_end(room, run, author(by), fields)
        finally:
            storing.cancel()
            self._live.get(room.id, set()).discard(run.exec)

    async def _result(self, room: str, request: Exec, run: Run) -> ExecResult:
        """Run it; whatever goes wrong becomes a result."""
        began = time.monotonic()
        try:
            run.process = await self._manager.execute(
                self._sandbox_of(room), self._spec(request, run), run
            )
            run.settled.set()
            if run.cancelled:
                await run.process.cancel()
            return await run.process.wait()
        except SandboxError as error:
            reason, message = "sandbox_unavailable", error.message
        except Exception:
            incident = secrets.token_hex(4)
            log.exception("an exec failed", room=room, exec=run.exec, incident=incident)
            reason = "internal_error"
            message = f"Something went wrong on the server; incident {incident}."
        elapsed_ms = int((time.monotonic() - began) * 1000)
        retryable = reason == "sandbox_unavailable"
        return ExecResult(reason, message, retryable, None, None, elapsed_ms)

    def _spec(self, request: Exec, run: Run) -> ExecSpec:
        return ExecSpec(
            exec=run.exec.rpartition(".")[2],
            command=request.command,
            argv=None if request.argv is None else tuple(request.argv),
            cwd=request.cwd,
            env=request.env or {},
            timeout_ms=request.timeout_ms or self._config.timeout_ms,
            stdin=request.stdin,
            pty=None if request.pty is None else (request.pty.cols, request.pty.rows),
            output_limit_bytes=self._config.output_limit_bytes,
        )

    async def _tell_end(
        self, room: Room, run: Run, by: dict[str, Any], fields: dict[str, Any]
    ) -> None:
        """Append `exec.exited`; Redis may be away for a while, so until it is taken."""
        wait_s = _RETRY_MIN_S
        while True:
            try:
                await self._append_exited(room.id, run.exec, by, fields)
                if not run.streams:
                    await self._execlog.store_ends(room.id, run.exec, {}, run.order)
            except (UnknownRoom, UnknownExec):
                self._forget(room, run.exec)
                break
            except DuetError as error:
                log.warning("an end is not stored yet", exec=run.exec, error=error.message)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RETRY_MAX_S)
            else:
                break
        if not run.done.done():
            run.done.set_result(fields)

    async def _append_exited(
        self, room: str, exec_id: str, by: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> None:
        head = {"type": "exec.exited", "room": room, "by": by, "exec": exec_id}
        append = Append({**head, **fields}, content={}, answer=exec_id, op="exit", subject=exec_id)
        await self._roomlog.append(room, append)

    # Bookkeeping

    def _begin(self, room: Room, run: Run) -> None:
        self._runs[run.exec] = run
        room.execs[run.exec] = run
        self._live.setdefault(room.id, set()).add(run.exec)

    def _linger(self, room: Room, exec_id: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(LINGER_S, self._forget, room, exec_id)

    def _forget(self, room: Room, exec_id: str) -> None:
        self._runs.pop(exec_id, None)
        room.execs.pop(exec_id, None)
        self._live.get(room.id, set()).discard(exec_id)


def author(participant: Participant) -> dict[str, Any]:
    """`by` of an event."""
    return {"id": participant.id, "name": participant.name, "kind": participant.kind}


def shown(request: Exec) -> str:
    """The command as people see it; an argv as a shell would need it written."""
    if request.command is not None:
        return request.command

    return shlex.join(request.argv or ())
