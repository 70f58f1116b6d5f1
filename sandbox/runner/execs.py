"""The state of one command and of each of its streams, and the output kept for a later client.

No reading or writing happens here.
"""

import time
from collections import deque
from typing import Any

from sandbox.runner.loop import Timer

STREAMS = ("stdout", "stderr", "pty")
PTY = 2
KEPT_STREAM_BYTES = 256 * 1024
# The engine stalls every attachment once about 1.2 MB lies unread; no more than that is replayed.
KEPT_TOTAL_BYTES = 1024 * 1024


class Exec:
    """One command, from its spawn until a client has confirmed its end."""

    __slots__ = (
        "began", "deadline", "end", "gone", "id", "input", "input_at", "input_eof", "input_fd",
        "input_size", "kill_at", "left_bytes", "mute", "oom_before", "pid", "slot", "status",
        "streams", "why",
    )  # fmt: skip

    def __init__(self, exec_id: str, slot: int, limit_bytes: int) -> None:
        self.id, self.slot, self.left_bytes = exec_id, slot, limit_bytes
        self.pid = 0
        self.streams: list[Stream] = []
        self.input_fd = -1
        self.input: deque[bytes] = deque()
        self.input_size = self.input_at = 0
        self.input_eof = False
        self.deadline: Timer | None = None
        self.why: str | None = None  # our own reason to end it
        self.kill_at = 0.0
        self.status: int | None = None  # as waitpid gave it
        self.gone = False  # nothing that carries its tag is left
        self.mute = False  # it printed all it may; the rest is read and dropped
        self.end: dict[str, Any] | None = None
        self.began = time.monotonic()
        self.oom_before = 0

    @property
    def done(self) -> bool:
        return self.end is not None

    @property
    def terminal(self) -> bool:
        return bool(self.streams) and self.streams[0].code == PTY

    @property
    def settled(self) -> bool:
        """Its process is reaped, what we killed is gone, what it said is out."""
        killed = self.why is None or self.gone
        return self.status is not None and killed and all(s.finished for s in self.streams)


class Stream:
    """One output of one command: how far it was read, may be sent, and is kept."""

    __slots__ = ("armed", "at", "code", "exec", "fd", "granted", "kept", "kept_bytes", "left")

    def __init__(self, owner: Exec, code: int, fd: int, granted: int) -> None:
        self.exec, self.code, self.fd, self.granted = owner, code, fd, granted
        self.at = self.kept_bytes = 0
        self.kept: deque[tuple[int, bytes]] = deque()
        self.left: int | None = None  # bytes still to be read after the command's own end
        self.armed = False

    @property
    def name(self) -> str:
        return STREAMS[self.code]

    @property
    def finished(self) -> bool:
        return self.fd < 0 or self.left == 0 or self.exec.mute

    @property
    def dropping(self) -> bool:
        """A background child may print on; nobody sees it, and it must not block either."""
        return self.exec.done or self.exec.mute

    def room(self) -> int:
        """How many bytes may be read and sent now."""
        room = self.granted - self.at
        return room if self.left is None else min(room, self.left)


class Kept:
    """Sent and unacknowledged output of all streams. Full, it forgets the oldest of the stream
    that needs room: a server may take a flood faster than it stores it.
    """

    def __init__(self) -> None:
        self.total = 0

    def add(self, stream: Stream, data: bytes) -> None:
        """`data` was sent at `stream.at`."""
        stream.kept.append((stream.at, data))
        stream.kept_bytes += len(data)
        self.total += len(data)
        while stream.kept and (
            stream.kept_bytes > KEPT_STREAM_BYTES or self.total > KEPT_TOTAL_BYTES
        ):
            self._drop_first(stream)

    def acknowledge(self, stream: Stream, position: int) -> None:
        while stream.kept and stream.kept[0][0] + len(stream.kept[0][1]) <= position:
            self._drop_first(stream)

    def drop(self, stream: Stream) -> None:
        while stream.kept:
            self._drop_first(stream)

    def since(self, stream: Stream, position: int) -> list[tuple[int, bytes]]:
        """What a client that has everything before `position` lacks, as far as it is kept."""
        self.acknowledge(stream, position)
        return [(max(at, position), data[max(0, position - at) :]) for at, data in stream.kept]

    def _drop_first(self, stream: Stream) -> None:
        size = len(stream.kept.popleft()[1])
        stream.kept_bytes -= size
        self.total -= size
