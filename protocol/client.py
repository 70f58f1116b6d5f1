"""The Python client for bots, and the one module of `protocol` that opens a connection.

    async with connect("http://127.0.0.1:8080", name="bot") as client:
        room = await client.join("lobby")
        await room.say("hello")
        run = await room.exec("ls")
        async for chunk in run: ...
        result = await run.wait()

One connection, no reconnecting yet: `Disconnected.reconnect` says when to try again, with
`Client.token` for `connect` and `Room.position` for `join`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

import websockets
from pydantic import ValidationError

from protocol import commands, events, names
from protocol.client_room import Room
from protocol.client_run import Chunk, Hole, Run, Runs, chunk
from protocol.client_sandboxes import SandboxCalls
from protocol.codec import JSON, MSGPACK, Codec
from protocol.errors import BadFrame, DuetError, NotJoined, from_wire
from protocol.model import Participant, Position
from protocol.shapes import Limits

__all__ = ["Chunk", "Client", "Disconnected", "Room", "Run", "connect"]

REQUEST_TIMEOUT_S = 30.0
"""For an answer. The server answers from its log, so more than this is a broken connection."""
CLOSE_TIMEOUT_S = 2.0
"""For the closing handshake; the server learns of it either way."""

_Codecs: dict[str, Codec] = {"json": JSON, "msgpack": MSGPACK}
_ReplyT = TypeVar("_ReplyT", bound=events.Reply)


class Disconnected(Exception):
    """The connection is gone. `reconnect`: whether the contract says to connect again."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(f"The connection closed with {close_code}: {reason or 'no reason given'}")
        self.close_code = close_code
        self.reason = reason
        self.reconnect = names.should_reconnect(close_code)


@dataclass(slots=True)
class _Pending:
    """A request without its answer yet, and the output frames that came for it."""

    answer: asyncio.Future[events.Reply]
    output: list[Chunk | Hole] = field(default_factory=list)


@asynccontextmanager
async def connect(
    url: str,
    *,
    name: str | None = None,
    kind: Literal["human", "bot"] = "bot",
    token: str | None = None,
    codec: Literal["json", "msgpack"] = "json",
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> AsyncIterator["Client"]:
    """A client that has said hello, for the length of the block.

    `url` is the server's (http, https) or its WebSocket's (ws, wss). `timeout_s` bounds the
    opening and each request. Raises OSError or TimeoutError when nobody answers, websockets'
    InvalidHandshake when it is no Duet server, DuetError when the hello is refused.
    """
    chosen = _Codecs[codec]
    async with websockets.connect(
        _websocket_url(url),
        subprotocols=[websockets.Subprotocol(chosen.subprotocol)],
        max_size=names.SERVER_FRAME_BYTES,
        compression=None,  # frames are small and mostly local; the server's CPU is dearer
        open_timeout=timeout_s,
        close_timeout=CLOSE_TIMEOUT_S,
    ) as socket:
        client = Client(socket, chosen, timeout_s)
        # Not a TaskGroup: it would wrap what the caller's block raises. The reader never raises
        # (its end is told to those who wait), and it does not outlive this block.
        reader = asyncio.create_task(client.run_reader(), name="duet-client-reader")
        try:
            await client.hello(commands.Hello(name=name, kind=kind, token=token))
            yield client
        finally:
            reader.cancel()
            await asyncio.wait({reader})


def _websocket_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme in {"ws", "wss"}:
        return url
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + "/ws", "", ""))


class Client(SandboxCalls):
    """One session. Made by `connect`."""

    session: str
    participant: Participant
    token: str
    """For the next `connect`: the same participant."""
    limits: Limits

    def __init__(self, socket: websockets.ClientConnection, codec: Codec, timeout_s: float) -> None:
        self._socket = socket
        self._codec = codec
        self._timeout_s = timeout_s
        self._refs = itertools.count(1)
        self._pending: dict[str, _Pending] = {}
        self._rooms: dict[str, Room] = {}
        self._bye: events.Bye | None = None
        self._gone: Exception | None = None
        self.runs = Runs(self)

    async def hello(self, command: commands.Hello) -> None:
        welcome, _ = await self._ask(command, events.Welcome)
        self.session, self.participant = welcome.session, welcome.participant
        self.token, self.limits = welcome.token, welcome.limits

    async def join(self, room: str, *, since: Position | None = None, output: bool = True) -> Room:
        """Join, or start a joined room again.

        With `since`, missed events come first where the log still has them, as
        `room.joined.resumed` tells.
        """
        await self._ask(commands.Join(room=room, since=since, output=output), events.Joined)
        return self._rooms[room]  # made by the reader: events follow `joined` at once

    async def ping(self) -> None:
        await self._ask(commands.Ping(), events.Pong)

    async def request(self, command: commands.Command) -> events.Ack:
        return (await self._ask(command, events.Ack))[0]

    async def page(self, command: commands.History) -> events.Page:
        return (await self._ask(command, events.Page))[0]

    async def read(self, command: commands.ExecRead) -> list[Chunk | Hole]:
        return (await self._ask(command, events.Ack))[1]

    async def send(self, command: commands.Command) -> None:
        """Raises Disconnected, or TimeoutError when the server takes nothing."""
        data = self._codec.encode(command.wire())
        if self._gone is not None:
            raise self._gone
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._socket.send(data, text=not self._codec.binary)
        except websockets.ConnectionClosed as closed:
            raise self._lost(closed) from closed

    async def _ask(
        self, command: commands.Command, reply: type[_ReplyT]
    ) -> tuple[_ReplyT, list[Chunk | Hole]]:
        ref = str(next(self._refs))
        pending = _Pending(asyncio.get_running_loop().create_future())
        self._pending[ref] = pending
        try:
            await self.send(command.model_copy(update={"ref": ref}))
            async with asyncio.timeout(self._timeout_s):
                answer = await pending.answer
        finally:
            del self._pending[ref]
        if not isinstance(answer, reply):
            raise DuetError(f"The server answered {command!r:.100} with {type(answer).__name__}.")
        return answer, pending.output

    async def run_reader(self) -> None:
        """Take frames until the connection closes, then tell everyone who waits."""
        try:
            while True:
                data = await self._socket.recv()
                self._take(self._codec.decode(data), len(data))
        except websockets.ConnectionClosed as closed:
            self._end(self._lost(closed))
        except (BadFrame, ValidationError) as broken:
            self._end(Disconnected(1002, f"the server broke the contract: {broken}"))
        finally:
            self._end(Disconnected(1000, "closed here"))

    def _lost(self, closed: websockets.ConnectionClosed) -> Disconnected:
        if closed.rcvd is None:
            return Disconnected(1006, self._bye.reason if self._bye else "")
        reason = closed.rcvd.reason or (self._bye.reason if self._bye else "")
        return Disconnected(closed.rcvd.code, reason)

    def _end(self, failure: Disconnected) -> None:
        if self._gone is not None:
            return
        self._gone = failure
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(failure)
        for room in self._rooms.values():
            room.close(failure)
        self.runs.fail(failure)

    def _take(self, frame: dict[str, Any], size: int) -> None:
        kind = frame.get("type")
        if kind == "exec.output":
            self._output(str(frame.get("exec")), frame.get("ref"), chunk(frame))
            return
        model = events.model_of(frame)
        if model is None:
            return  # newer than this client
        event = model.model_validate(frame)
        if isinstance(event, events.ExecGap):
            hole = Hole(event.stream, event.from_, event.to)
            self._output(event.exec, event.ref, hole)
        elif isinstance(event, events.Reply):
            self._answer(event)
        elif isinstance(event, events.Bye):
            self._bye = event
        else:
            self._happened(event, size)

    def _output(self, exec_id: str, ref: object, item: Chunk | Hole) -> None:
        if isinstance(ref, str):
            if (pending := self._pending.get(ref)) is not None:
                pending.output.append(item)
        else:
            self.runs.output(exec_id, item)

    def _answer(self, reply: events.Reply) -> None:
        if isinstance(reply, events.Joined):
            self._joined(reply)
        pending = self._pending.get(reply.ref or "")
        if pending is None or pending.answer.done():
            return  # its asker gave up, or nobody asked
        if isinstance(reply, events.Error):
            pending.answer.set_exception(_error(reply))
        else:
            pending.answer.set_result(reply)

    def _joined(self, joined: events.Joined) -> None:
        if (room := self._rooms.get(joined.room)) is not None:
            room.rejoined(joined)
        else:
            self._rooms[joined.room] = Room(self, joined)

    def _happened(self, event: Any, size: int) -> None:
        """An event of a room: to the runs it concerns, then to the room."""
        if isinstance(event, events.ExecStarted | events.SandboxExecStarted):
            self.runs.started(event, own=event.by.id == self.participant.id)
        elif isinstance(event, events.ExecExited | events.SandboxExecExited):
            self.runs.exited(event)
        room = self._rooms.get(getattr(event, "room", ""))
        if room is None:
            return
        room.take(event, size)
        if isinstance(event, events.Left):
            self.left(event.room, NotJoined(event.message))

    def left(self, room: str, failure: Exception) -> None:
        if (gone := self._rooms.pop(room, None)) is not None:
            gone.close(None)
            self.runs.fail(failure, room=room)


def _error(reply: events.Error) -> DuetError:
    return from_wire(
        reply.code,
        reply.message,
        retryable=reply.retryable,
        details=reply.details,
        retry_after_ms=reply.retry_after_ms,
        ref=reply.ref,
    )
