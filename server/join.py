"""Joining a room: attach and hold, read one snapshot, replay, go live. No loss, no repeat.

`after` is the merge; everything from the snapshot's answer to going live is one turn of the loop.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from protocol import names
from protocol.codec import JSON
from protocol.errors import Unavailable
from protocol.model import Participant
from server.execframes import gap_frame, kept_frames
from server.execlog import ExecLog
from server.room import Listener, Member, Room, exec_event, role_of
from server.roomlog import Entry, RoomLog, Snapshot
from server.run import Run
from server.wire import Outgoing

_REPLAY_OUTPUT_BYTES = 512 * 1024
"""Output of commands that ended while a client was away, sent along; the rest is a gap."""
_REPLAY_RUNNING_BYTES = 4 * 1024 * 1024
"""Output of running commands that a join is sent: half of what makes a session too slow. Where they
have printed more, each of their streams begins later; the rest can be read."""
_FRAME_ROOM_BYTES = names.SERVER_FRAME_BYTES - 16 * 1024
_FINISHED = b'{"type":"agent.finished",'
_EXECS_BYTES = 96 * 1024
_SHORT_BYTES = (160, 32)
"""What is left of a running command and its folder, step by step until all of them fit."""
_PARTICIPANTS_BYTES = 56 * 1024
"""Participants named in `joined`, about 500: the frame has a limit, the room has none."""


class Facts(Protocol):
    """What a join needs besides the room: where to read, and the sandbox's state."""

    roomlog: RoomLog
    execlog: ExecLog

    def sandbox_of_room(self, room_id: str) -> dict[str, Any] | None: ...
    def agent_participants(self) -> list[Participant]: ...


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`since` is epoch and offset."""

    ref: str | None
    since: tuple[str, int] | None
    output: bool


async def join(room: Room, listener: Listener, request: JoinRequest, facts: Facts) -> None:
    """Join or join again. On failure the listener is out of the room and the error is raised."""
    member = room.attach(listener, output=request.output)
    try:
        await room.ready()
        snapshot = await facts.roomlog.snapshot(room.id, request.since)
        ended = await _ended_output(room.id, snapshot, facts.execlog) if request.output else {}
    except BaseException:
        if room.members.get(listener) is member:
            room.detach(listener)
        raise
    if room.members.get(listener) is not member:
        raise Unavailable("The room let go of this session while it joined; join again.")
    if not member.entered:
        room.enter(listener)
    _go_live(_Replay(room, listener, member, request, snapshot, ended), facts)


def after(position: int, held: Iterable[Entry]) -> list[Entry]:
    """What was held and is not in the snapshot: beyond its offset, each once, ascending."""
    found: list[Entry] = []
    for entry in held:
        if entry.offset > position:
            found.append(entry)
            position = entry.offset
    return found


@dataclass(frozen=True, slots=True)
class _Replay:
    room: Room
    listener: Listener
    member: Member
    request: JoinRequest
    snapshot: Snapshot
    ended: dict[str, list[Outgoing]]


def _go_live(replay: _Replay, facts: Facts) -> None:
    snapshot, member, send = replay.snapshot, replay.member, replay.listener.send
    share = _share(replay.room, snapshot)
    send(Outgoing(_joined(replay, facts, share)))
    if snapshot.resumed:
        for entry in snapshot.entries:
            _send_missed(replay, entry)
    if replay.request.output:
        for exec_id in snapshot.running:
            _send_kept(replay, exec_id, share)
    held, member.held = member.held or [], None
    member.position = snapshot.offset
    for entry in after(snapshot.offset, held):
        send(Outgoing(entry.json()))
        member.position = entry.offset
        event = exec_event(entry)
        if event is not None and event[0] == "exec.started" and replay.request.output:
            _send_kept(replay, event[1])


def _send_missed(replay: _Replay, entry: Entry) -> None:
    """A missed event; before an exec's end stands what it printed."""
    event = exec_event(entry) if replay.request.output else None
    if event is not None and event[0] == "exec.exited":
        for frame in replay.ended.get(event[1], ()):
            replay.listener.send(frame)
    replay.listener.send(Outgoing(entry.json()))


def _share(room: Room, snapshot: Snapshot) -> int | None:
    """What each running stream may be sent of, in bytes; None where all of it may."""
    runs = [room.execs.get(exec_id) for exec_id in snapshot.running]
    kept = [out.kept.size for run in runs if isinstance(run, Run) for out in run.streams.values()]
    return None if sum(kept) <= _REPLAY_RUNNING_BYTES else _REPLAY_RUNNING_BYTES // len(kept)


def _send_kept(replay: _Replay, exec_id: str, share: int | None = None) -> None:
    """The output of a running exec so far; live output follows where it ends."""
    run = replay.room.execs.get(exec_id)
    if isinstance(run, Run):
        for frame in run.kept_frames(share):
            replay.listener.send(frame)
        if run.view is not None:
            run.view.nudge(run.process)


async def _ended_output(
    room: str, snapshot: Snapshot, execlog: ExecLog
) -> dict[str, list[Outgoing]]:
    """Frames for the output of execs that ended among the missed events, within a budget."""
    if not snapshot.resumed:
        return {}
    left = _REPLAY_OUTPUT_BYTES
    frames: dict[str, list[Outgoing]] = {}
    for entry in snapshot.entries:
        event = exec_event(entry)
        if event is None or event[0] != "exec.exited":
            continue
        printed = {name: size for name, size in entry.event()["bytes"].items() if size}
        known = await execlog.ends(room, event[1])
        pieces = {
            stream: await execlog.read(room, event[1], stream, (0, end))
            for stream, end in printed.items()
            if known is not None and left > 0
        }
        left -= sum(len(piece.data or b"") for some in pieces.values() for piece in some)
        if known is None or left <= 0:
            frames[event[1]] = [
                gap_frame({"room": room, "exec": event[1]}, stream, start, stop, kept=kept)
                for stream, end in printed.items()
                for start, stop, kept in execlog.layout(end, known=known is not None)
            ]
        else:
            frames[event[1]] = kept_frames({"room": room, "exec": event[1]}, pieces, known[1])
    return frames


def _joined(replay: _Replay, facts: Facts, share: int | None) -> dict[str, Any]:
    room, snapshot, listener = replay.room, replay.snapshot, replay.listener
    present = [*facts.agent_participants(), *room.participants()]
    frame: dict[str, Any] = {
        "type": "joined",
        "room": room.id,
        "role": role_of(listener.participant, snapshot.owner),
        "epoch": snapshot.epoch,
        "offset": snapshot.offset,
        "oldest": snapshot.oldest,
        "resumed": snapshot.resumed,
        "participants": [],
        "events": [],
        "execs": _execs(room, snapshot, share),
        "turns": _open_turns(room, snapshot),
        "sandbox": facts.sandbox_of_room(room.id),
    }
    if replay.request.ref is not None:
        frame["ref"] = replay.request.ref
    people = [_wire(who, snapshot) for who in present]
    left = min(_PARTICIPANTS_BYTES, _FRAME_ROOM_BYTES - len(JSON.encode(frame)))
    told = list(_fitting(people, left))
    if len(told) < len(people):  # a crowd: who joins is told of itself in any case
        people.sort(key=lambda who: who["id"] != listener.participant.id)
        told = list(_fitting(people, left))
    frame["participants"] = told
    if not snapshot.resumed:
        frame["events"] = _newest_fitting(frame, snapshot.entries)
    return frame


def _open_turns(room: Room, snapshot: Snapshot) -> list[dict[str, Any]]:
    """The agent's turns that go on; one whose end is in the snapshot is over."""
    over = {entry.event()["turn"] for entry in snapshot.entries if _FINISHED in entry.body}
    return [turn.view() for name, turn in room.turns.items() if name not in over]


def _newest_fitting(frame: dict[str, Any], entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The newest events that fit the frame beside what else it holds."""
    left = _FRAME_ROOM_BYTES - len(JSON.encode(frame))
    events: list[dict[str, Any]] = []
    for entry in reversed(list(entries)):
        left -= len(entry.body) + 64
        if left < 0:
            break
        events.insert(0, entry.event())
    return events


def _fitting(parts: Iterable[dict[str, Any]], left: int) -> Iterator[dict[str, Any]]:
    """The first of them that have room in `left` bytes."""
    for part in parts:
        left -= len(JSON.encode(part)) + 1
        if left < 0:
            return
        yield part


def _execs(room: Room, snapshot: Snapshot, share: int | None) -> list[dict[str, Any]]:
    """The running execs; what is long of them is cut short where the frame could not hold all."""
    execs = [_running(room, exec_id, snapshot, share) for exec_id in snapshot.running]
    for size in _SHORT_BYTES:
        if sum(len(JSON.encode(one)) for one in execs) <= _EXECS_BYTES:
            break
        for one in execs:
            _shorten(one["started"], size)
    return execs


def _shorten(started: dict[str, Any], size: int) -> None:
    """Cut an exec's command and folder to `size` bytes as JSON has them; its key goes."""
    for name in ("command", "cwd"):
        text = started[name]
        short = text[:size]
        while len(json.dumps(short, ensure_ascii=False).encode()) > size:
            short = short[: len(short) * 3 // 4]
        started[name] = text if len(short) == len(text) else short.rstrip("…") + "…"
    started.pop("key", None)


def _running(room: Room, exec_id: str, snapshot: Snapshot, share: int | None) -> dict[str, Any]:
    run = room.execs.get(exec_id)
    streams = run.spans(share) if isinstance(run, Run) else {}
    started = snapshot.running[exec_id].started.event()
    if isinstance(run, Run) and run.view is not None:
        cols, rows = run.view.size
        started["pty"] = {"cols": cols, "rows": rows}
    return {"started": started, "streams": streams}


def _wire(who: Participant, snapshot: Snapshot) -> dict[str, Any]:
    return {**who.wire(), "role": role_of(who, snapshot.owner)}
