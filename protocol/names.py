"""Names and limits of the wire: versions, subprotocols, close codes, sizes.

No models here; those are in `commands` and `events`.
"""

from enum import IntEnum
from typing import Final, Literal

PROTOCOL_VERSION: Final = 1
SUBPROTOCOL_JSON: Final = "duet.v1.json"
SUBPROTOCOL_MSGPACK: Final = "duet.v1.msgpack"
SUBPROTOCOLS: Final = (SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK)

ROOM_ID_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,63}$"

FRAME_BYTES: Final = 256 * 1024
"""Largest frame a client may send. Holds the largest text or command in its worst JSON escape."""
SERVER_FRAME_BYTES: Final = 256 * 1024
"""Largest frame the server sends, so that clients can set their own limit."""
TEXT_CHARS: Final = 16_384
"""Code points in a message: 12 bytes each in the worst JSON escape stay under FRAME_BYTES."""
COMMAND_BYTES: Final = 32 * 1024
"""UTF-8 bytes of a command: six times that in the worst JSON escape stay under FRAME_BYTES."""
REF_CHARS: Final = 64
KEY_CHARS: Final = 128
NAME_CHARS: Final = 64
DESCRIPTION_CHARS: Final = 500
EMOJI_CHARS: Final = 32
ENV_BYTES: Final = 64 * 1024
TIMEOUT_MAX_MS: Final = 24 * 60 * 60 * 1000
HISTORY_PAGE_DEFAULT: Final = 50
HISTORY_PAGE_MAX: Final = 200
READ_LIMIT_DEFAULT_BYTES: Final = 256 * 1024
READ_LIMIT_MAX_BYTES: Final = 1024 * 1024
RESUME_EVENTS: Final = 1_000
"""Missed events that a rejoin replays; beyond it a fresh page is cheaper for both sides."""
SESSION_ROOMS: Final = 100
OFFSET_MAX: Final = 2**53 - 1
"""The largest integer that JavaScript and Lua keep exactly."""
BAD_FRAMES_MAX: Final = 20
BAD_FRAMES_WINDOW_S: Final = 10.0

Kind = Literal["human", "bot", "agent"]
Role = Literal["owner", "member"]
Stream = Literal["stdout", "stderr", "pty"]
Status = Literal["requested", "starting", "running", "stopping", "stopped", "error"]
LeftCode = Literal["removed", "deleted", "forbidden", "room_error"]


class CloseCode(IntEnum):
    """WebSocket close codes; 4000 to 4499 ask the client to reconnect, 4500 to 4999 not to."""

    RESTARTING = 4000
    TOO_SLOW = 4001
    SILENT = 4002
    NOT_ALLOWED = 4500
    REVOKED = 4501
    BROKEN_FRAMES = 4502


def should_reconnect(code: int) -> bool:
    """Whether a client whose connection closed with `code` should connect again."""
    return 4000 <= code <= 4499 or code in (1001, 1006, 1011, 1012, 1013)  # noqa: PLR2004 - the contract's own numbers
