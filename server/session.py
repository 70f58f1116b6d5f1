"""One live WebSocket: frames in, checked and dispatched in order; frames out through its outbox.

What a command does is `handlers`'; this knows the connection, the codec and the limits.
"""

import asyncio
import secrets
import time
from collections import deque
from typing import Any, Protocol

from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from protocol import names
from protocol.codec import Codec
from protocol.commands import AnyCommand, Hello, parse, usable_ref
from protocol.errors import AlreadyHello, BadFrame, DuetError, HelloRequired, RateLimited
from protocol.model import Participant
from protocol.names import CloseCode
from server import logs
from server.connection import Connection
from server.flusher import Flusher
from server.outbox import Outbox, Source
from server.output import Allowance
from server.room import Room
from server.wire import Outgoing

log = logs.get("session")

_CLOSE_S = 3.0
"""What a peer gets to answer our close before its connection is cut."""


class Handler(Protocol):
    """Who knows what commands do."""

    def welcome(self, session: "Session", hello: Hello) -> dict[str, Any]: ...
    async def handle(self, session: "Session", command: AnyCommand) -> None: ...
    def gone(self, session: "Session") -> None: ...


class Session:
    """A `Listener` of rooms. `run` returns when the connection is closed, whoever closed it."""

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        handler: Handler,
        flusher: Flusher,
        *,
        frames_per_second: int,
        outbox_bytes: tuple[int, int],
    ) -> None:
        self.id = secrets.token_hex(6)
        self.participant = NOBODY
        self.rooms: dict[str, Room] = {}
        self.codec = codec
        self._connection = connection
        self._handler = handler
        self._flusher = flusher
        self._rate = Allowance(frames_per_second, frames_per_second, time.monotonic)
        self._bad: deque[float] = deque(maxlen=names.BAD_FRAMES_MAX + 1)
        transport = connection.transport
        self._outbox = Outbox(codec, *outbox_bytes, transport.get_write_buffer_size)
        self._flushing = False
        self._closing: asyncio.Task[None] | None = None
        connection.on_writable = self.flush

    # In

    async def run(self) -> None:
        """Serve frames in the order they come, until the connection closes."""
        try:
            async for data in self._connection:
                await self._receive(data)
        except ConnectionClosed as closed:
            log.debug("a session closed", session=self.id, code=_code(closed))
        finally:
            self._handler.gone(self)
            self._connection.on_writable = None
            if self._closing is not None:
                await asyncio.wait([self._closing], timeout=_CLOSE_S + 1)

    async def _receive(self, data: str | bytes) -> None:
        frame: dict[str, Any] = {}
        try:
            frame = self.codec.decode(data)
            self._check_rate()  # after decoding, so that the refusal can carry its `ref`
            await self._dispatch(parse(frame))
        except BadFrame as error:
            self.send_error(error, error.ref)
            self._count_bad()
        except DuetError as error:
            self.send_error(error, error.ref or usable_ref(frame))
        except Exception:
            incident = secrets.token_hex(4)
            kind = str(frame.get("type"))[:40]
            log.exception("a command failed", session=self.id, type=kind, incident=incident)
            message = f"Something went wrong on the server; incident {incident}."
            self.send_error(DuetError(message), usable_ref(frame))

    async def _dispatch(self, command: AnyCommand) -> None:
        if isinstance(command, Hello):
            if self.participant is not NOBODY:
                raise AlreadyHello("This session has said hello already.")
            self.reply(command.ref, self._handler.welcome(self, command))
        elif self.participant is NOBODY:
            raise HelloRequired("Say hello first.", ref=command.ref)
        else:
            await self._handler.handle(self, command)

    def _check_rate(self) -> None:
        if not self._rate.take(1):
            raise RateLimited("Too many frames; slow down.", retry_after_ms=1000)

    def _count_bad(self) -> None:
        self._bad.append(time.monotonic())
        full = len(self._bad) > names.BAD_FRAMES_MAX
        if full and self._bad[-1] - self._bad[0] <= names.BAD_FRAMES_WINDOW_S:
            self.close(CloseCode.BROKEN_FRAMES, "too many broken frames", reconnect=False)

    # Out

    def reply(self, ref: str | None, frame: dict[str, Any]) -> None:
        self.send(Outgoing(frame if ref is None else {"ref": ref, **frame}))

    def send_error(self, error: DuetError, ref: str | None) -> None:
        frame: dict[str, Any] = {
            "type": "error",
            "code": error.code,
            "message": error.message,
            "retryable": error.retryable,
        }
        if error.details:
            frame["details"] = dict(error.details)
        if error.retry_after_ms is not None:
            frame["retryAfterMs"] = error.retry_after_ms
        self.reply(ref, frame)

    def send(self, frame: Outgoing) -> None:
        """Queue a frame that must arrive; written with its neighbours at the end of this turn."""
        self._outbox.put(frame.wire(self.codec))
        self._flush_soon()

    def send_output(self, source: Source, start: int, end: int, frame: Outgoing) -> None:
        self._outbox.put_output(source, start, end, frame.wire(self.codec))
        self._flush_soon()

    def tell_gap(self, source: Source) -> None:
        self._outbox.tell_gap(source)

    def left_room(self, room: str) -> None:
        self.rooms.pop(room, None)

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._flusher.add(self)

    def flush(self) -> None:
        """Write what waits, if the peer takes it; close where too much does."""
        self._flushing = False
        connection = self._connection
        if self._closing is not None or connection.protocol.state is not State.OPEN:
            self._outbox.take()
        elif not connection.paused:
            self._write()
            if not connection.paused and self._outbox.tell_gaps():
                self._write()
        elif self._outbox.too_slow:
            self.close(CloseCode.TOO_SLOW, "too slow", reconnect=True)

    def _write(self) -> None:
        frames = self._outbox.take()
        if frames:
            self._connection.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    # End

    def close(self, code: CloseCode, reason: str, *, reconnect: bool) -> None:
        """Say `bye` and close; the rest of the outbox is sent first, unless it is too much."""
        if self._closing is not None:
            return
        frame = {"type": "bye", "code": int(code), "reason": reason, "reconnect": reconnect}
        if code is CloseCode.TOO_SLOW:
            self._outbox.take()
        else:
            self._outbox.put(Outgoing(frame).wire(self.codec))
            if self._connection.protocol.state is State.OPEN:
                self._write()
        self._closing = asyncio.ensure_future(self._close(code, reason))

    async def _close(self, code: CloseCode, reason: str) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.close(code, reason)
        except TimeoutError:
            self._connection.transport.abort()

    async def closed(self) -> None:
        """Wait until the close that was begun has ended."""
        if self._closing is not None:
            await asyncio.wait([self._closing])

    def idle_s(self) -> float:
        """Seconds since the peer last sent anything, pongs included."""
        return time.monotonic() - self._connection.heard_at

    def ping(self) -> None:
        """Ask the peer for a sign of life, without waiting for it."""
        if self._connection.protocol.state is State.OPEN and not self._connection.paused:
            self._connection.transport.write(_PING)


NOBODY = Participant(id="", name="", kind="human")
_PING = bytes((0x89, 0))


def _code(closed: ConnectionClosed) -> int:
    return closed.rcvd.code if closed.rcvd is not None else 1006
