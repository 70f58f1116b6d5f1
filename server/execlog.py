"""An exec's output in Redis: the head once, then the newest of the tail, with a time to live.

The room log holds none of it. Positions are byte offsets within a stream.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from server.order import Order
from server.output import Kept, Piece
from server.store import Argument, Store

STORE_S = 0.100
STORE_BYTES = 512 * 1024
"""At most the newest 512 KiB per 100 ms are stored, so one flood leaves Redis to the others."""
_PLACE_BYTES = 8


def _key(room: str, exec_id: str, part: str) -> str:
    return f"duet:{{{room}}}:x:{exec_id}:{part}"


class StreamWriter:
    """What of one stream is stored; makes the commands for what is not. Pure.

    The tail is a sorted set by offset: commands that come twice, or late, change nothing.
    """

    def __init__(
        self, key: tuple[str, str, str], head_bytes: int, tail_bytes: int, kept_s: int
    ) -> None:
        room, exec_id, stream = key
        self._head_key = _key(room, exec_id, f"{stream}:head")
        self._tail_key = _key(room, exec_id, f"{stream}:tail")
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._kept_s = kept_s
        self._tail: deque[tuple[int, int]] = deque()
        self._tail_size = 0
        self.stored = 0

    def resume(self, tail: Iterable[tuple[int, int]], stored: int) -> None:
        """Begin with a tail of blobs, each by offset and size, stored up to an offset."""
        self._tail = deque(tail)
        self._tail_size = sum(size for _, size in self._tail)
        self.stored = stored

    def commands(self, kept: Kept, *, last: bool = False) -> list[Sequence[Argument]]:
        """Commands that store what is new; safe to send again when their answer was lost.

        Between, at most the newest STORE_BYTES; at the end (`last`) all of the kept tail.
        """
        made: list[Sequence[Argument]] = []
        for piece in _joined(kept.read(self.stored, min(kept.end, self._head_bytes))):
            made.append(("SETRANGE", self._head_key, piece.at, piece.data or b""))
            made.append(("EXPIRE", self._head_key, self._kept_s))
        limit = self._tail_bytes if last else STORE_BYTES
        newest = max(self.stored, self._head_bytes, kept.end - limit)
        for piece in _joined(kept.read(newest, kept.end)):
            place = piece.at.to_bytes(_PLACE_BYTES, "big")
            made.append(("ZADD", self._tail_key, piece.at, place + (piece.data or b"")))
            self._tail.append((piece.at, piece.end - piece.at))
            self._tail_size += piece.end - piece.at
        if made and made[-1][0] == "ZADD":
            while self._tail_size - self._tail[0][1] >= self._tail_bytes:
                self._tail_size -= self._tail.popleft()[1]
            made.append(("ZREMRANGEBYSCORE", self._tail_key, "-inf", f"({self._tail[0][0]}"))
            made.append(("EXPIRE", self._tail_key, self._kept_s))
        self.stored = kept.end
        return made


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Pieces with bytes, those that touch made one."""
    at, end, parts = 0, 0, list[bytes]()
    for piece in pieces:
        if parts and (piece.data is None or piece.at != end):
            yield Piece(at, end, b"".join(parts))
            parts = []
        if piece.data is None:
            continue
        if not parts:
            at = piece.at
        parts.append(piece.data)
        end = piece.end
    if parts:
        yield Piece(at, end, b"".join(parts))


class ExecLog:
    """Stores and reads output. Every method may raise Unavailable."""

    def __init__(self, store: Store, *, head_bytes: int, tail_bytes: int, kept_s: int) -> None:
        self._store = store
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._kept_s = kept_s

    def writer(self, room: str, exec_id: str, stream: str) -> StreamWriter:
        key = (room, exec_id, stream)
        return StreamWriter(key, self._head_bytes, self._tail_bytes, self._kept_s)

    async def resume(
        self, room: str, exec_id: str, stream: str, writer: StreamWriter, stored: int
    ) -> None:
        """Let a writer go on where one of an earlier life of the server ended."""
        blobs = await self._store.call("ZRANGE", _key(room, exec_id, f"{stream}:tail"), 0, -1)
        tail = [
            (int.from_bytes(blob[:_PLACE_BYTES], "big"), len(blob) - _PLACE_BYTES) for blob in blobs
        ]
        writer.resume(tail, stored)

    def layout(self, end: int, *, known: bool) -> list[tuple[int, int, bool]]:
        """Of a stream that ended at `end`: spans, and whether their bytes can still be read."""
        if not known:
            return [(0, end, False)]
        head, tail = min(self._head_bytes, end), max(self._head_bytes, end - self._tail_bytes)
        spans = [(0, head, True), (head, min(tail, end), False), (tail, end, True)]
        return [span for span in spans if span[0] < span[1]]

    async def store(self, commands: Sequence[Sequence[Argument]]) -> None:
        await self._store.pipeline(commands)

    async def store_ends(
        self, room: str, exec_id: str, ends: Mapping[str, int], order: Order
    ) -> None:
        """Remember how much each stream printed and when; also says that the exec existed."""
        record = json.dumps({"ends": dict(ends), "order": order.dump()})
        await self._store.call("SET", _key(room, exec_id, "ends"), record, "EX", self._kept_s)

    async def ends(self, room: str, exec_id: str) -> tuple[dict[str, int], Order] | None:
        """Bytes printed per stream, and their order; None for an exec not known (any more)."""
        found = await self._store.call("GET", _key(room, exec_id, "ends"))
        if found is None:
            return None
        record = json.loads(found)
        segments = {name: [(at, pos) for at, pos in some] for name, some in record["order"].items()}
        return record["ends"], Order(segments)

    async def read(
        self, room: str, exec_id: str, stream: str, span: tuple[int, int]
    ) -> list[Piece]:
        """What is kept of a stream between two offsets, holes told."""
        start, end = span
        replies = await self._store.pipeline(
            [
                ("GET", _key(room, exec_id, f"{stream}:head")),
                ("ZRANGE", _key(room, exec_id, f"{stream}:tail"), 0, -1),
            ]
        )
        kept = Kept(self._head_bytes, 2 * (self._tail_bytes + STORE_BYTES))
        kept.add(0, replies[0] or b"")
        for blob in replies[1]:
            kept.add(int.from_bytes(blob[:_PLACE_BYTES], "big"), blob[_PLACE_BYTES:])
        pieces = list(kept.read(start, end))
        reached = pieces[-1].end if pieces else start
        return pieces if reached >= end else [*pieces, Piece(reached, end, None)]

    async def stored_ends(self, room: str, exec_id: str) -> dict[str, int]:
        """How far each stream was stored: for an exec whose server died before telling its end."""
        streams = ("stdout", "stderr", "pty")
        replies = await self._store.pipeline(
            [
                command
                for stream in streams
                for command in (
                    ("STRLEN", _key(room, exec_id, f"{stream}:head")),
                    ("ZRANGE", _key(room, exec_id, f"{stream}:tail"), -1, -1),
                )
            ]
        )
        ends = {}
        for stream, head, last in zip(streams, replies[::2], replies[1::2], strict=True):
            end = int(head)
            for blob in last:
                end = int.from_bytes(blob[:_PLACE_BYTES], "big") + len(blob) - _PLACE_BYTES
            if end:
                ends[stream] = end
        return ends
