"""Parts that several frames share: limits, a sandbox's state, a command's start and its end.

The frames themselves are in `events`; what clients send is in `commands`.
"""

from pydantic import Field

from protocol import names
from protocol.model import Model, PtySize


class Limits(Model):
    """What a client may send and expect; sizes in bytes unless the name says otherwise."""

    frame_bytes: int = names.FRAME_BYTES
    server_frame_bytes: int = names.SERVER_FRAME_BYTES
    text_chars: int = names.TEXT_CHARS
    command_bytes: int = names.COMMAND_BYTES
    frames_per_second: int
    rooms: int = names.SESSION_ROOMS
    exec_kept_bytes: int
    resume_events: int = names.RESUME_EVENTS


class ServerInfo(Model):
    version: str
    protocol: int = names.PROTOCOL_VERSION


class StreamRange(Model):
    """Bytes of one stream that follow a join: from the first kept to the last sent."""

    from_: int = Field(alias="from")
    to: int


class Sandbox(Model):
    """The state of a sandbox, in the `sandbox` event and in lists.

    Of a saved workspace `saved_at` (ms since the epoch) and, once measured, what it takes on disk.
    """

    id: str
    status: str
    workspace_saved: bool
    image: str
    instance_type: str
    expected_stop_at: int | None = None
    last_error: str | None = None
    saved_at: int | None = None
    workspace_bytes: int | None = None


class Started(Model):
    """What a command is, when it starts; of a turn's, its place `at` in the words (code points)."""

    exec: str
    command: str
    cwd: str
    turn: str | None = None
    at: int | None = None
    stdin: bool | None = None
    pty: PtySize | None = None


class Exited(Model):
    """The one end of an exec. `reason` only where `ok` is false."""

    exec: str
    ok: bool
    reason: str | None = None
    message: str | None = None
    retryable: bool | None = None
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    warnings: list[str] | None = None
    duration_ms: int
    bytes: dict[str, int]
    truncated: dict[str, bool]


class AgentPolicy(Model):
    """Whether the agent's commands run at once, after somebody's word, or not at all."""

    approval: str
