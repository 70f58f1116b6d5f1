"""Execs in sandboxes without a room: told to the session that asked, without room and offset.

Rooms' execs are `execs`; both share one command's life, which is `running`.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from protocol.codec import JSON
from protocol.commands import Exec
from protocol.errors import DuetError, KeyConflict, LimitReached, UnknownExec
from protocol.model import Participant, PtySize
from sandbox.errors import Detached
from sandbox.manager import Manager
from sandbox.results import ExecResult
from sandbox.spec import SandboxSpec
from server.execlog import ExecLog
from server.order import Order
from server.outbox import Source
from server.output import Piece
from server.room import Listener, Tasks
from server.run import Run, StreamOut
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
from server.solo_log import SoloLog
from server.store import Store
from server.wire import Outgoing

MARK = "@"
"""Exec ids of sandboxes begin with it; rooms' ids cannot."""
_KEY_S = 24 * 60 * 60


class _Audience:
    """The sessions that asked, as a run's place; none where it was asked over HTTP.

    `begun` is its start, `started` the frame of that, `exited` its end once that was told.
    """

    def __init__(self, started: Mapping[str, Any]) -> None:
        self.begun = started
        self.started = Outgoing(started)
        self.exited: Mapping[str, Any] | None = None
        self.listeners: set[Listener] = set()

    def begin(self, listener: Listener | None) -> None:
        """Tell the start to who asks for it; the rest is told from here on."""
        if listener is not None:
            self.listeners.add(listener)
            listener.send(self.started)

    def add(self, listener: Listener, streams: Iterable[StreamOut]) -> None:
        """One that asks later; what it was not sent is told as a gap."""
        if listener in self.listeners:
            return
        self.begin(listener)
        for stream in streams:
            if position := stream.joiner.position:
                listener.send(stream.gap_frame(0, position))

    def broadcast(self, frame: Outgoing) -> None:
        for listener in self.listeners:
            listener.send(frame)

    def broadcast_output(self, source: Source, start: int, end: int, frame: Outgoing) -> None:
        for listener in self.listeners:
            listener.send_output(source, start, end, frame)

    def end(self, run: Run, by: Mapping[str, Any], exited: Mapping[str, Any]) -> None:
        """Tell the end, after what was lost of its streams."""
        self.exited = exited
        frame = Outgoing({"type": "exec.exited", "by": by, **exited})
        for listener in self.listeners:
            for source in run.sources:
                listener.tell_gap(source)
            listener.send(frame)


class SoloExecs:
    """Starts and finds execs of sandboxes that have no room."""

    def __init__(
        self,
        *,
        manager: Manager,
        store: Store,
        execlog: ExecLog,
        log: SoloLog,
        config: ExecConfig,
        tasks: Tasks,
    ) -> None:
        self._manager = manager
        self._store = store
        self._log = log
        self._execlog = execlog
        self._config = config
        self._tasks = tasks
        self._runs: dict[str, Run] = {}
        self._live: dict[str, int] = {}

    async def start(
        self,
        sandbox: SandboxSpec,
        by: Participant,
        request: Exec,
        listener: Listener | None,
        *,
        refused: str | None = None,
    ) -> Run | str:
        """Begin to run a command; the id of the first where its key was used before.

        `refused` says why it cannot run: then that is its end.
        """
        if self._live.get(sandbox.id, 0) >= self._config.max_running:
            return await self._earlier(by, request)
        exec_id = f"{MARK}{sandbox.id}.{secrets.token_hex(8)}"
        started = {"type": "exec.started", "exec": exec_id}
        started |= {} if request.key is None else {"key": request.key}
        started |= started_fields(by, request)
        await self._log.begin(exec_id, {**started, "ts": int(time.time() * 1000)})
        first = ""
        try:
            first = await self._first(by, request, exec_id)
        finally:
            if first != exec_id:
                with suppress(DuetError):  # a later life finds that it never ran
                    await self._log.drop(exec_id)
        if first != exec_id:
            return first
        audience = _Audience(started)
        run = self._begin(exec_id, sandbox.id, audience)
        run.open_to(by.id, stdin=request.stdin, pty=request.pty)
        audience.begin(listener)
        run.started()
        if refused is None:
            work = result_of(self._manager, sandbox, request, run, self._config)
        else:
            work = unavailable(refused)
        self._tasks.create_task(self._live_and_end(sandbox.id, author(by), run, work, audience))
        return run

    def _begin(self, exec_id: str, sandbox: str, audience: _Audience) -> Run:
        run = Run(MARK + sandbox, {"exec": exec_id}, audience, self._execlog, self._config.keep)
        self._runs[exec_id] = run
        self._live[sandbox] = self._live.get(sandbox, 0) + 1
        return run

    async def take_up(self) -> None:
        """Go on with what an earlier life of this server left running. Raises Unavailable."""
        for exec_id, started in (await self._log.running()).items():
            if await self._log.exited(exec_id) is not None:
                await self._log.drop(exec_id)  # it was stopped between the two
                continue
            sandbox = _space(exec_id).removeprefix(MARK)
            ends = await self._execlog.stored_ends(_space(exec_id), exec_id)
            ts = started.pop("ts")
            audience = _Audience(started)
            run = self._begin(exec_id, sandbox, audience)
            pty = PtySize.model_validate(started["pty"]) if "pty" in started else None
            run.open_to(started["by"]["id"], stdin=started.get("stdin", False), pty=pty)
            await run.restore(ends)
            run.started()
            work = self._go_on(sandbox, run, ts, ends)
            by = started["by"]
            self._tasks.create_task(self._live_and_end(sandbox, by, run, work, audience))

    async def _go_on(self, sandbox: str, run: Run, ts: int, ends: Mapping[str, int]) -> ExecResult:
        process = await met_again(self._manager, sandbox, run, ends)
        return await (unknown_end(ts) if process is None else process.wait())

    def find(self, exec_id: str) -> Run:
        """A run that is live or ended a moment ago. Raises UnknownExec."""
        run = self._runs.get(exec_id)
        if run is None:
            raise UnknownExec("There is no such running command.")
        return run

    async def cancel(self, exec_id: str) -> None:
        """As `Execs.cancel`."""
        run = self._runs.get(exec_id)
        sandbox = _space(exec_id).removeprefix(MARK)
        if run is not None and not run.ended:
            await run.cancel()
        elif not await end_left(self._manager, sandbox, exec_id) and run is None:
            raise UnknownExec("There is no such running command.")

    async def children(self, sandbox: str) -> list[dict[str, Any]]:
        """What ended commands left running in it."""
        return await left_by(self._manager, sandbox, MARK + sandbox)

    def running(self, sandbox: str) -> list[dict[str, Any]]:
        """The commands that run in it, the oldest first."""
        return [
            {"exec": run.exec, "started": run.place.begun, "running": True}
            for run in self._runs.values()
            if run.space == MARK + sandbox and not run.ended and isinstance(run.place, _Audience)
        ]

    def live(self, sandbox: str) -> int:
        """How many commands run in a sandbox."""
        return self._live.get(sandbox, 0)

    def forget_listener(self, listener: Listener) -> None:
        """A session is gone: its commands go on, untold."""
        for run in self._runs.values():
            if isinstance(run.place, _Audience):
                run.place.listeners.discard(listener)

    async def ask(self, exec_id: str, listener: Listener) -> Mapping[str, Any] | None:
        """How a command ended; of one that runs None, and this session is told from now on."""
        run = self._runs.get(exec_id)
        if run is None or not isinstance(run.place, _Audience):
            return await self._log.exited(exec_id)
        if run.place.exited is None:
            run.place.add(listener, run.streams.values())
        return run.place.exited

    async def streams(self, exec_id: str) -> Collection[str]:
        """The names of the streams that an exec has printed to."""
        return await streams_of(self._execlog, self._runs.get(exec_id), exec_id)

    async def read(
        self, exec_id: str, stream: str, span: tuple[int, int]
    ) -> tuple[list[Piece], int, Order]:
        """As `Execs.read`."""
        return await read_output(self._execlog, self._runs.get(exec_id), exec_id, stream, span)

    async def _first(self, by: Participant, request: Exec, exec_id: str) -> str:
        """The exec that a key began: this one, or the one of an earlier request."""
        if request.key is None:
            return exec_id
        value = f"{_print(request)} {exec_id}"
        name = _key_name(by, request)
        found = await self._store.call("SET", name, value, "NX", "GET", "EX", _KEY_S)
        return exec_id if found is None else _answer(found, request)

    async def _earlier(self, by: Participant, request: Exec) -> str:
        """The exec that a key began, where no further one may. Raises LimitReached."""
        if request.key is not None:
            found = await self._store.call("GET", _key_name(by, request))
            if found is not None:
                return _answer(found, request)
        message = f"{self._config.max_running} commands run in this sandbox; wait for one."
        raise LimitReached(message)

    async def _live_and_end(
        self,
        sandbox: str,
        by: Mapping[str, Any],
        run: Run,
        work: Awaitable[ExecResult],
        audience: _Audience,
    ) -> None:
        try:
            try:
                fields = await live(run, work)
            finally:
                self._over(sandbox)  # who is told the end may begin the next at once
            exited = {"exec": run.exec, **fields}
            audience.end(run, by, exited)
            if not run.done.done():
                run.done.set_result(fields)
            await self._keep_end(run, exited)
        except Detached:
            run.let_go()
        finally:
            asyncio.get_running_loop().call_later(LINGER_S, self._runs.pop, run.exec, None)

    def _over(self, sandbox: str) -> None:
        self._live[sandbox] -= 1
        if not self._live[sandbox]:
            del self._live[sandbox]

    async def _keep_end(self, run: Run, exited: Mapping[str, Any]) -> None:
        """For who asks later; Redis may be away for a while, so until it is taken."""
        wait_s = RETRY_MIN_S
        while True:
            try:
                if not run.streams:
                    await self._execlog.store_ends(run.space, run.exec, {}, run.order)
                await self._log.end(run.exec, exited)
            except DuetError:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
            else:
                break
        if run.process is not None:
            run.process.confirm()


def _space(exec_id: str) -> str:
    return exec_id.rpartition(".")[0]


def _key_name(by: Participant, request: Exec) -> str:
    return f"duet:solo:key:{by.id}:{request.key}"


def _print(request: Exec) -> str:
    return hashlib.sha256(JSON.encode(content_of(request))).hexdigest()[:32]


def _answer(found: bytes, request: Exec) -> str:
    """The exec that a used key began. Raises KeyConflict where it was for something else."""
    print_, first = found.decode().split(" ", 1)
    if print_ != _print(request):
        raise KeyConflict("This key was used before with other content; use a new key.")
    return first
