"""A room in memory: its members, who is present, and delivery in the log's order.

It knows listeners, not sessions or sockets; what is true stands in the room log.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol

from protocol.codec import JSON
from protocol.errors import DuetError, Unavailable, UnknownRoom
from protocol.model import Participant
from server import logs
from server.outbox import Source
from server.roomlog import Delivery, Entry, RoomLog
from server.wire import Outgoing

log = logs.get("room")

_HELD_MAX = 5_000
"""Events a joining member may wait for: five seconds of a very busy room."""
_SYNC_RETRY_S = 0.5


class Listener(Protocol):
    """What a room needs of a session."""

    participant: Participant

    def send(self, frame: Outgoing) -> None:
        """Hand over a frame that must arrive."""

    def send_output(self, source: Source, start: int, end: int, frame: Outgoing) -> None:
        """Hand over live output, which may become a gap."""

    def tell_gap(self, source: Source) -> None:
        """Say what was lost of `source`, before its end."""

    def left_room(self, room: str) -> None:
        """The room let go of this listener."""


class ExecFeed(Protocol):
    """What delivery tells a running exec."""

    def started(self) -> None:
        """Its `exec.started` has reached the members: output may follow."""

    def exited(self) -> None:
        """Its `exec.exited` has reached the members."""

    stored: bool
    """Its `exec.started` is known to be in the log."""

    @property
    def sources(self) -> list[Source]:
        """Its streams, for the gaps to be told before its end."""


class OpenTurn(Protocol):
    """What a join needs of a turn of the agent that was asked for and is not over."""

    def view(self) -> dict[str, Any]:
        """It as `joined.turns` has it."""


class Tasks(Protocol):
    """Where a room's background work runs: the server's task group."""

    def create_task(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Member:
    """One session in this room. While it joins, events are held for it."""

    __slots__ = ("entered", "held", "listener", "output", "position")

    def __init__(self, listener: Listener, *, output: bool) -> None:
        self.listener = listener
        self.output = output
        self.entered = False
        self.position = 0
        self.held: list[Entry] | None = []


class Room:
    """Delivers every event once, in order, to every member; notices what it missed."""

    def __init__(self, room: str, roomlog: RoomLog, tasks: Tasks) -> None:
        self.id = room
        self.epoch = ""
        self.offset = 0
        self.owner = ""
        self.members: dict[Listener, Member] = {}
        self.execs: dict[str, ExecFeed] = {}
        self.turns: dict[str, OpenTurn] = {}
        self.deleted = False
        self._log = roomlog
        self._tasks = tasks
        self._present: dict[str, int] = {}
        self._early: deque[Delivery] = deque(maxlen=_HELD_MAX)
        self._sync: asyncio.Task[None] | None = None
        self._ready = False
        self._delivered = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Nobody is here and nothing goes on."""
        return not (self.members or self.execs or self.turns)

    # Members

    def attach(self, listener: Listener, *, output: bool) -> Member:
        """Begin (or begin again) to hold events for a joining listener."""
        before = self.members.get(listener)
        member = self.members[listener] = Member(listener, output=output)
        member.entered = before is not None and before.entered
        return member

    def enter(self, listener: Listener) -> None:
        """Count a listener that has joined; the others learn of a new participant."""
        participant = listener.participant
        self.members[listener].entered = True
        count = self._present.get(participant.id, 0)
        self._present[participant.id] = count + 1
        if not count:
            self._tell_presence("participant.joined", participant, besides=listener)

    def detach(self, listener: Listener) -> None:
        """Let go of a listener; the others learn when its participant's last session left."""
        member = self.members.pop(listener, None)
        if member is None or not member.entered:
            return
        participant = listener.participant
        self._present[participant.id] -= 1
        if not self._present[participant.id]:
            del self._present[participant.id]
            self._tell_presence("participant.left", participant, besides=listener)

    def sessions_of(self, participant: str) -> list[Listener]:
        """Where somebody is here."""
        return [who for who in self.members if who.participant.id == participant]

    def tell_renamed(self, participant: Participant) -> None:
        """Everyone learns the new name of somebody who is present."""
        if participant.id in self._present:
            self._tell_presence("participant.joined", participant)

    def participants(self) -> list[Participant]:
        """Who is present, each once, in the order of their first session here."""
        found = {member.participant.id: member.participant for member in self.members}
        return [who for who in found.values() if who.id in self._present]

    def _tell_presence(
        self, kind: str, who: Participant, *, besides: Listener | None = None
    ) -> None:
        fields = {**who.wire(), "role": role_of(who, self.owner)}
        frame = Outgoing({"type": kind, "room": self.id, "participant": fields})
        self.broadcast(frame, besides=besides)

    def broadcast(self, frame: Outgoing, *, besides: Listener | None = None) -> None:
        """Send an ephemeral frame to everyone who has joined."""
        for member in self.members.values():
            if member.held is None and member.listener is not besides:
                member.listener.send(frame)

    def broadcast_output(self, source: Source, start: int, end: int, frame: Outgoing) -> None:
        """Send live output to everyone who wants it; who is joining gets it from what is kept."""
        for member in self.members.values():
            if member.output and member.held is None:
                member.listener.send_output(source, start, end, frame)

    # Delivery

    def receive(self, delivery: Delivery | None) -> None:
        """Take what the subscription hands over; None tells that the room was deleted."""
        if delivery is None:
            self.close("deleted", "This room was deleted.", rejoin=False)
        elif not self._ready or self._sync is not None:
            self._early.append(delivery)
        else:
            self._take(delivery)

    def _take(self, delivery: Delivery) -> None:
        offset = delivery.entry.offset
        if delivery.epoch == self.epoch and offset <= self.offset:
            return
        if delivery.epoch != self.epoch or offset != self.offset + 1:
            self.sync()
            return
        self._deliver(delivery.entry)

    def _deliver(self, entry: Entry) -> None:
        self.offset = entry.offset
        feed, ended = self._feed_of(entry)
        frame = Outgoing(entry.json())
        for member in list(self.members.values()):
            if member.held is not None:
                self._hold(member, entry)
            elif entry.offset > member.position:
                member.position = entry.offset
                if feed is not None and ended:
                    for source in feed.sources:
                        member.listener.tell_gap(source)
                member.listener.send(frame)
        if feed is not None:
            feed.exited() if ended else feed.started()
        self._wake()

    def _wake(self) -> None:
        self._delivered.set()
        self._delivered = asyncio.Event()

    async def reached(self, epoch: str, offset: int) -> None:
        """Return once that event was delivered here, or the log is another one."""
        while self.epoch == epoch and self.offset < offset and not self.deleted:
            await self._delivered.wait()

    def _feed_of(self, entry: Entry) -> tuple[ExecFeed | None, bool]:
        """The running exec that an event begins or ends, if it does."""
        kind = exec_event(entry)
        if kind is None:
            return None, False
        return self.execs.get(kind[1]), kind[0] == "exec.exited"

    def _hold(self, member: Member, entry: Entry) -> None:
        if member.held is None:
            return
        if len(member.held) >= _HELD_MAX:
            self._expel(member.listener, "room_error", "Joining took too long.", rejoin=True)
            return
        member.held.append(entry)

    # Catching up with the log

    async def ready(self) -> None:
        """Return once the room knows its place in the log. Raises UnknownRoom or Unavailable."""
        if not self._ready:
            await asyncio.shield(self.sync())
        if self.deleted:
            raise UnknownRoom(f"There is no room {self.id!r}; create it first.")
        if not self._ready:
            raise Unavailable("The history store does not answer.", retry_after_ms=1000)

    def sync(self) -> asyncio.Task[None]:
        """Read what the subscription may have missed; one at a time."""
        if self._sync is None:
            self._sync = self._tasks.create_task(self._catch_up())
        return self._sync

    async def _catch_up(self) -> None:
        again = False
        try:
            await self._read_missed()
        except UnknownRoom:
            self.close("deleted", "This room does not exist any more.", rejoin=False)
        except DuetError as error:
            log.warning("a room could not catch up", room=self.id, error=error.message)
            again = self._ready
            if again:
                await asyncio.sleep(_SYNC_RETRY_S)
        finally:
            self._sync = None
        if again:
            self.sync()
            return
        early, self._early = self._early, deque(maxlen=_HELD_MAX)
        for delivery in early:
            self.receive(delivery)

    async def _read_missed(self) -> None:
        since = (self.epoch, self.offset) if self._ready else None
        self._early.clear()  # what came before the snapshot is in it, or of an older epoch
        snapshot = await self._log.snapshot(self.id, since)
        self.owner = snapshot.owner
        if snapshot.resumed:
            for entry in snapshot.entries:
                if entry.offset > self.offset:
                    self._deliver(entry)
            return
        if self._ready:
            message = "This room's history was replaced; join again."
            for listener in list(self.members):
                self._expel(listener, "room_error", message, rejoin=True)
        self.epoch, self.offset, self._ready = snapshot.epoch, snapshot.offset, True
        self._wake()
        for exec_id, feed in list(self.execs.items()):
            if exec_id in snapshot.running:
                feed.started()
            elif feed.stored:
                feed.exited()

    # Ends

    def close(self, code: str, message: str, *, rejoin: bool) -> None:
        """Let go of everyone, saying why."""
        self.deleted = code == "deleted"
        self._wake()
        for listener in list(self.members):
            self._expel(listener, code, message, rejoin=rejoin)

    def _expel(self, listener: Listener, code: str, message: str, *, rejoin: bool) -> None:
        self.detach(listener)
        frame = {"type": "left", "room": self.id, "code": code, "message": message}
        listener.send(Outgoing({**frame, "rejoin": rejoin}))
        listener.left_room(self.id)


def role_of(participant: Participant, owner: str) -> str:
    """A participant's role in a room whose owner has this id."""
    return "owner" if participant.id == owner else "member"


def exec_event(entry: Entry) -> tuple[str, str] | None:
    """The type and exec id of an `exec.*` event; looks only at those, most events are messages."""
    if not entry.body.startswith(b'{"type":"exec.'):
        return None
    event = JSON.decode(entry.body.decode())
    return event["type"], event["exec"]
