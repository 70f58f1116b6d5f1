"""What each command of a session does: one method per type, named after it.

They call the hub and reply; checking frames is `session`'s, rooms and execs do the work.
"""

import base64
import binascii
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from protocol import commands as c
from protocol import names
from protocol.commands import AnyCommand
from protocol.errors import (
    Conflict,
    DuetError,
    Invalid,
    LimitReached,
    NotJoined,
    UnknownExec,
    UnknownRoom,
)
from protocol.model import Participant
from protocol.shapes import Limits
from sandbox.errors import InvalidSpec
from server.agent.turns import Agent
from server.execframes import kept_frames
from server.hub import Hub
from server.join import JoinRequest, join
from server.listing import PAGE_BYTES
from server.records import ROOM_PREFIX
from server.room import Room
from server.run import Run
from server.session import Session
from server.solo import MARK
from server.tokens import Tokens
from server.view import no_terminal
from server.wire import Outgoing

Handle = Callable[[Session, Any], Awaitable[None]]


class Handlers:
    """The `Handler` of every session."""

    def __init__(
        self, hub: Hub, agent: Agent, tokens: Tokens, limits: Limits, version: str
    ) -> None:
        self._hub = hub
        self._agent = agent
        self._tokens = tokens
        self._limits = limits.wire()
        self._server = {"version": version, "protocol": names.PROTOCOL_VERSION}
        self._table: dict[str, Handle] = {
            "join": self._join,
            "leave": self._leave,
            "say": self._say,
            "edit": self._edit,
            "delete": self._delete,
            "react": self._react,
            "typing": self._typing,
            "history": self._history,
            "exec": self._exec,
            "exec.input": self._exec_input,
            "exec.resize": self._exec_resize,
            "exec.signal": self._exec_signal,
            "exec.cancel": self._exec_cancel,
            "exec.read": self._exec_read,
            "ask": self._ask,
            "agent.stop": self._agent_stop,
            "agent.decide": self._agent_decide,
            "sandbox.start": self._sandbox_start,
            "sandbox.kill": self._sandbox_kill,
            "sandbox.destroy": self._sandbox_destroy,
            "sandbox.list": self._sandbox_list,
            "ping": self._ping,
        }

    # The session itself

    def welcome(self, session: Session, hello: c.Hello) -> dict[str, Any]:
        participant = self._who(hello)
        session.participant = participant
        return {
            "type": "welcome",
            "session": session.id,
            "participant": participant.wire(),
            "token": self._tokens.issue(participant),
            "server": self._server,
            "limits": self._limits,
        }

    def _who(self, hello: c.Hello) -> Participant:
        """The token's participant, under a new name if one is given; else a new one.

        Nobody may go by the agent's name: what it says must be told from what people say.
        """
        if (
            hello.name is not None
            and hello.name.casefold() == self._agent.participant.name.casefold()
        ):
            message = f"{hello.name!r} is the agent's name here; choose another."
            raise Conflict(message, details={"name": ["is the agent's"]})
        if hello.token is not None:
            known = self._tokens.read(hello.token)
            if hello.name is None or hello.name == known.name:
                return known
            renamed = known.model_copy(update={"name": hello.name})
            self._hub.rename(renamed)
            return renamed
        fresh = f"p_{secrets.token_hex(8)}"
        return Participant(id=fresh, name=hello.name or "Guest", kind=hello.kind)

    async def handle(self, session: Session, command: AnyCommand) -> None:
        await self._table[command.type](session, command)

    def gone(self, session: Session) -> None:
        for room in list(session.rooms.values()):
            room.detach(session)
        session.rooms.clear()
        self._hub.sandboxes.forget_listener(session)

    async def _ping(self, session: Session, command: c.Ping) -> None:
        session.reply(command.ref, {"type": "pong"})

    # Rooms

    async def _join(self, session: Session, command: c.Join) -> None:
        if command.room not in session.rooms and len(session.rooms) >= names.SESSION_ROOMS:
            message = f"A session can be in {names.SESSION_ROOMS} rooms; leave one first."
            raise LimitReached(message)
        since = None if command.since is None else (command.since.epoch, command.since.offset)
        request = JoinRequest(command.ref, since, command.output)
        room = await self._hub.open(command.room)
        session.rooms[command.room] = room
        try:
            await join(room, session, request, self._hub)
        except BaseException:
            session.rooms.pop(command.room, None)
            raise

    async def _leave(self, session: Session, command: c.Leave) -> None:
        room = await self._joined(session, command.room)
        del session.rooms[command.room]
        room.detach(session)
        session.reply(command.ref, {"type": "ack"})

    async def _joined(self, session: Session, room_id: str) -> Room:
        """Raises UnknownRoom, or NotJoined for one that is there."""
        room = session.rooms.get(room_id)
        if room is None:
            await self._hub.roomlog.room(room_id)
            raise NotJoined(f"Join the room {room_id!r} first.")
        return room

    async def _say(self, session: Session, command: c.Say) -> None:
        await self._joined(session, command.room)
        stored = await self._hub.say(
            command.room, session.participant, command.text, command.key, command.reply_to
        )
        ack = {"type": "ack", "offset": stored.offset, "id": stored.answer}
        session.reply(command.ref, ack)
        if self._agent.mentioned(command.text):
            await self._ask_too(session, command, stored.answer)

    async def _edit(self, session: Session, command: c.Edit) -> None:
        await self._joined(session, command.room)
        stored = await self._hub.edit(command.room, session.participant, command.id, command.text)
        session.reply(command.ref, {"type": "ack", "offset": stored.offset})

    async def _delete(self, session: Session, command: c.Delete) -> None:
        await self._joined(session, command.room)
        stored = await self._hub.delete_message(command.room, session.participant, command.id)
        session.reply(command.ref, {"type": "ack", "offset": stored.offset})

    async def _react(self, session: Session, command: c.React) -> None:
        await self._joined(session, command.room)
        stored = await self._hub.react(
            command.room, session.participant, command.id, command.emoji, on=command.on
        )
        session.reply(command.ref, {"type": "ack", "offset": stored.offset})

    async def _typing(self, session: Session, command: c.Typing) -> None:
        room = await self._joined(session, command.room)
        self._hub.typing(room, session, on=command.on)

    async def _history(self, session: Session, command: c.History) -> None:
        await self._joined(session, command.room)
        page = await self._hub.page(
            command.room, before=command.before, after=command.after, limit=command.limit
        )
        session.reply(command.ref, {"type": "page", **page})

    # Commands in the sandbox

    async def _exec(self, session: Session, command: c.Exec) -> None:
        if command.room is None:
            await self._exec_solo(session, command)
            return
        room = await self._joined(session, command.room)
        stored, _run = await self._hub.execs.start(room, session.participant, command)
        ack = {"type": "ack", "offset": stored.offset, "exec": stored.answer}
        session.reply(command.ref, ack)

    async def _exec_solo(self, session: Session, command: c.Exec) -> None:
        found = await self._hub.sandboxes.execute(
            command.sandbox or "", session.participant, command, session
        )
        exec_id = found if isinstance(found, str) else found.exec
        session.reply(command.ref, {"type": "ack", "exec": exec_id})

    async def _run(self, session: Session, exec_id: str) -> Run:
        """A run of a room this session is in, or of a sandbox without one."""
        if exec_id.startswith(MARK):
            return self._hub.sandboxes.solo.find(exec_id)
        await self._check_room(session, exec_id)
        return self._hub.execs.find(exec_id)

    async def _check_room(self, session: Session, exec_id: str) -> dict[str, str]:
        """The room whose name an exec id begins with. Raises UnknownExec or NotJoined."""
        room_id, dot, _ = exec_id.rpartition(".")
        if not dot:
            raise UnknownExec("There is no such command.")
        try:
            return {"room": (await self._joined(session, room_id)).id}
        except UnknownRoom:
            raise UnknownExec("There is no such command.") from None

    async def _exec_input(self, session: Session, command: c.ExecInput) -> None:
        run = await self._run(session, command.exec)
        if not run.takes_input:
            raise Invalid("This command takes no input; start it with stdin or a pty.")
        if run.ended:
            raise UnknownExec("This command does not run any more.")
        run.inputs.put(_input_bytes(command), eof=command.eof)
        session.reply(command.ref, {"type": "ack"})

    async def _exec_resize(self, session: Session, command: c.ExecResize) -> None:
        run = await self._run(session, command.exec)
        if run.view is None:
            raise no_terminal()
        process = await run.running()
        try:
            await run.view.resize(session.participant, command.cols, command.rows, process)
        except InvalidSpec as error:
            raise Invalid(error.message) from None
        session.reply(command.ref, {"type": "ack"})
        size = {"cols": command.cols, "rows": command.rows}
        run.place.broadcast(Outgoing({"type": "exec.resized", **run.head, **size}))

    async def _exec_signal(self, session: Session, command: c.ExecSignal) -> None:
        run = await self._run(session, command.exec)
        process = await run.running()
        try:
            await process.signal(command.signal)
        except InvalidSpec as error:
            raise Invalid(error.message, details={"signal": [error.message]}) from None
        session.reply(command.ref, {"type": "ack"})

    async def _exec_cancel(self, session: Session, command: c.ExecCancel) -> None:
        if command.exec.startswith(MARK):
            await self._hub.sandboxes.solo.cancel(command.exec)
        else:
            room = (await self._check_room(session, command.exec))["room"]
            await self._hub.execs.cancel(room, command.exec)
        session.reply(command.ref, {"type": "ack"})

    async def _only_stream(self, exec_id: str) -> str:
        """The stream meant where none is named: a terminal has one, other commands say stdout."""
        execs = self._hub.sandboxes.solo if exec_id.startswith(MARK) else self._hub.execs
        return "pty" if "pty" in await execs.streams(exec_id) else "stdout"

    async def _exec_read(self, session: Session, command: c.ExecRead) -> None:
        stream = command.stream or await self._only_stream(command.exec)
        span = (command.at, command.at + command.limit)
        head, exited = {"exec": command.exec}, None
        if command.exec.startswith(MARK):
            exited = await self._hub.sandboxes.solo.ask(command.exec, session)
            pieces, end, order = await self._hub.sandboxes.solo.read(command.exec, stream, span)
        else:
            head |= await self._check_room(session, command.exec)
            pieces, end, order = await self._hub.execs.read(command.exec, stream, span)
        head |= {} if command.ref is None else {"ref": command.ref}
        frames = kept_frames(head, {stream: pieces}, order)
        for frame in frames:
            session.send(frame)
        reached = pieces[-1].end if pieces else command.at
        ack = {"type": "ack", "at": reached, "end": end}
        session.reply(command.ref, ack if exited is None else {**ack, "exited": exited})

    # The agent

    async def _ask_too(self, session: Session, command: c.Say, message: str) -> None:
        """Ask for a message that was said, and acknowledged: a failure has no `ref` left."""
        who = session.participant
        try:
            await self._agent.ask(command.room, who, command.text, reply_to=message)
        except DuetError as error:
            session.send_error(error, None)

    async def _ask(self, session: Session, command: c.Ask) -> None:
        await self._joined(session, command.room)
        turn = await self._agent.ask(
            command.room, session.participant, command.text, key=command.key
        )
        session.reply(command.ref, {"type": "ack", "turn": turn})

    async def _agent_stop(self, session: Session, command: c.AgentStop) -> None:
        await self._joined(session, command.room)
        self._agent.stop(command.room, command.turn, session.participant)
        session.reply(command.ref, {"type": "ack"})

    async def _agent_decide(self, session: Session, command: c.AgentDecide) -> None:
        await self._joined(session, command.room)
        await self._agent.decide(command.room, session.participant, command)
        session.reply(command.ref, {"type": "ack"})

    # Sandboxes by id

    async def _may(self, session: Session, sandbox: str) -> None:
        """A room's sandbox is for those who are in the room. Raises NotJoined."""
        name = sandbox.strip().lower()
        if name.startswith(ROOM_PREFIX):
            await self._joined(session, name.removeprefix(ROOM_PREFIX))

    async def _sandbox_start(self, session: Session, command: c.SandboxStart) -> None:
        await self._may(session, command.id)
        record = await self._hub.sandboxes.start(command, session)
        session.reply(command.ref, {"type": "ack", "sandbox": record})

    async def _sandbox_kill(self, session: Session, command: c.SandboxKill) -> None:
        await self._may(session, command.id)
        record = await self._hub.sandboxes.kill(command.id, session)
        session.reply(command.ref, {"type": "ack", "sandbox": record})

    async def _sandbox_destroy(self, session: Session, command: c.SandboxDestroy) -> None:
        await self._may(session, command.id)
        record = await self._hub.sandboxes.destroy(command.id, session)
        session.reply(command.ref, {"type": "ack", "sandbox": record})

    async def _sandbox_list(self, session: Session, command: c.SandboxList) -> None:
        found, more = self._hub.sandboxes.list(
            after=command.after, limit=command.limit, size_bytes=PAGE_BYTES
        )
        ack = {"type": "ack", "sandboxes": found}
        session.reply(command.ref, {**ack, "more": True} if more else ack)


def _input_bytes(command: c.ExecInput) -> bytes:
    if command.base64 is not None:
        try:
            return base64.b64decode(command.base64, validate=True)
        except (binascii.Error, ValueError):
            raise Invalid("Please correct base64.", details={"base64": ["not base64"]}) from None
    data = command.data or b""
    return data.encode() if isinstance(data, str) else data
