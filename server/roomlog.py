"""The room log in Redis: create, append, read. The one place that knows its keys.

Events are stored as JSON without `offset` and `ts`; those are put in front when they are read.
"""

import hashlib
import itertools
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from protocol import names
from protocol.codec import encode_json
from protocol.errors import (
    Conflict,
    DuetError,
    Forbidden,
    KeyConflict,
    LimitReached,
    Unavailable,
    UnknownExec,
    UnknownMessage,
    UnknownRoom,
    UnknownTurn,
)
from server.amended import amended, message_of
from server.store import Argument, Script, Store

INDEX: Final = "duet:rooms"
CLIENT_KEY_MS: Final = 24 * 60 * 60 * 1000
_SERVER_KEY_MS: Final = 10 * 60 * 1000
"""The server resends within seconds; ten minutes outlive every retry of its own."""
_SAID_S: Final = 7 * 24 * 60 * 60
"""Words of an open turn wait this long for a server that died to come back."""
_PAGE_BYTES: Final = 160 * 1024
"""A page leaves room for the rest of its frame under SERVER_FRAME_BYTES."""

_APPEND = Script("append")
_SNAPSHOT = Script("snapshot")
_PAGE = Script("page")
_CREATE = Script("create")
_DELETE = Script("delete")
_SAY = Script("say")

_REFUSALS: Mapping[bytes, DuetError] = {
    b"key_conflict": KeyConflict("This key was used before with other content; use a new key."),
    b"unknown_message": UnknownMessage("There is no such message in this room."),
    b"unknown_exec": UnknownExec("There is no such running command in this room."),
    b"unknown_turn": UnknownTurn("There is no such open turn in this room."),
    b"forbidden": Forbidden("Only its author may change a message."),
    b"stale": Unavailable("The room's log was replaced; join again.", retry_after_ms=0),
}


# Keys of the server's own appends: unique without asking the system for random bytes each time.
_PROCESS: Final = secrets.token_hex(8)
_COUNT: Final = itertools.count()


def channel(room: str) -> str:
    return f"duet:{{{room}}}:events"


def _keys(room: str, *parts: str) -> list[str]:
    return [f"duet:{{{room}}}:{part}" for part in parts]


def new_id(prefix: str) -> str:
    """An id nobody can guess or collide with, e.g. `m_3f…`."""
    return f"{prefix}_{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored event: its place, its time and its JSON without both."""

    offset: int
    ts: int
    body: bytes

    def json(self) -> bytes:
        return b'{"offset":%d,"ts":%d,%b' % (self.offset, self.ts, self.body[1:])

    def event(self) -> dict[str, Any]:
        return {"offset": self.offset, "ts": self.ts, **json.loads(self.body)}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the subscription hands over: an entry and the epoch it belongs to."""

    epoch: str
    entry: Entry


def parse_delivery(payload: bytes) -> Delivery | None:
    """None for the word that the room was deleted."""
    if payload[:1] != b"E":
        return None
    epoch, offset, ts, body = payload[1:].split(b" ", 3)
    return Delivery(epoch.decode(), Entry(int(offset), int(ts), body))


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an event stands; `answer` is the first one's id where its key was used before."""

    epoch: str
    offset: int
    ts: int
    answer: str


@dataclass(frozen=True, slots=True)
class Running:
    """An exec that has started and not ended; `server` is whose it is."""

    started: Entry
    server: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    epoch: str
    offset: int
    oldest: int
    resumed: bool
    entries: Sequence[Entry]
    running: Mapping[str, Running]
    owner: str


@dataclass(frozen=True, slots=True)
class Append:
    """An event to store and what goes with it. `op` names the index it changes, in append.lua.

    `content` is what its author gave, where the body does not hold all of it; what a message
    answers must be there (`reply_to`). `full` is raised where its key was not used before.
    """

    body: Mapping[str, Any]
    content: Mapping[str, Any] | None = None
    key: str | None = None
    answer: str = ""
    op: str = ""
    subject: str = ""
    value: str = ""
    reply_to: str = ""
    full: LimitReached | None = None
    server_key: str = field(default_factory=lambda: f"{_PROCESS}:{next(_COUNT)}")
    server_key_ms: int = _SERVER_KEY_MS

    def fingerprint(self) -> str:
        """Of what the author gave: the same key with other content is a conflict."""
        content = self.content
        if content is None:
            made = {"id", "key"}
            content = {name: value for name, value in self.body.items() if name not in made}
        return hashlib.sha256(encode_json(dict(content))).hexdigest()[:32]

    def redis_key(self) -> tuple[str, int]:
        """The key that makes the append safe to resend, and its life in ms."""
        if self.key is not None:
            return f"key:{self.body['by']['id']}:{self.key}", CLIENT_KEY_MS
        if self.op == "exit":
            return f"exited:{self.subject}", CLIENT_KEY_MS
        return f"once:{self.server_key}", self.server_key_ms


class RoomLog:
    """Rooms and their logs. Every method may raise Unavailable; unknown rooms are UnknownRoom."""

    def __init__(self, store: Store, *, history_events: int) -> None:
        self._store = store
        self._history_events = history_events
        self._fresh = secrets.token_hex(6)
        """The next epoch, should an append have to begin one."""

    async def create(self, room: str, name: str, description: str, owner: str) -> int:
        """Returns the time of creation. Raises Conflict where the id is taken."""
        run = await self._store.run_id()
        ts = await self._store.script(
            _CREATE,
            [*_keys(room, "meta"), INDEX],
            [room, secrets.token_hex(6), run, name, description, owner],
            run=False,
        )
        if not ts:
            raise Conflict(f"There is a room with the id {room!r} already; choose another.")
        return int(ts)

    async def delete(self, room: str) -> None:
        keys = [INDEX, *_keys(room, "meta", "log", "running", "ids", "now", "turns", "said")]
        if not await self._store.script(_DELETE, keys, [room, channel(room)], run=False):
            raise unknown_room(room)

    async def append(self, room: str, append: Append, *, epoch: str = "") -> Appended:
        """Store one event. Raises the contract's errors; the room must have `epoch` if given."""
        key, life_ms = append.redis_key()
        reply = await self._store.script(
            _APPEND,
            _keys(room, "meta", "log", key, "running", "ids", "now", "turns", "said"),
            [
                self._fresh,
                epoch,
                encode_json(dict(append.body)),
                append.fingerprint(),
                append.answer,
                life_ms,
                self._history_events,
                channel(room),
                append.op,
                append.subject,
                append.value,
                append.reply_to,
                "1" if append.full else "",
            ],
            run=True,
        )
        if reply[0] == b"ok":
            if reply[1].decode() == self._fresh:
                self._fresh = secrets.token_hex(6)
            return Appended(reply[1].decode(), reply[2], reply[3], reply[4].decode())
        refusal = append.full if reply[0] == b"full" else _REFUSALS.get(reply[0])
        if refusal is None:
            raise unknown_room(room)
        raise type(refusal)(refusal.message, retry_after_ms=refusal.retry_after_ms)

    async def snapshot(self, room: str, since: tuple[str, int] | None) -> Snapshot:
        epoch, offset = since or ("", 0)
        arguments: list[Argument] = [secrets.token_hex(6), epoch, offset]
        reply = await self._store.script(
            _SNAPSHOT,
            _keys(room, "meta", "log", "running"),
            [*arguments, names.HISTORY_PAGE_DEFAULT, names.RESUME_EVENTS],
            run=True,
        )
        if not reply:
            raise unknown_room(room)
        resumed = bool(reply[3])
        entries = [_entry(item) for item in reply[4]]
        entries = await self._as_it_is_now(room, entries)
        return Snapshot(
            epoch=reply[0].decode(),
            offset=reply[1],
            oldest=reply[2],
            resumed=resumed,
            entries=entries if resumed else newest_within(entries, _PAGE_BYTES),
            running=_running(reply[5]),
            owner=reply[6].decode(),
        )

    async def page(
        self, room: str, *, before: int | None, after: int | None, limit: int
    ) -> tuple[list[Entry], bool]:
        """Entries ascending, and whether there are more that way."""
        forward = after is not None
        bound = after if forward else before
        reply = await self._store.script(
            _PAGE,
            _keys(room, "meta", "log"),
            [
                secrets.token_hex(6),
                "after" if forward else "before",
                "" if bound is None else bound,
                limit,
            ],
            run=True,
        )
        if not reply:
            raise unknown_room(room)
        found = [_entry(item) for item in reply[2]]
        wanted = found[:limit] if forward else found[-limit:]
        wanted = await self._as_it_is_now(room, wanted)
        fitting = (oldest_within if forward else newest_within)(wanted, _PAGE_BYTES)
        return fitting, len(found) > len(fitting)

    async def rooms(self) -> list[dict[str, Any]]:
        """Every room's own facts, newest first."""
        ids = sorted(item.decode() for item in await self._store.call("SMEMBERS", INDEX))
        found = []
        for start in range(0, len(ids), 500):
            some = ids[start : start + 500]
            replies = await self._store.pipeline([_facts_command(room) for room in some])
            found += [_facts(room, reply) for room, reply in zip(some, replies, strict=True)]
        rooms = [room for room in found if room is not None]
        return sorted(rooms, key=lambda room: (-room["createdTs"], room["id"]))

    async def room(self, room: str) -> dict[str, Any]:
        facts = _facts(room, await self._store.call(*_facts_command(room)))
        if facts is None:
            raise unknown_room(room)
        return facts

    async def running(self, room: str) -> dict[str, Running]:
        """The execs that the log holds as started and not ended."""
        return _running(await self._store.call("HGETALL", *_keys(room, "running")))

    async def turns(self, room: str) -> dict[str, bytes]:
        """The agent's turns that were asked for and not finished, as `Append.value` said them."""
        flat = await self._store.call("HGETALL", *_keys(room, "turns"))
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    async def say(self, room: str, turn: str, kept: int, words: str) -> bool | None:
        """Keep words of an open turn beside the log, after the `kept` bytes of it that are.

        None where the turn is over or its room gone, False where less is kept than that.
        """
        arguments: list[Argument] = [turn, kept, words, _SAID_S]
        reply = await self._store.script(_SAY, _keys(room, "turns", "said"), arguments, run=False)
        return None if reply == 0 else bool(reply > 0)

    async def said(self, room: str, turn: str) -> str:
        """The words of a turn that are not in the log yet."""
        found: bytes | None = await self._store.call("HGET", *_keys(room, "said"), turn)
        return (found or b"").decode()

    async def _as_it_is_now(self, room: str, entries: list[Entry]) -> list[Entry]:
        """Messages read back stand as they are now: edited or deleted."""
        held = [(i, message_of(entry.body)) for i, entry in enumerate(entries)]
        marked = [(i, message) for i, message in held if message is not None]
        if not marked:
            return entries
        patches = await self._store.call("HMGET", *_keys(room, "now"), *(id_ for _, id_ in marked))
        for (i, _), patch in zip(marked, patches, strict=True):
            if patch is not None:
                entries[i] = replace(entries[i], body=amended(entries[i].body, patch))
        return entries


def newest_within(entries: list[Entry], limit: int) -> list[Entry]:
    """The longest tail of `entries` whose bodies fit `limit` bytes, one at least."""
    return oldest_within(entries[::-1], limit)[::-1]


def oldest_within(entries: list[Entry], limit: int) -> list[Entry]:
    """The longest head of `entries` whose bodies fit `limit` bytes, one at least."""
    total = 0
    for count, entry in enumerate(entries):
        total += len(entry.body) + 64
        if total > limit and count:
            return entries[:count]
    return entries


def unknown_room(room: str) -> UnknownRoom:
    return UnknownRoom(f"There is no room {room!r}; create it first.")


def _entry(item: Any) -> Entry:
    place, fields = item
    return Entry(int(place.split(b"-")[0]), int(fields[1]), fields[3])


def _running(flat: Sequence[bytes]) -> dict[str, Running]:
    found = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        offset, ts, server, body = value.split(b" ", 3)
        found[name.decode()] = Running(Entry(int(offset), int(ts), body), server.decode())
    return found


def _facts_command(room: str) -> list[str]:
    fields = ("name", "description", "created", "epoch", "offset", "approval")
    return ["HMGET", *_keys(room, "meta"), *fields]


def _facts(room: str, reply: Sequence[bytes | None]) -> dict[str, Any] | None:
    if reply[3] is None:
        return None
    name, description, created, epoch, offset, approval = (part or b"" for part in reply)
    return {
        "id": room,
        "name": name.decode(),
        "description": description.decode(),
        "createdTs": int(created),
        "epoch": epoch.decode(),
        "offset": int(offset),
        "approval": approval.decode() or None,
    }
