"""Execs in sandboxes without a room: told to the session that asked, without room and offset.

Rooms' execs are `execs`; both share one command's life, which is `running`.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress

from protocol.codec import JSON
from protocol.commands import Exec
from protocol.errors import DuetError, KeyConflict, LimitReached, UnknownExec
from protocol.model import Participant
from sandbox.errors import Detached
from sandbox.manager import Manager
from sandbox.results import ExecResult
from sandbox.spec import SandboxSpec
from server.execlog import ExecLog
from server.order import Order
from server.outbox import Source
from server.output import Piece
from server.room import Listener, Tasks
from server.run import Run
from server.running import (
    LINGER_S,
    ExecConfig,
    author,
    content_of,
    live,
    read_output,
    result_of,
    started_fields,
    streams_of,
    unavailable,
)
from server.store import Store
from server.wire import Outgoing

MARK = "@"
"""Exec ids of sandboxes begin with it; rooms' ids cannot."""
_KEY_S = 24 * 60 * 60


class _Audience:
    """The one session that asked, as a run's place; none where it was asked over HTTP."""

    def __init__(self, listener: Listener | None) -> None:
        self.listener = listener

    def broadcast(self, frame: Outgoing) -> None:
        if self.listener is not None:
            self.listener.send(frame)

    def broadcast_output(self, source: Source, start: int, end: int, frame: Outgoing) -> None:
        if self.listener is not None:
            self.listener.send_output(source, start, end, frame)

    def broadcast_end(self, sources: Sequence[Source], frame: Outgoing) -> None:
        """The end, after what was lost of its streams."""
        if self.listener is not None:
            for source in sources:
                self.listener.tell_gap(source)
            self.listener.send(frame)


class SoloExecs:
    """Starts and finds execs of sandboxes that have no room."""

    def __init__(
        self,
        *,
        manager: Manager,
        store: Store,
        execlog: ExecLog,
        config: ExecConfig,
        tasks: Tasks,
    ) -> None:
        self._manager = manager
        self._store = store
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
            message = f"{self._config.max_running} commands run in this sandbox; wait for one."
            raise LimitReached(message)
        exec_id = f"{MARK}{sandbox.id}.{secrets.token_hex(8)}"
        first = await self._first(by, request, exec_id)
        if first != exec_id:
            return first
        audience = _Audience(listener)
        space = MARK + sandbox.id
        run = Run(space, {"exec": exec_id}, audience, self._execlog, self._config.keep)
        run.open_to(by.id, stdin=request.stdin, pty=request.pty)
        self._runs[exec_id] = run
        self._live[sandbox.id] = self._live.get(sandbox.id, 0) + 1
        head = {"type": "exec.started", "exec": exec_id}
        head |= {} if request.key is None else {"key": request.key}
        audience.broadcast(Outgoing({**head, **started_fields(by, request)}))
        run.started()
        if refused is None:
            work = result_of(self._manager, sandbox, request, run, self._config)
        else:
            work = unavailable(refused)
        self._tasks.create_task(self._live_and_end(sandbox.id, by, run, work, audience))
        return run

    def find(self, exec_id: str) -> Run:
        """A run that is live or ended a moment ago. Raises UnknownExec."""
        run = self._runs.get(exec_id)
        if run is None:
            raise UnknownExec("There is no such running command.")
        return run

    async def cancel(self, exec_id: str) -> None:
        """As `Execs.cancel`."""
        await self.find(exec_id).cancel()

    def live(self, sandbox: str) -> int:
        """How many commands run in a sandbox."""
        return self._live.get(sandbox, 0)

    def forget_listener(self, listener: Listener) -> None:
        """A session is gone: its commands go on, untold."""
        for run in self._runs.values():
            place = run.place
            if isinstance(place, _Audience) and place.listener is listener:
                place.listener = None

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
        print_ = hashlib.sha256(JSON.encode(content_of(request))).hexdigest()[:32]
        key = f"duet:solo:key:{by.id}:{request.key}"
        value = f"{print_} {exec_id}"
        found = await self._store.call("SET", key, value, "NX", "GET", "EX", _KEY_S)
        if found is None:
            return exec_id
        old_print, first = found.decode().split(" ", 1)
        if old_print != print_:
            raise KeyConflict("This key was used before with other content; use a new key.")
        return str(first)

    async def _live_and_end(
        self,
        sandbox: str,
        by: Participant,
        run: Run,
        work: Awaitable[ExecResult],
        audience: _Audience,
    ) -> None:
        try:
            fields = await live(run, work)
            head = {"type": "exec.exited", "by": author(by), "exec": run.exec}
            audience.broadcast_end(run.sources, Outgoing({**head, **fields}))
            if run.process is not None:
                run.process.confirm()
            if not run.done.done():
                run.done.set_result(fields)
            if not run.streams:
                with suppress(DuetError):  # the end was told; this only lets it be read again
                    await self._execlog.store_ends(run.space, run.exec, {}, run.order)
        except Detached:
            run.let_go()
        finally:
            self._live[sandbox] -= 1
            if not self._live[sandbox]:
                del self._live[sandbox]
            asyncio.get_running_loop().call_later(LINGER_S, self._runs.pop, run.exec, None)
