"""The base of every frame and the field types that frames share.

Strict on the way in: no coercion, no NUL, no lone surrogates; unknown fields are ignored.
"""

import unicodedata
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from protocol import names


class Model(BaseModel):
    """camelCase on the wire, snake_case in Python."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        strict=True,
        frozen=True,
    )

    def wire(self) -> dict[str, Any]:
        """The frame as sent: camelCase, without the fields that are not set."""
        return self.model_dump(by_alias=True, exclude_none=True)


def _encodable(text: str) -> str:
    """Pydantic lets lone surrogates through where a string has no rule of its own."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("surrogates", "must not contain lone surrogates") from None
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "must not contain the NUL character")
    return text


def _message_text(text: str) -> str:
    if len(text) > names.TEXT_CHARS:
        raise PydanticCustomError(
            "too_large", "must be at most {n} characters long", {"n": names.TEXT_CHARS}
        )
    if not text.strip():
        raise PydanticCustomError("blank", "must not be empty")
    return text


def _command(text: str) -> str:
    if len(text.encode()) > names.COMMAND_BYTES:
        raise PydanticCustomError(
            "too_large", "must be at most {n} bytes long", {"n": names.COMMAND_BYTES}
        )
    if not text.strip():
        raise PydanticCustomError("blank", "must not be empty")
    return text


def _argv(argv: list[str]) -> list[str]:
    if not argv or not argv[0]:
        raise PydanticCustomError("blank", "must hold at least the program's name")
    if sum(len(arg.encode()) for arg in argv) > names.COMMAND_BYTES:
        raise PydanticCustomError(
            "too_large", "must be at most {n} bytes long in all", {"n": names.COMMAND_BYTES}
        )
    return argv


def _env(env: dict[str, str]) -> dict[str, str]:
    if any(not key or "=" in key for key in env):
        raise PydanticCustomError("env", "names must not be empty or contain '='")
    if sum(len(k.encode()) + len(v.encode()) for k, v in env.items()) > names.ENV_BYTES:
        raise PydanticCustomError(
            "too_large", "must be at most {n} bytes long in all", {"n": names.ENV_BYTES}
        )
    return env


Input = Annotated[str, AfterValidator(_encodable)]
"""What a person types into a program: NUL is a key there (Ctrl+Space)."""
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of what follows: in a name, the rest of everyone's line."""


_JOINERS = frozenset("\u200c\u200d")
"""Invisible, but parts of words in some scripts, and of emoji."""


def _name(text: str) -> str:
    """No character that breaks or turns a line, or that makes two names look like one."""
    for char in text:
        kind = unicodedata.category(char)
        if char in _TURNING or kind in ("Cc", "Zl", "Zp"):
            raise PydanticCustomError("name", "must not contain control characters")
        if kind == "Cf" and char not in _JOINERS:
            raise PydanticCustomError("name", "must not contain invisible characters")
    if all(char.isspace() or char in _JOINERS for char in text):
        raise PydanticCustomError("blank", "must not be empty")
    return text


def _emoji(text: str) -> str:
    """Something to see, that leaves the line it stands in as it is. Flags have tags, `Cf` too."""
    for char in text:
        if char in _TURNING or unicodedata.category(char) in ("Cc", "Zl", "Zp"):
            raise PydanticCustomError("emoji", "must not contain control characters")
    if all(char.isspace() or unicodedata.category(char) == "Cf" for char in text):
        raise PydanticCustomError("blank", "must not be empty")
    return text


Str = Annotated[Input, AfterValidator(_no_nul)]
MessageText = Annotated[Str, AfterValidator(_message_text)]
CommandText = Annotated[Str, AfterValidator(_command)]
Argv = Annotated[list[Str], AfterValidator(_argv)]
Env = Annotated[dict[Str, Str], AfterValidator(_env)]
RoomId = Annotated[str, StringConstraints(pattern=names.ROOM_ID_PATTERN)]
Ref = Annotated[str, StringConstraints(max_length=names.REF_CHARS), AfterValidator(_no_nul)]
Key = Annotated[
    str, StringConstraints(min_length=1, max_length=names.KEY_CHARS), AfterValidator(_no_nul)
]
Id = Annotated[str, StringConstraints(min_length=1, max_length=128), AfterValidator(_no_nul)]
DisplayName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=names.NAME_CHARS, strip_whitespace=True),
    AfterValidator(_name),
]
Emoji = Annotated[
    str, StringConstraints(min_length=1, max_length=names.EMOJI_CHARS), AfterValidator(_emoji)
]
Offset = Annotated[int, Field(ge=0, le=names.OFFSET_MAX)]


class Position(Model):
    """A place in a room's log."""

    epoch: Str
    offset: Offset


class PtySize(Model):
    cols: Annotated[int, Field(ge=1, le=1000)]
    rows: Annotated[int, Field(ge=1, le=1000)]


class Participant(Model):
    """An identity: who says or runs something."""

    id: Str
    name: Str
    kind: names.Kind
    role: Literal["owner", "member"] | None = None
