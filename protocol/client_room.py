"""A room that the client has joined: what can be done in it and what happens in it.

Holds the position (epoch and offset) up to which its log was seen. How frames travel is
`client`'s business.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from protocol import commands
from protocol.client_queue import ByteQueue, QueueEnd
from protocol.client_run import Run, Runs, Wire
from protocol.errors import NotJoined
from protocol.events import Ack, Ephemeral, Joined, LogEvent, Page, Persisted
from protocol.model import Position, PtySize

ROOM_QUEUE_BYTES = 1024 * 1024
"""Unread events held per room. Beyond it the oldest are dropped: the next event's offset jumps,
`dropped` counts, and `history(after=…)` reads them again."""


class RoomWire(Wire, Protocol):
    """What a room needs of its connection."""

    runs: Runs

    async def send(self, command: commands.Command) -> None:
        """Send what has no reply."""

    async def page(self, command: commands.History) -> Page:
        """Send, and wait for the `page`."""

    def left(self, room: str, failure: Exception) -> None:
        """The room is left: nothing more of it is wanted."""


class Room:
    """One joined room.

    What is asked raises DuetError when the server refuses it, Disconnected when the connection
    is gone, TimeoutError without an answer, ValueError for what no server would take.
    """

    def __init__(self, wire: RoomWire, joined: Joined) -> None:
        self._wire = wire
        self._queue: ByteQueue[LogEvent | Ephemeral] = ByteQueue(ROOM_QUEUE_BYTES)
        self.id = joined.room
        self.joined = joined
        """What the server said at the (last) join: newest page, participants, running execs."""
        self._offset = joined.offset

    @property
    def position(self) -> Position:
        """Up to here the log was received: the `since` of a later join.

        Also on a new connection: reconnecting will use it; nothing here does so by itself yet.
        """
        return Position(epoch=self.joined.epoch, offset=self._offset)

    @property
    def dropped(self) -> int:
        """Events that were not read in time and pushed out by newer ones."""
        return self._queue.dropped

    async def events(self, *, idle_s: float | None = None) -> AsyncIterator[LogEvent | Ephemeral]:
        """What happens after the join, in the room's order, without output (that is `Run`'s).

        Ends after `left`. One consumer at a time. Raises Disconnected when the connection is
        gone (its keepalive bounds the wait), TimeoutError after `idle_s` without an event.
        """
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    event = await self._queue.get()
            except QueueEnd:
                return
            yield event

    async def say(self, text: str, *, reply_to: str | None = None, key: str | None = None) -> Ack:
        """Say it; the answer has `offset` and the message's `id`. Safe to retry with a `key`."""
        return await self._wire.request(
            commands.Say(room=self.id, text=text, reply_to=reply_to, key=key)
        )

    async def edit(self, message: str, text: str) -> Ack:
        return await self._wire.request(commands.Edit(room=self.id, id=message, text=text))

    async def delete(self, message: str) -> Ack:
        return await self._wire.request(commands.Delete(room=self.id, id=message))

    async def react(self, message: str, emoji: str, *, on: bool = True) -> Ack:
        return await self._wire.request(
            commands.React(room=self.id, id=message, emoji=emoji, on=on)
        )

    async def typing(self, *, on: bool) -> None:
        await self._wire.send(commands.Typing(room=self.id, on=on))

    async def history(
        self, *, before: int | None = None, after: int | None = None, limit: int = 50
    ) -> Page:
        """Events before or after an offset (exclusive), ascending; the newest without either."""
        return await self._wire.page(
            commands.History(room=self.id, before=before, after=after, limit=limit)
        )

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        stdin: bool = False,
        pty: PtySize | None = None,
        key: str | None = None,
    ) -> Run:
        """Start a command (a line for the shell, or a program's argv) in the room's sandbox.

        Returns once it is acknowledged; all later failures are in the run's result. A `key`
        that was used before gives the first run again: it can be cancelled by its id, but what
        happened to it before is in `history`.
        """
        asked = commands.Exec(
            room=self.id,
            command=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else list(command),
            cwd=cwd,
            env=None if env is None else dict(env),
            timeout_ms=timeout_ms,
            stdin=stdin,
            pty=pty,
            key=key,
        )
        return await self._wire.runs.start(asked)

    def follow(self, exec_id: str) -> Run:
        """The run of a command that another participant started, from its first kept byte."""
        return self._wire.runs.follow(exec_id)

    async def leave(self) -> None:
        """Leave. Runs of the room that are still open end with NotJoined here, not there."""
        await self._wire.request(commands.Leave(room=self.id))
        self._wire.left(self.id, NotJoined("You left the room."))

    def take(self, event: LogEvent | Ephemeral, size: int) -> None:
        """From the reader: an event of this room and its size on the wire in bytes."""
        if isinstance(event, Persisted):
            self._offset = event.offset
        self._queue.put(event, size)

    def rejoined(self, joined: Joined) -> None:
        """From the reader: the room starts again. When resumed, the missed events follow."""
        self.joined = joined
        if not joined.resumed:
            self._offset = joined.offset

    def close(self, failure: Exception | None) -> None:
        """From the reader: nothing more will come."""
        self._queue.close(failure)
