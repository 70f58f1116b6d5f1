"""What waits to be sent to one session, bounded in bytes. Pure: it writes to no socket.

Past the first mark live output is left out and told as a gap; past the second the session is too
slow to keep. Everything else is never dropped.
"""

from collections.abc import Callable
from typing import Protocol

from protocol.codec import Codec
from server.wire import Outgoing


class Source(Protocol):
    """A stream whose output may be left out."""

    def gap_frame(self, start: int, end: int) -> Outgoing:
        """The frame that tells of the bytes from `start` to `end`."""


class Outbox:
    """Frames in order. `elsewhere` tells the bytes that were taken and not yet accepted."""

    def __init__(
        self, codec: Codec, drop_bytes: int, close_bytes: int, elsewhere: Callable[[], int]
    ) -> None:
        self._codec = codec
        self._drop_bytes = drop_bytes
        self._close_bytes = close_bytes
        self._elsewhere = elsewhere
        self._frames: list[bytes] = []
        self._size = 0
        self._dropping = False
        self._gaps: dict[Source, tuple[int, int]] = {}

    def __len__(self) -> int:
        """Bytes waiting, here and elsewhere."""
        return self._size + self._elsewhere()

    @property
    def too_slow(self) -> bool:
        return len(self) > self._close_bytes

    def put(self, frame: bytes) -> None:
        """Add a frame that must arrive."""
        self._frames.append(frame)
        self._size += len(frame)

    def put_output(self, source: Source, start: int, end: int, frame: bytes) -> None:
        """Add live output of `source`, or remember the gap where too much waits already."""
        if self._is_dropping():
            first = self._gaps.get(source, (start, start))[0]
            self._gaps[source] = (first, end)
            return
        self.tell_gap(source)
        self.put(frame)

    def tell_gap(self, source: Source) -> None:
        """Say now what `source` lost, if anything: before its next output and before its end."""
        gap = self._gaps.pop(source, None)
        if gap is not None:
            self.put(source.gap_frame(*gap).wire(self._codec))

    def tell_gaps(self) -> bool:
        """After draining, say what every source lost. True where there was something to say."""
        if not self._gaps or self._is_dropping():
            return False
        for source in list(self._gaps):
            self.tell_gap(source)
        return True

    def take(self) -> list[bytes]:
        """All waiting frames; the caller has them now."""
        frames, self._frames, self._size = self._frames, [], 0
        return frames

    def _is_dropping(self) -> bool:
        """From the mark until half of it: a session at the mark must not flip with each frame."""
        waiting = len(self)
        self._dropping = waiting > (self._drop_bytes // 2 if self._dropping else self._drop_bytes)
        return self._dropping
