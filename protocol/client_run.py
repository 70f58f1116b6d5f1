"""One command that runs in a room, as its client sees it: output chunks, then one end.

Puts the bytes in order, without overlap, and reads holes again from the server. How frames get
here is `client`'s business.
"""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from protocol import commands, events, names, shapes
from protocol.client_queue import ByteQueue, QueueEnd
from protocol.errors import BadFrame, DuetError

RUN_QUEUE_BYTES = 1024 * 1024
"""Unread output held per run; older bytes are dropped and read again from the server."""
RUN_DEFAULT_S = 10 * 60.0
"""How long a command may run where nothing else is said; the server's own default."""
RUN_GRACE_S = 60.0
"""Beyond the command's own time limit: a sandbox that starts, a kill, the way back."""
INPUT_CHUNK_BYTES = 48 * 1024
"""Bytes in one exec.input: base64 of it stays well under the frame limit."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Output bytes; `at` is the offset of the first in its stream."""

    stream: str
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes `at` to `to` (exclusive) of a stream that were not sent."""

    stream: str
    at: int
    to: int


Started = events.ExecStarted | events.SandboxExecStarted
Exited = shapes.Exited


class Wire(Protocol):
    """What a run needs of its connection."""

    async def request(self, command: commands.Command) -> events.Ack:
        """Send, and wait for the `ack`. Raises DuetError, Disconnected or TimeoutError."""

    async def read(self, command: commands.ExecRead) -> list[Chunk | Hole]:
        """What the server still has of a stream from `at`, at most `limit` bytes."""


def chunk(frame: dict[str, Any]) -> Chunk:
    """An `exec.output` frame, checked by hand: it is the hot path. Raises BadFrame."""
    stream, at, data = frame.get("stream"), frame.get("at"), frame.get("data")
    if data is None and isinstance(encoded := frame.get("base64"), str):
        data = _unbase64(encoded)
    if isinstance(data, str):
        data = data.encode()
    if not (isinstance(stream, str) and isinstance(at, int) and isinstance(data, bytes)):
        raise BadFrame("The server sent an exec.output that is none.")
    return Chunk(stream, at, data)


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadFrame("The server sent base64 that is none.") from None


class Run:
    """One exec. Iterate it for its output (once), or only `wait` for its end, or both.

    The iterator gives every byte of each stream once and in order. What this client was not
    sent, or did not take in time, is fetched with `exec.read`; what the server no longer keeps
    is skipped and counted in `lost_bytes`.
    """

    def __init__(self, wire: Wire, *, timeout_ms: int | None = None) -> None:
        self._wire = wire
        self._queue: ByteQueue[Chunk | Hole | Exited] = ByteQueue(RUN_QUEUE_BYTES)
        self._next: dict[str, int] = {}
        self._over = asyncio.Event()
        self._failure: Exception | None = None
        limit_s = RUN_DEFAULT_S if timeout_ms is None else timeout_ms / 1000
        self._deadline = asyncio.get_running_loop().time() + limit_s + RUN_GRACE_S
        self.id = ""
        """The exec's id; known once the server has acknowledged it."""
        self.started: Started | None = None
        self.result: Exited | None = None
        self.lost_bytes = 0

    async def wait(self) -> Exited:
        """The end: `ok`, `reason`, `exit_code`, and the first and last of what was printed.

        Raises Disconnected or DuetError when this session will not hear of it, TimeoutError
        one minute after the command's own time limit.
        """
        async with asyncio.timeout_at(self._deadline):
            await self._over.wait()
        if self.result is None:
            raise self._failure or DuetError("The command's end is not known.")
        return self.result

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    item = await self._queue.get()
            except QueueEnd:
                return
            async for piece in self._in_order(item):
                yield piece

    async def _in_order(self, item: Chunk | Hole | Exited) -> AsyncIterator[Chunk]:
        if isinstance(item, Exited):
            for stream, size in item.bytes.items():
                async for piece in self._up_to(stream, size):
                    yield piece
        elif isinstance(item, Hole):
            async for piece in self._up_to(item.stream, item.to):
                yield piece
        else:
            async for piece in self._up_to(item.stream, item.at):
                yield piece
            for piece in self._fresh(item):
                yield piece

    async def _up_to(self, stream: str, to: int) -> AsyncIterator[Chunk]:
        """Fetch what is missing before `to`; skip what is gone."""
        while (at := self._next.get(stream, 0)) < to:
            limit = min(to - at, names.READ_LIMIT_DEFAULT_BYTES)
            for item in await self._read(stream, at, limit):
                end = item.to if isinstance(item, Hole) else item.at
                self._skip(stream, min(end, to))
                if isinstance(item, Chunk):
                    for piece in self._fresh(item):
                        yield piece
            if self._next.get(stream, 0) == at:
                self._skip(stream, to)

    async def _read(self, stream: str, at: int, limit: int) -> list[Chunk | Hole]:
        asked = {"exec": self.id, "stream": stream, "at": at, "limit": limit}
        try:
            return await self._wire.read(commands.ExecRead.model_validate(asked))
        except (DuetError, ValidationError):
            return []  # not kept, not for us, a stream too new: the caller counts it as lost

    def _skip(self, stream: str, to: int) -> None:
        at = self._next.get(stream, 0)
        if to > at:
            self.lost_bytes += to - at
            self._next[stream] = to

    def _fresh(self, item: Chunk) -> Iterator[Chunk]:
        """The part of a chunk that was not given yet."""
        known = self._next.get(item.stream, 0)
        data = item.data[max(0, known - item.at) :]
        if data:
            at = item.at + len(item.data) - len(data)
            self._next[item.stream] = at + len(data)
            yield Chunk(item.stream, at, data)

    async def input(self, data: bytes | str, *, eof: bool = False) -> None:
        """Write to the command's standard input; needs `stdin=True` or a `pty`."""
        raw = data.encode() if isinstance(data, str) else data
        pieces = [
            raw[at : at + INPUT_CHUNK_BYTES] for at in range(0, len(raw), INPUT_CHUNK_BYTES)
        ] or [b""]
        for number, piece in enumerate(pieces, 1):
            await self._wire.request(
                commands.ExecInput(
                    exec=self.id,
                    base64=base64.b64encode(piece).decode(),
                    eof=eof and number == len(pieces),
                )
            )

    async def resize(self, cols: int, rows: int) -> None:
        await self._wire.request(commands.ExecResize(exec=self.id, cols=cols, rows=rows))

    async def signal(self, signal: str) -> None:
        """Signal the command's process group, e.g. `INT`."""
        await self._wire.request(commands.ExecSignal(exec=self.id, signal=signal))

    async def cancel(self) -> None:
        """End everything the command started; its result's reason is `cancelled`."""
        await self._wire.request(commands.ExecCancel(exec=self.id))

    def take(self, item: Chunk | Hole) -> None:
        """From the reader: output, or a gap in it."""
        self._queue.put(item, len(item.data) if isinstance(item, Chunk) else 0)

    def end(self, result: Exited | None, failure: Exception | None = None) -> None:
        """From the reader: the one end, or why it will not be heard of."""
        if self._over.is_set():
            return
        self.result, self._failure = result, failure
        if result is not None:
            self._queue.put(result, 0)
        self._queue.close(failure)
        self._over.set()


class Runs:
    """The runs of one connection, found by exec id and, before it is known, by key."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._by_key: dict[str, Run] = {}
        self._by_id: dict[str, Run] = {}

    async def start(self, asked: commands.Exec) -> Run:
        """Ask for a command, and wait until it is acknowledged. A `key` is made where none is."""
        key = asked.key or secrets.token_urlsafe(12)
        run = self.expect(key, asked.timeout_ms)
        exec_id = None
        try:
            exec_id = (await self._wire.request(asked.model_copy(update={"key": key}))).exec
        finally:
            self.answered(key, exec_id)
        return run

    def expect(self, key: str, timeout_ms: int | None) -> Run:
        """A run that is about to be asked for: its events may come before the answer."""
        run = self._by_key[key] = Run(self._wire, timeout_ms=timeout_ms)
        return run

    def answered(self, key: str, exec_id: str | None) -> None:
        """The request was acknowledged with an id, or failed (None)."""
        run = self._by_key.pop(key)
        if exec_id is not None and not run.id:
            self._follow(run, exec_id)

    def follow(self, exec_id: str) -> Run:
        """The run of an exec that somebody else started, or the one we have."""
        return self._by_id.get(exec_id) or self._follow(Run(self._wire), exec_id)

    def _follow(self, run: Run, exec_id: str) -> Run:
        run.id = exec_id
        self._by_id[exec_id] = run
        return run

    def started(self, event: Started, *, own: bool) -> None:
        expected = self._by_key.get(event.key or "") if own else None
        run = expected or self._by_id.get(event.exec)
        if run is not None:
            self._follow(run, event.exec).started = event

    def output(self, exec_id: str, item: Chunk | Hole) -> None:
        """Output of an exec that nobody follows here is dropped."""
        if (run := self._by_id.get(exec_id)) is not None:
            run.take(item)

    def exited(self, event: Exited) -> None:
        if (run := self._by_id.pop(event.exec, None)) is not None:
            run.end(event)

    def fail(self, failure: Exception, *, room: str | None = None) -> None:
        """No more will be heard of the runs (of one room)."""
        for run in [*self._by_id.values(), *self._by_key.values()]:
            if room is None or getattr(run.started, "room", None) == room:
                self._by_id.pop(run.id, None)
                run.end(None, failure)
