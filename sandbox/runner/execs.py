"""The state of one command and of each of its streams, and the output kept for a later client.

No reading or writing happens here.
"""

import time
from collections import deque
from typing import Any

from sandbox.runner.loop import Timer

STREAMS = ("stdout", "stderr", "pty")
PTY = 2
# A server stores at most every 100 ms and confirms then; what it has not confirmed is kept, and a
# command that would print more waits. This is 40 MB/s of one command, and 6 % of the least memory.
KEPT_STREAM_BYTES = 4 * 1024 * 1024
KEPT_TOTAL_BYTES = 16 * 1024 * 1024
# Every stream may have this much, whatever others have: more than a client confirms at once.
KEPT_LEAST_BYTES = 96 * 1024
JOINED_BYTES = 4096  # smaller pieces are kept as one, or each would cost more than it holds


class Exec:
    """One command, from its spawn until a client has confirmed its end."""

    __slots__ = (
        "began", "claimed", "deadline", "end", "gone", "id", "input", "input_at", "input_eof",
        "input_fd", "input_size", "kill_at", "left_bytes", "limit_bytes", "mute", "oom_before",
        "pid", "slot", "status", "streams", "timeout_ms", "why",
    )  # fmt: skip

    def __init__(self, exec_id: str, slot: int, limit_bytes: int, timeout_ms: int = 0) -> None:
        self.id, self.slot, self.left_bytes = exec_id, slot, limit_bytes
        self.limit_bytes, self.timeout_ms = limit_bytes, timeout_ms
        self.claimed = True  # the current client wants to hear of it
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

    def row(self) -> dict[str, Any]:
        """What a later client has to know of it, to go on with it."""
        now = time.monotonic()
        return {
            "x": self.id,
            "streams": {s.name: {"at": s.at, "granted": s.granted} for s in self.streams},
            "pty": self.terminal,
            "stdin": self.input_fd >= 0,
            "in": self.input_at + self.input_size,
            "timeout": self.timeout_ms,
            "limit": self.limit_bytes,
            "age": round((now - self.began) * 1000),
            "done": self.done,
        }

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
    """Read and unacknowledged output of all streams. While it is full, commands wait with theirs;
    only what ended commands said is forgotten for it, the oldest first.
    """

    def __init__(self) -> None:
        self.total = 0
        self.waiting: set[Stream] = set()  # for room that others take
        self.ended: dict[Stream, None] = {}  # in the order of their ends

    def room(self, stream: Stream) -> int:
        """How many more bytes of it may be read now."""
        wanted = min(stream.room(), KEPT_STREAM_BYTES - stream.kept_bytes)
        if wanted <= 0:
            return wanted
        while self.ended and self.total + wanted > KEPT_TOTAL_BYTES:
            self.drop(next(iter(self.ended)))
        shared = max(KEPT_TOTAL_BYTES - self.total, KEPT_LEAST_BYTES - stream.kept_bytes, 0)
        if shared == 0:
            self.waiting.add(stream)
        return min(wanted, shared)

    def add(self, stream: Stream, data: bytes) -> None:
        """`data` was read at `stream.at`."""
        self.total += len(data)
        stream.kept_bytes += len(data)
        if stream.kept and len(stream.kept[-1][1]) + len(data) <= JOINED_BYTES:
            at, before = stream.kept.pop()
            stream.kept.append((at, before + data))
        else:
            stream.kept.append((stream.at, data))

    def acknowledge(self, stream: Stream, position: int) -> None:
        while stream.kept and stream.kept[0][0] + len(stream.kept[0][1]) <= position:
            self._drop_first(stream)

    def end(self, stream: Stream) -> None:
        """Nothing more comes of it."""
        self.ended[stream] = None

    def drop(self, stream: Stream) -> None:
        self.ended.pop(stream, None)
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
