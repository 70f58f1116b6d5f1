"""In which order an exec's streams printed: where each run of bytes stands among all. Pure.

The streams' own offsets do not say that; `pos` on the wire does, also for output read again.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

from server.output import Piece

SEGMENTS_MAX = 4096
"""Turns between streams that are remembered; beyond it the oldest are joined with their next."""


class Order:
    """Segments of bytes as they were published: per stream, pairs of offset and `pos`."""

    def __init__(self, segments: dict[str, list[tuple[int, int]]] | None = None) -> None:
        self._segments = segments or {}
        self._last = ""
        self.end = 0

    def note(self, stream: str, at: int, size: int) -> int:
        """Count `size` bytes of `stream` from `at`; returns their `pos`."""
        pos = self.end
        self.end += size
        if stream != self._last:
            self._last = stream
            segments = self._segments.setdefault(stream, [])
            segments.append((at, pos))
            if len(segments) > SEGMENTS_MAX:
                del segments[1]
        return pos

    def pos(self, stream: str, at: int) -> int:
        """Where byte `at` of `stream` stands among all bytes."""
        segments = self._segments.get(stream) or [(0, 0)]
        index = max(0, bisect_right(segments, at, key=itemgetter(0)) - 1)
        start, pos = segments[index]
        return pos + max(0, at - start)

    def split(self, stream: str, piece: Piece) -> Iterator[tuple[int, Piece]]:
        """A piece cut where other streams printed in between, each part with its `pos`."""
        starts = [at for at, _ in self._segments.get(stream, ()) if piece.at < at < piece.end]
        for start, end in zip([piece.at, *starts], [*starts, piece.end], strict=True):
            data = piece.data
            part = None if data is None else data[start - piece.at : end - piece.at]
            yield self.pos(stream, start), Piece(start, end, part)

    def dump(self) -> dict[str, list[tuple[int, int]]]:
        """What `Order` takes to be made again."""
        return self._segments
