"""Execs of rooms: started in the log, run in the room's sandbox, ended in the log exactly once."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from protocol.codec import JSON
from protocol.commands import Exec
from protocol.errors import DuetError, LimitReached, Unavailable, UnknownExec, UnknownRoom
from protocol.model import Participant, PtySize
from sandbox.errors import Detached, SandboxError
from sandbox.manager import Manager
from sandbox.results import ExecResult
from sandbox.spec import SandboxSpec
from server import logs
from server.execlog import ExecLog
from server.order import Order
from server.output import Piece
from server.room import Room, Tasks
from server.roomlog import Append, Appended, RoomLog, Running
from server.run import Run
from server.running import (
    LINGER_S,
    RETRY_MAX_S,
    RETRY_MIN_S,
    ExecConfig,
    author,
    content_of,
    end_left,
    left_by,
    live,
    met_again,
    read_output,
    result_of,
    started_fields,
    streams_of,
    unavailable,
    unknown_end,
)

log = logs.get("exec")


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
        self, room: Room, by: Participant, request: Exec, *, turn: tuple[str, int] | None = None
    ) -> tuple[Appended, Run | None]:
        """Store `exec.started` and begin to run it; `turn` is the agent's, where it wants this,
        and the place in its words.

        With a key that was used before, the first answer and no new run. Raises LimitReached.
        """
        full = self._full(room.id)
        if full is not None and request.key is None:
            raise full
        exec_id = f"{room.id}.{secrets.token_hex(8)}"
        run = self._run(room, exec_id)
        run.open_to(by.id, stdin=request.stdin, pty=request.pty)
        self._begin(room, run)
        started = replace(self._started(room, by, request, run, turn), full=full)
        try:
            appended = await self._roomlog.append(room.id, started)
        except BaseException as error:
            if isinstance(error, Unavailable | asyncio.CancelledError):
                # The answer is lost, not the question: what the log may hold must have its end.
                self._tasks.create_task(self._end_unrun(room, by, run, started))
            else:
                self._forget(room, exec_id)
            raise
        run.stored = True
        if appended.answer != exec_id:
            self._forget(room, exec_id)
            return appended, self._runs.get(appended.answer)
        sandbox = self._sandbox_of(room.id)
        work = result_of(self._manager, sandbox, request, run, self._config)
        self._tasks.create_task(self._live_and_end(room, author(by), run, work))
        return appended, run

    def _full(self, room_id: str) -> LimitReached | None:
        """Why no further command may start now. What a key began before is answered even so."""
        # One that has ended is live until its end is stored, but who reads that may begin the next.
        found = [self._runs.get(exec_id) for exec_id in self._live.get(room_id, ())]
        if sum(run is not None and not run.ended for run in found) < self._config.max_running:
            return None
        message = f"{self._config.max_running} commands run in this room; wait for one to end."
        return LimitReached(message)

    async def _end_unrun(self, room: Room, by: Participant, run: Run, started: Append) -> None:
        """Find out whether a start was stored after all, and tell that it was not run."""
        wait_s = RETRY_MIN_S
        while True:
            try:
                appended = await self._roomlog.append(room.id, started)
            except Unavailable:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
            except DuetError:
                self._forget(room, run.exec)
                return
            else:
                break
        if appended.answer != run.exec:
            self._forget(room, run.exec)
            return
        run.stored = True
        message = "The history store did not answer in time, so the command was not run."
        await self._live_and_end(room, author(by), run, unavailable(message))

    def _run(self, room: Room, exec_id: str) -> Run:
        head = {"room": room.id, "exec": exec_id}
        run = Run(room.id, head, room, self._execlog, self._config.keep)
        run.gone = lambda: self._linger(room, exec_id)
        return run

    def _started(
        self, room: Room, by: Participant, request: Exec, run: Run, turn: tuple[str, int] | None
    ) -> Append:
        head = {"type": "exec.started", "room": room.id, "exec": run.exec}
        body: dict[str, Any] = {**head, **started_fields(by, request)}
        if turn is not None:
            body["turn"], body["at"] = turn
        if request.key is not None:
            body["key"] = request.key
        return Append(
            body,
            content=content_of(request),
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

    async def cancel(self, room_id: str, exec_id: str) -> None:
        """Ask for the end of a command and all it started; `exec.exited` tells when it came.

        Of one that has ended, what it left running is ended. Raises UnknownExec, Unavailable.
        """
        run = self._runs.get(exec_id)
        sandbox = self._sandbox_of(room_id).id
        if run is not None and not run.ended:
            await run.cancel()
        elif not await end_left(self._manager, sandbox, exec_id) and run is None:
            raise UnknownExec("There is no such running command.")

    async def children(self, room_id: str) -> list[dict[str, Any]]:
        """What ended commands left running in a room's sandbox."""
        return await left_by(self._manager, self._sandbox_of(room_id).id, room_id)

    async def streams(self, exec_id: str) -> Collection[str]:
        """The names of the streams that an exec has printed to."""
        return await streams_of(self._execlog, self._runs.get(exec_id), exec_id)

    async def read(
        self, exec_id: str, stream: str, span: tuple[int, int]
    ) -> tuple[list[Piece], int, Order]:
        """Kept output of a stream between two offsets, its end so far, and its order."""
        return await read_output(self._execlog, self._runs.get(exec_id), exec_id, stream, span)

    def live(self, room: str) -> list[str]:
        return sorted(self._live.get(room, ()))

    # What an earlier life of this server left running

    async def left_running(self, room: str) -> dict[str, Running]:
        """This server's execs that the log holds as started and not ended, and nobody runs."""
        found = await self._roomlog.running(room)
        return {
            exec_id: running
            for exec_id, running in found.items()
            if running.server == self._config.server and exec_id not in self._runs
        }

    async def take_up(self, room: Room, exec_id: str, running: Running) -> None:
        """Go on with an exec that outlived its server, or tell the end that nobody saw."""
        started = running.started.event()
        run = self._run(room, exec_id)
        run.stored = True
        pty = PtySize.model_validate(started["pty"]) if "pty" in started else None
        run.open_to(started["by"]["id"], stdin=started.get("stdin", False), pty=pty)
        ends = await self._execlog.stored_ends(room.id, exec_id)
        await run.restore(ends)
        self._begin(room, run)
        run.started()
        self._tasks.create_task(self._go_on(room, run, started, ends))

    async def _go_on(
        self, room: Room, run: Run, started: dict[str, Any], ends: Mapping[str, int]
    ) -> None:
        """Meet the command again, as soon as there is an engine to ask; then as any other."""
        process = await met_again(self._manager, self._sandbox_of(room.id).id, run, ends)
        work = unknown_end(started["ts"]) if process is None else process.wait()
        await self._live_and_end(room, started["by"], run, work)

    # One life

    async def _live_and_end(
        self, room: Room, by: Mapping[str, Any], run: Run, work: Awaitable[ExecResult]
    ) -> None:
        try:
            fields = await live(run, work)
            await self._tell_end(room, run, by, fields)
        except Detached:
            log.info("a command goes on without this server", exec=run.exec)
            run.let_go()
        finally:
            self._over(room.id, run.exec)

    async def _tell_end(
        self, room: Room, run: Run, by: Mapping[str, Any], fields: dict[str, Any]
    ) -> None:
        """Append `exec.exited`; Redis may be away for a while, so until it is taken."""
        wait_s = RETRY_MIN_S
        while True:
            try:
                await self._append_exited(room.id, run.exec, by, fields)
                if run.process is not None:
                    run.process.confirm()
                if not run.streams:
                    await self._execlog.store_ends(room.id, run.exec, {}, run.order)
            except (UnknownRoom, UnknownExec) as error:
                self._forget(room, run.exec)
                if isinstance(error, UnknownRoom):
                    await self._destroy_sandbox(room.id)
                break
            except DuetError as error:
                log.warning("an end is not stored yet", exec=run.exec, error=error.message)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
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
        self._over(room.id, exec_id)

    def _over(self, room_id: str, exec_id: str) -> None:
        live = self._live.get(room_id, set())
        live.discard(exec_id)
        if not live:
            self._live.pop(room_id, None)

    async def _destroy_sandbox(self, room_id: str) -> None:
        """The room was deleted under a command, which may have brought its sandbox back."""
        try:
            await self._manager.destroy(self._sandbox_of(room_id).id)
        except SandboxError as error:
            log.warning("a deleted room's sandbox is left", room=room_id, error=error.message)
