"""All rooms of this server: found, opened, created, changed, deleted. HTTP and sessions call here.

One method per thing a participant can do in a room; every one may raise the contract's errors.
"""

import asyncio
import secrets
from contextlib import suppress
from typing import Any, Protocol

from protocol.errors import DuetError, Unavailable, UnknownRoom
from protocol.model import Participant
from sandbox.errors import SandboxError
from sandbox.manager import Manager
from sandbox.spec import SandboxRecord
from server import logs
from server.bus import Bus
from server.execlog import ExecLog
from server.execs import Execs
from server.records import ROOM_PREFIX, record_fields, sandbox_name
from server.room import Listener, Room, Tasks
from server.roomlog import Append, Appended, RoomLog, new_id, parse_delivery
from server.running import author
from server.sandboxes import Sandboxes
from server.store import Store
from server.wire import Outgoing

log = logs.get("hub")

IDLE_S = 30.0
"""A room nobody is in and where nothing runs leaves memory after one or two of these."""
SERVER = Participant(id="server", name="Duet", kind="bot")


class Turns(Protocol):
    """What the hub needs of the agent."""

    participant: Participant
    enabled: bool

    def facts(self, approval: Any) -> dict[str, object]: ...
    async def stop_room(self, room_id: str) -> None: ...


class Hub:
    """Owns the rooms in memory. Execs, manager and agent are set by the composition, once made."""

    execs: Execs
    agent: Turns
    manager: Manager
    sandboxes: Sandboxes

    def __init__(self, store: Store, roomlog: RoomLog, execlog: ExecLog, tasks: Tasks) -> None:
        self.rooms: dict[str, Room] = {}
        self.roomlog = roomlog
        self.execlog = execlog
        self.bus = Bus(store, on_payload=self._payload, on_renewed=self._renewed)
        self._tasks = tasks
        self._records: dict[str, SandboxRecord] = {}
        self._record_there = asyncio.Event()

    # Rooms in memory

    async def open(self, room_id: str) -> Room:
        """The room, subscribed to and knowing its place in the log."""
        room = self.rooms.get(room_id)
        if room is None:
            await self.roomlog.room(room_id)
            room = self.rooms.setdefault(room_id, Room(room_id, self.roomlog, self._tasks))
        try:
            await self.bus.subscribe(room_id)
            await room.ready()
        except DuetError:
            if room.idle:
                await self._drop(room)
            raise
        return room

    def _payload(self, room_id: str, payload: bytes) -> None:
        room = self.rooms.get(room_id)
        if room is None:
            return
        room.receive(parse_delivery(payload))
        if room.deleted:
            self._tasks.create_task(self._drop(room))

    def _renewed(self, room_id: str) -> None:
        room = self.rooms.get(room_id)
        if room is not None:
            room.sync()

    async def _drop(self, room: Room) -> None:
        if self.rooms.get(room.id) is room:
            del self.rooms[room.id]
            await self.bus.unsubscribe(room.id)

    async def forget_idle(self) -> None:
        """Drop rooms that were idle at two looks in a row; until cancelled."""
        before: set[str] = set()
        while True:
            await asyncio.sleep(IDLE_S)
            idle = {room.id for room in self.rooms.values() if room.idle}
            for room_id in idle & before:
                room = self.rooms.get(room_id)
                if room is not None and room.idle:
                    await self._drop(room)
            before = idle

    # What participants do

    def rename(self, participant: Participant) -> None:
        """One name for all sessions of a participant: the newest, in every room it is in."""
        here = [(room, room.sessions_of(participant.id)) for room in self.rooms.values()]
        sessions = {session for _, found in here for session in found}
        if all(session.participant.name == participant.name for session in sessions):
            return
        for session in sessions:
            session.participant = participant
        for room, found in here:
            if found:
                room.tell_renamed(participant)

    async def create(
        self, room_id: str | None, name: str, description: str, by: Participant
    ) -> dict[str, Any]:
        room_id = room_id or _fresh_room_id()
        await self._clear_place(room_id)
        await self.roomlog.create(room_id, name or room_id, description, by.id)
        return await self.describe(room_id)

    async def change(
        self,
        room_id: str,
        name: str | None,
        description: str | None,
        by: Participant,
        *,
        approval: str | None = None,
    ) -> dict[str, Any]:
        """Change what is given: name, description, and whether the agent's commands need a word."""
        facts = await self.roomlog.room(room_id)
        changed = name is not None or description is not None or approval is None
        name = facts["name"] if name is None else name
        description = facts["description"] if description is None else description
        body = self._body("room.updated", room_id, by, name=name, description=description)
        if changed:
            await self._append(room_id, Append(body, op="update", subject=name, value=description))
        if approval is not None:
            body["agent"] = {"approval": approval}
            await self._append(room_id, Append(body, op="policy", value=approval))
        return await self.describe(room_id)

    async def delete(self, room_id: str) -> list[str]:
        """Delete a room with its sandbox; returns what could not be done, in words."""
        await self.roomlog.room(room_id)
        await self.agent.stop_room(room_id)
        # The log first: while it is there, a command may bring the sandbox back.
        await self.roomlog.delete(room_id)
        return await self._destroy_sandbox(room_id)

    async def clean(self, room_id: str, by: Participant) -> list[str]:
        """Clear history and destroy the sandbox; returns what could not be done, in words."""
        await self.roomlog.room(room_id)
        await self.agent.stop_room(room_id)
        errors = await self._destroy_sandbox(room_id)
        # A turn whose command would not end has ended with its sandbox: its words belong before.
        await self.agent.stop_room(room_id)
        try:
            await self._append(room_id, Append(self._body("room.cleared", room_id, by), op="clear"))
        except Unavailable as error:
            errors.append(f"history: {error.message}")
        return errors

    async def say(
        self, room_id: str, by: Participant, text: str, key: str | None, reply_to: str | None
    ) -> Appended:
        message = new_id("m")
        body = self._body("message", room_id, by, id=message, text=text, replyTo=reply_to, key=key)
        said = Append(
            body, key=key, answer=message, op="message", subject=message, reply_to=reply_to or ""
        )
        return await self._append(room_id, said)

    async def edit(self, room_id: str, by: Participant, message: str, text: str) -> Appended:
        body = self._body("message.edited", room_id, by, id=message, text=text)
        return await self._append(room_id, Append(body, op="edit", subject=message, value=by.id))

    async def delete_message(self, room_id: str, by: Participant, message: str) -> Appended:
        body = self._body("message.deleted", room_id, by, id=message)
        return await self._append(room_id, Append(body, op="delete", subject=message, value=by.id))

    async def react(
        self, room_id: str, by: Participant, message: str, emoji: str, *, on: bool
    ) -> Appended:
        body = self._body("message.reacted", room_id, by, id=message, emoji=emoji, on=on)
        return await self._append(room_id, Append(body, op="react", subject=message))

    def typing(self, room: Room, listener: Listener, *, on: bool) -> None:
        who = listener.participant.wire()
        frame = {"type": "typing", "room": room.id, "participant": who, "on": on}
        room.broadcast(Outgoing(frame), besides=listener)

    async def page(
        self, room_id: str, *, before: int | None, after: int | None, limit: int
    ) -> dict[str, Any]:
        """`{events, more}` of the room's log."""
        entries, more = await self.roomlog.page(room_id, before=before, after=after, limit=limit)
        return {"events": [entry.event() for entry in entries], "more": more}

    async def describe(self, room_id: str) -> dict[str, Any]:
        return self._with_life(await self.roomlog.room(room_id))

    async def list_rooms(self) -> list[dict[str, Any]]:
        return [self._with_life(facts) for facts in await self.roomlog.rooms()]

    def _with_life(self, facts: dict[str, Any]) -> dict[str, Any]:
        """A room's facts and what goes on in it now."""
        room = self.rooms.get(facts["id"])
        approval = facts.pop("approval")
        return {
            **facts,
            "agent": self.agent.facts(approval),
            "members": len(room.participants()) if room else 0,
            "running": len(self.execs.live(facts["id"])),
            "sandbox": self.sandbox_of_room(facts["id"]),
        }

    def agent_participants(self) -> list[Participant]:
        """The agent, where there is one: it is in every room."""
        return [self.agent.participant] if self.agent.enabled else []

    # Sandboxes

    def sandbox_of_room(self, room_id: str) -> dict[str, Any] | None:
        record = self.manager.get(sandbox_name(room_id))
        return None if record is None else record_fields(record)

    def sandbox_changed(self, record: SandboxRecord) -> None:
        """Take a change of a sandbox's state; the newest of each is told in its room."""
        self.sandboxes.changed(record)
        if record.id.startswith(ROOM_PREFIX):
            self._records[record.id] = record
            self._record_there.set()

    async def tell_sandboxes(self) -> None:
        """Append sandboxes' changes to their rooms' logs; until cancelled."""
        while True:
            await self._record_there.wait()
            self._record_there.clear()
            records, self._records = self._records, {}
            for record in records.values():
                room_id = record.id.removeprefix(ROOM_PREFIX)
                body = self._body("sandbox", room_id, SERVER, **record_fields(record))
                # The state itself is the manager's, and `joined` tells it to who missed this.
                with suppress(DuetError):
                    await self._append(room_id, Append(body))

    async def _clear_place(self, room_id: str) -> None:
        """A new room must not be given the files of an old one of its name."""
        if self.manager.get(sandbox_name(room_id)) is None:
            return
        with suppress(UnknownRoom):
            await self.roomlog.room(room_id)
            return  # it is there: creating it will say so
        if errors := await self._destroy_sandbox(room_id):
            message = f"An old room of this name has left its sandbox: {errors[0]}"
            raise Unavailable(message, retry_after_ms=1000)

    async def _destroy_sandbox(self, room_id: str) -> list[str]:
        try:
            await self.manager.destroy(sandbox_name(room_id))
        except SandboxError as error:
            return [f"sandbox: {error.message}"]
        return []

    # Parts

    async def _append(self, room_id: str, append: Append) -> Appended:
        room = self.rooms.get(room_id)
        epoch = room.epoch if room is not None else ""
        try:
            return await self.roomlog.append(room_id, append, epoch=epoch)
        except Unavailable:
            if room is not None:
                room.sync()
            raise

    @staticmethod
    def _body(kind: str, room_id: str, by: Participant, **fields: Any) -> dict[str, Any]:
        body = {"type": kind, "room": room_id, "by": author(by)}
        return body | {name: value for name, value in fields.items() if value is not None}


def _fresh_room_id() -> str:
    return f"room-{secrets.token_hex(5)}"
