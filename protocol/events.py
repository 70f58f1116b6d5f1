"""Frames from server to client: replies, persisted events and ephemeral events.

The server's hot path may build the same shapes without these models; tests hold the two together.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from protocol.model import Model, Participant, Str
from protocol.shapes import (
    AgentPolicy,
    Exited,
    Limits,
    Sandbox,
    ServerInfo,
    Started,
    StreamRange,
)


class Reply(Model):
    ref: Str | None = None


class Welcome(Reply):
    type: Literal["welcome"] = "welcome"
    session: str
    participant: Participant
    token: str
    server: ServerInfo
    limits: Limits


class Persisted(Model):
    """Stored in the room's log: same order for everyone, dense offsets."""

    room: str
    offset: int
    ts: int
    by: Participant
    key: str | None = None


class Message(Persisted):
    type: Literal["message"] = "message"
    id: str
    text: str | None = None
    reply_to: str | None = None
    turn: str | None = None
    partial: bool | None = None
    edited_ts: int | None = None
    deleted: bool | None = None


class MessageEdited(Persisted):
    type: Literal["message.edited"] = "message.edited"
    id: str
    text: str | None = None


class MessageDeleted(Persisted):
    type: Literal["message.deleted"] = "message.deleted"
    id: str


class MessageReacted(Persisted):
    type: Literal["message.reacted"] = "message.reacted"
    id: str
    emoji: str
    on: bool


class ExecStarted(Persisted, Started):
    type: Literal["exec.started"] = "exec.started"


class ExecExited(Persisted, Exited):
    type: Literal["exec.exited"] = "exec.exited"


class AgentQueued(Persisted):
    type: Literal["agent.queued"] = "agent.queued"
    turn: str
    question: str
    reply_to: str | None = None


class AgentStarted(Persisted):
    type: Literal["agent.started"] = "agent.started"
    turn: str
    question: str
    reply_to: str | None = None


class AgentApproval(Persisted):
    """A wanted command, at its place in the turn's words (code points before it).

    Where `expires_ts` is not after `ts` nobody is asked: its refusal follows.
    """

    type: Literal["agent.approval"] = "agent.approval"
    turn: str
    call: str
    command: str
    at: int | None = None
    expires_ts: int


class AgentDecided(Persisted):
    type: Literal["agent.decided"] = "agent.decided"
    turn: str
    call: str
    decision: str
    note: str | None = None


class AgentFinished(Persisted):
    type: Literal["agent.finished"] = "agent.finished"
    turn: str
    status: str
    message: str | None = None
    usage: dict[str, int] | None = None


class SandboxChanged(Persisted, Sandbox):
    type: Literal["sandbox"] = "sandbox"


class RoomUpdated(Persisted):
    type: Literal["room.updated"] = "room.updated"
    name: str
    description: str
    agent: AgentPolicy | None = None


class RoomCleared(Persisted):
    type: Literal["room.cleared"] = "room.cleared"


class ParticipantJoined(Model):
    type: Literal["participant.joined"] = "participant.joined"
    room: str
    participant: Participant


class ParticipantLeft(Model):
    type: Literal["participant.left"] = "participant.left"
    room: str
    participant: Participant


class TypingChanged(Model):
    type: Literal["typing"] = "typing"
    room: str
    participant: Participant
    on: bool


class ExecOutput(Model):
    """Bytes of a stream from byte `at`; `pos` counts the bytes of all the exec's streams before."""

    type: Literal["exec.output"] = "exec.output"
    ref: str | None = None
    room: str | None = None
    exec: str
    stream: str
    at: int
    size: int
    pos: int
    data: str | bytes | None = None
    base64: str | None = None


class ExecGap(Model):
    """Bytes this client was not sent; `exec.read` fetches them while `kept`."""

    type: Literal["exec.gap"] = "exec.gap"
    ref: str | None = None
    room: str | None = None
    exec: str
    stream: str
    from_: int = Field(alias="from")
    to: int
    kept: bool


class ExecResized(Model):
    """The terminal of a command has another size: its opener's."""

    type: Literal["exec.resized"] = "exec.resized"
    room: str | None = None
    exec: str
    cols: int
    rows: int


class AgentDelta(Model):
    type: Literal["agent.delta"] = "agent.delta"
    room: str
    turn: str
    at: int
    text: str


class AgentRetry(Model):
    """The model could not be asked; the turn waits until `retry_ts` and tries again."""

    type: Literal["agent.retry"] = "agent.retry"
    room: str
    turn: str
    attempt: int
    message: str
    retry_ts: int


class Left(Model):
    type: Literal["left"] = "left"
    room: str
    code: str
    message: str
    rejoin: bool


class Bye(Model):
    type: Literal["bye"] = "bye"
    code: int
    reason: str
    reconnect: bool


class RunningExec(Model):
    started: ExecStarted
    streams: dict[str, StreamRange]


class Turn(Model):
    turn: str
    by: Participant
    question: str
    reply_to: str | None = None
    status: str
    text: str
    calls: list[dict[str, Any]]


LogEvent = (
    Message
    | MessageEdited
    | MessageDeleted
    | MessageReacted
    | ExecStarted
    | ExecExited
    | AgentQueued
    | AgentStarted
    | AgentApproval
    | AgentDecided
    | AgentFinished
    | SandboxChanged
    | RoomUpdated
    | RoomCleared
)
AnyLogEvent = Annotated[LogEvent, Field(discriminator="type")]


class Joined(Reply):
    type: Literal["joined"] = "joined"
    room: str
    role: str
    epoch: str
    offset: int
    oldest: int
    resumed: bool
    participants: list[Participant]
    events: list[AnyLogEvent]
    execs: list[RunningExec]
    turns: list[Turn]
    sandbox: Sandbox | None = None


class Ack(Reply):
    type: Literal["ack"] = "ack"
    offset: int | None = None
    id: str | None = None
    exec: str | None = None
    turn: str | None = None
    at: int | None = None
    end: int | None = None
    exited: Exited | None = None
    """How the command ended whose output was read, where no room tells it."""
    sandbox: Sandbox | None = None
    sandboxes: list[Sandbox] | None = None
    more: bool | None = None
    """Further `sandboxes` follow: ask again with `after`, the last one's id."""


class Page(Reply):
    type: Literal["page"] = "page"
    events: list[AnyLogEvent]
    more: bool


class Error(Reply):
    type: Literal["error"] = "error"
    code: str
    message: str
    retryable: bool
    details: dict[str, list[str]] | None = None
    retry_after_ms: int | None = None


class Pong(Reply):
    type: Literal["pong"] = "pong"


AnyReply = Welcome | Joined | Ack | Page | Error | Pong
Ephemeral = (
    ParticipantJoined
    | ParticipantLeft
    | TypingChanged
    | ExecOutput
    | ExecGap
    | ExecResized
    | AgentDelta
    | AgentRetry
    | Left
    | Bye
)
AnyEvent = AnyReply | LogEvent | Ephemeral
EVENTS: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="type")])
MODELS: dict[str, type[Model]] = {
    model.model_fields["type"].default: model for model in get_args(AnyEvent)
}


class SandboxExecStarted(Started):
    """As `exec.started`, for who asked a sandbox without a room: no room, no offset."""

    type: Literal["exec.started"] = "exec.started"
    by: Participant
    key: str | None = None


class SandboxExecExited(Exited):
    """As `exec.exited`, for who asked a sandbox without a room: no room, no offset."""

    type: Literal["exec.exited"] = "exec.exited"
    by: Participant


class SandboxState(Sandbox):
    """As `sandbox`, for who asked for a sandbox without a room: no room, no offset."""

    type: Literal["sandbox"] = "sandbox"


AnySandboxEvent = SandboxExecStarted | SandboxExecExited | SandboxState
SANDBOX_EVENTS: TypeAdapter[AnySandboxEvent] = TypeAdapter(
    Annotated[AnySandboxEvent, Field(discriminator="type")]
)
SANDBOX_MODELS: dict[str, type[Model]] = {
    model.model_fields["type"].default: model for model in get_args(AnySandboxEvent)
}


def model_of(frame: Mapping[str, Any]) -> type[Model] | None:
    """The model of a server's frame; None for a type that is not known (yet)."""
    kind = frame.get("type")
    if not isinstance(kind, str):
        return None
    if "room" not in frame and kind in SANDBOX_MODELS:
        return SANDBOX_MODELS[kind]
    return MODELS.get(kind)
