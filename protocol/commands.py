"""Frames from client to server: one model per type, joined in a discriminated union.

`parse` is the one way in; it answers with a model or raises an error in the contract's words.
"""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from protocol import names
from protocol.errors import BadFrame, Invalid, TooLarge
from protocol.model import (
    Argv,
    CommandText,
    DisplayName,
    Emoji,
    Env,
    Id,
    Input,
    Key,
    MessageText,
    Model,
    Offset,
    Position,
    PtySize,
    Ref,
    RoomId,
    Str,
)


class Command(Model):
    ref: Ref | None = None


class Hello(Command):
    type: Literal["hello"] = "hello"
    token: Str | None = None
    name: DisplayName | None = None
    kind: Literal["human", "bot"] = "human"


class Join(Command):
    type: Literal["join"] = "join"
    room: RoomId
    since: Position | None = None
    output: bool = True


class Leave(Command):
    type: Literal["leave"] = "leave"
    room: RoomId


class Say(Command):
    type: Literal["say"] = "say"
    room: RoomId
    text: MessageText
    key: Key | None = None
    reply_to: Id | None = None


class Edit(Command):
    type: Literal["edit"] = "edit"
    room: RoomId
    id: Id
    text: MessageText


class Delete(Command):
    type: Literal["delete"] = "delete"
    room: RoomId
    id: Id


class React(Command):
    type: Literal["react"] = "react"
    room: RoomId
    id: Id
    emoji: Emoji
    on: bool


class Typing(Command):
    type: Literal["typing"] = "typing"
    room: RoomId
    on: bool


class History(Command):
    type: Literal["history"] = "history"
    room: RoomId
    before: Offset | None = None
    after: Offset | None = None
    limit: Annotated[int, Field(ge=1, le=names.HISTORY_PAGE_MAX)] = names.HISTORY_PAGE_DEFAULT

    @model_validator(mode="after")
    def _one_direction(self) -> Self:
        if self.before is not None and self.after is not None:
            raise PydanticCustomError("direction", "give before or after, not both")
        return self


class Exec(Command):
    type: Literal["exec"] = "exec"
    room: RoomId | None = None
    sandbox: Id | None = None
    command: CommandText | None = None
    argv: Argv | None = None
    cwd: Annotated[Str, Field(min_length=1, max_length=4096)] | None = None
    env: Env | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=names.TIMEOUT_MAX_MS)] | None = None
    stdin: bool = False
    pty: PtySize | None = None
    key: Key | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.room is None) == (self.sandbox is None):
            raise PydanticCustomError("place", "give room or sandbox, one of them")
        if (self.command is None) == (self.argv is None):
            raise PydanticCustomError("what", "give command or argv, one of them")
        return self


class ExecInput(Command):
    type: Literal["exec.input"] = "exec.input"
    exec: Id
    data: Input | bytes | None = None
    base64: Str | None = None
    eof: bool = False

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.data is not None and self.base64 is not None:
            raise PydanticCustomError("what", "give data or base64, not both")
        return self


class ExecResize(Command):
    type: Literal["exec.resize"] = "exec.resize"
    exec: Id
    cols: Annotated[int, Field(ge=1, le=1000)]
    rows: Annotated[int, Field(ge=1, le=1000)]


class ExecSignal(Command):
    type: Literal["exec.signal"] = "exec.signal"
    exec: Id
    signal: Annotated[Str, Field(pattern=r"^(SIG)?[A-Z0-9]{2,10}$")]


class ExecCancel(Command):
    type: Literal["exec.cancel"] = "exec.cancel"
    exec: Id


class ExecRead(Command):
    type: Literal["exec.read"] = "exec.read"
    exec: Id
    stream: names.Stream | None = None
    at: Offset
    limit: Annotated[int, Field(ge=1, le=names.READ_LIMIT_MAX_BYTES)] = (
        names.READ_LIMIT_DEFAULT_BYTES
    )


class Ask(Command):
    type: Literal["ask"] = "ask"
    room: RoomId
    text: MessageText
    key: Key | None = None


class AgentStop(Command):
    type: Literal["agent.stop"] = "agent.stop"
    room: RoomId
    turn: Id


class AgentDecide(Command):
    type: Literal["agent.decide"] = "agent.decide"
    room: RoomId
    turn: Id
    call: Id
    decision: Literal["allow", "deny", "always"]
    note: MessageText | None = None


class SandboxStart(Command):
    type: Literal["sandbox.start"] = "sandbox.start"
    id: Id
    image: Str = "workspace"
    instance_type: Str = "lite"
    sleep_after: Str | int = "10m"
    keep_alive: bool = False
    startup_command: CommandText = "true"
    startup_timeout_ms: Annotated[int, Field(ge=1, le=names.TIMEOUT_MAX_MS)] = 30_000
    network: Str | None = None


class SandboxKill(Command):
    type: Literal["sandbox.kill"] = "sandbox.kill"
    id: Id


class SandboxDestroy(Command):
    type: Literal["sandbox.destroy"] = "sandbox.destroy"
    id: Id


class SandboxList(Command):
    type: Literal["sandbox.list"] = "sandbox.list"
    after: Id | None = None
    """The last id of the page before, where that said `more`."""
    limit: Annotated[int, Field(ge=1)] | None = None


class Ping(Command):
    type: Literal["ping"] = "ping"


AnyCommand = (
    Hello
    | Join
    | Leave
    | Say
    | Edit
    | Delete
    | React
    | Typing
    | History
    | Exec
    | ExecInput
    | ExecResize
    | ExecSignal
    | ExecCancel
    | ExecRead
    | Ask
    | AgentStop
    | AgentDecide
    | SandboxStart
    | SandboxKill
    | SandboxDestroy
    | SandboxList
    | Ping
)
COMMANDS: TypeAdapter[AnyCommand] = TypeAdapter(Annotated[AnyCommand, Field(discriminator="type")])
MODELS: dict[str, type[Command]] = {
    model.model_fields["type"].default: model for model in get_args(AnyCommand)
}


_PARTS = {name for part in (Position, PtySize) for name in part.model_fields}
_DETAILS_MAX = 8
"""Errors told of one frame: it is answered by a few lines, however wrong it is."""


def parse(frame: dict[str, Any]) -> AnyCommand:
    """Check a decoded frame against its model.

    Raises BadFrame without a `type`, Invalid or TooLarge with details by field; the error's
    `ref` is the frame's where it has a usable one.
    """
    kind = frame.get("type")
    if not isinstance(kind, str):
        raise BadFrame('A frame is one object with a "type".', ref=usable_ref(frame))
    model = MODELS.get(kind)
    if model is None:
        message = f"There is no command of type {kind[:64]!r}."
        raise Invalid(message, details={"type": ["unknown type"]}, ref=usable_ref(frame))
    try:
        return model.model_validate(frame, by_alias=True, by_name=False)  # type: ignore[return-value]  # MODELS holds the union's members
    except ValidationError as error:
        raise invalid(error, ref=usable_ref(frame)) from None


def usable_ref(frame: dict[str, Any]) -> str | None:
    """The `ref` to echo in an error: only one that could be sent back as it is."""
    ref = frame.get("ref")
    if not isinstance(ref, str) or len(ref) > names.REF_CHARS or "\0" in ref:
        return None
    return ref if not any("\ud800" <= char <= "\udfff" for char in ref) else None


def invalid(error: ValidationError, *, ref: str | None = None) -> Invalid:
    """A validation error in the contract's words: `{field: [messages]}`."""
    details: dict[str, list[str]] = {}
    found = error.errors(include_url=False, include_context=False, include_input=False)
    for item in found[:_DETAILS_MAX]:
        texts = details.setdefault(_field(item), [])
        if (text := _words(item)) not in texts:
            texts.append(text)
    kind = TooLarge if any(item["type"] == "too_large" for item in found) else Invalid
    summary = "; ".join(f"{field}: {', '.join(texts)}" for field, texts in details.items())
    return kind(f"Please correct {summary}.", details=details, ref=ref)


def _field(item: ErrorDetails) -> str:
    """The path of an error, e.g. `since.offset`; a rule of the whole frame stands under `frame`.

    Of the deeper parts only indexes and names of the contract: the rest is the sender's own
    text, which may not even be encodable, or a branch of a union.
    """
    first, *deeper = item["loc"] or ("frame",)
    kept = [part for part in deeper if isinstance(part, int) or part in _PARTS]
    return ".".join(str(part) for part in (first, *kept))


def _words(item: ErrorDetails) -> str:
    if item["type"] == "string_unicode":
        return "must not contain lone surrogates"
    if item["type"] == "string_pattern_mismatch" and item["loc"][-1:] in (("room",), ("id",)):
        return "a room id is 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit"
    if item["type"] == "string_pattern_mismatch" and "signal" in item["loc"]:
        return "must be a signal's name, such as INT or SIGTERM"
    if item["loc"][:1] == ("sleepAfter",):  # neither a number nor a text; both say so
        return "must be seconds, or a number with s, m or h, such as 10m: from 1s to 168h"
    return item["msg"]
