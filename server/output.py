"""An exec's output on its way to people: joined, capped, kept. Pure, with an injected clock.

Where it is stored is `execlog`; who gets it is the room's business.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

FRAME_BYTES = 16 * 1024
"""Largest live frame: its worst JSON escape stays under the frame limit, and it joins well."""
PIECE_BYTES = 4 * 1024
"""Kept pieces smaller than this are joined with their followers."""
JOIN_S = 0.030
"""Followers wait this long for company: below what a person sees, above a busy writer's rhythm."""
CHARACTER_S = 0.100
"""An incomplete last character waits this long for its rest."""
_CONTINUATION = 0b1000_0000
_LEADS = {2: range(0xC2, 0xE0), 3: range(0xE0, 0xF0), 4: range(0xF0, 0xF5)}
"""First bytes of UTF-8 characters by their length (RFC 3629)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes from `at`, or a hole up to `end` where `data` is None."""

    at: int
    end: int
    data: bytes | None


class Kept:
    """The head and the tail of one stream, with byte offsets."""

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail: deque[tuple[int, bytes | bytearray]] = deque()
        self._tail_size = 0
        self.end = 0

    def add(self, at: int, data: bytes) -> None:
        """Append output; what overlaps is skipped, a jump leaves a hole."""
        data = data[max(0, self.end - at) :]
        at = max(at, self.end)
        if not data:
            return
        if at == len(self._head) < self._head_bytes:
            take = self._head_bytes - len(self._head)
            self._head += data[:take]
            data, at = data[take:], at + len(data[:take])
        if data:
            self._add_to_tail(at, data)
            self._trim()
        self.end = at + len(data)

    def _add_to_tail(self, at: int, data: bytes) -> None:
        """Small pieces are joined: a command that writes single bytes must not cost one each."""
        last_at, last = self._tail[-1] if self._tail else (0, b"")
        if isinstance(last, bytearray) and last_at + len(last) == at and len(last) < PIECE_BYTES:
            last += data
        else:
            self._tail.append((at, bytearray(data) if len(data) < PIECE_BYTES else data))
        self._tail_size += len(data)

    def skip(self, position: int) -> None:
        """Go on from `position`; what lies before it and is not here is a hole."""
        self.end = max(self.end, position)

    def _trim(self) -> None:
        while self._tail_size - len(self._tail[0][1]) >= self._tail_bytes:
            self._tail_size -= len(self._tail.popleft()[1])
        extra = self._tail_size - self._tail_bytes
        if extra > 0:
            at, data = self._tail[0]
            self._tail[0] = (at + extra, data[extra:])
            self._tail_size -= extra

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._head) + self._tail_size

    def has(self, start: int, end: int) -> bool:
        """Whether every byte from `start` to `end` is kept."""
        at = start
        for begin, data in self._parts():
            if begin <= at < begin + len(data):
                at = begin + len(data)
        return at >= end

    def first(self) -> int:
        """Offset of the first byte that is kept; `end` where nothing is."""
        if self._head:
            return 0
        return self._tail[0][0] if self._tail else self.end

    def read(self, start: int, end: int) -> Iterator[Piece]:
        """What is kept between two offsets, holes told, in order."""
        end = min(end, self.end)
        at = start
        for begin, data in self._parts():
            stop = begin + len(data)
            if stop <= at or begin >= end:
                continue
            if begin > at:
                yield Piece(at, begin, None)
                at = begin
            upto = min(stop, end)
            yield Piece(at, upto, bytes(data[at - begin : upto - begin]))
            at = upto
        if at < end:
            yield Piece(at, end, None)

    def _parts(self) -> Iterator[tuple[int, bytes | bytearray]]:
        if self._head:
            yield 0, self._head
        yield from self._tail

    def all(self) -> bytes:
        """Everything that is kept, holes left out."""
        return b"".join(data for _, data in self._parts())

    def excerpt(self, head: int, tail: int) -> tuple[str, bool]:
        """At most the first `head` and last `tail` bytes as text, and whether that is not all."""
        data = self.all()
        if len(data) == self.end and len(data) <= head + tail:
            return data.decode(errors="replace"), False
        first, last = data[:head], data[max(head, len(data) - tail) :]
        first = first[: len(first) - incomplete(first)]
        return first.decode(errors="replace") + whole(last).decode(errors="replace"), True

    def text(self) -> tuple[str, bool]:
        """All that is kept as text, invalid bytes as U+FFFD, and whether it is cut short."""
        data = self.all()
        return data.decode(errors="replace"), len(data) < self.end


def incomplete(data: bytes | bytearray) -> int:
    """How many bytes at the end of `data` begin a UTF-8 character that is not complete."""
    for back, byte in enumerate(reversed(data[-3:]), start=1):
        if byte & 0b1100_0000 == _CONTINUATION:
            continue
        needed = next((size for size, lead in _LEADS.items() if byte in lead), 0)
        return back if needed > back else 0
    return 0


def whole(data: bytes) -> bytes:
    """`data` without the rest of a character that was cut at its start."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0b1100_0000 == _CONTINUATION:
        start += 1
    return data[start:]


class Allowance:
    """A token bucket in bytes: `burst` at once, then `per_s`."""

    def __init__(self, burst: int, per_s: int, clock: Callable[[], float]) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self, size: int) -> bool:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if size > self._left:
            return False
        self._left -= size
        return True


class Joiner:
    """Joins one stream's chunks into frames; tells its owner when to come back.

    `add` and `due` answer with the pieces to send now; `wait_s` says how long the rest may wait.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting = bytearray()
        self._at = 0
        self._since = 0.0
        self._character_at = 0.0  # when an incomplete last character began
        self._sent_at = float("-inf")

    @property
    def position(self) -> int:
        """Offset of the first byte that was not handed out."""
        return self._at

    def skip(self, position: int) -> None:
        """Go on from `position`: what lies before it is not to be sent."""
        if position > self._at + len(self._waiting):
            self._waiting.clear()
            self._at = position

    def add(self, data: bytes) -> list[Piece]:
        now = self._clock()
        if not self._waiting:
            self._since = now
        self._waiting += data
        if incomplete(self._waiting) <= len(data):
            self._character_at = now
        if len(self._waiting) >= FRAME_BYTES or now - self._sent_at >= JOIN_S:
            return self._take(now, keep_character=True)
        return []

    def due(self, *, end: bool = False) -> list[Piece]:
        """What may wait no longer; at the `end` of the stream, everything."""
        now = self._clock()
        if end or now - self._since >= CHARACTER_S - 0.001:
            return self._take(now, keep_character=False)
        return self._take(now, keep_character=True)

    def wait_s(self) -> float | None:
        """How long until `due` must be asked; None while nothing waits."""
        if not self._waiting:
            return None
        limit = CHARACTER_S if len(self._waiting) == incomplete(self._waiting) else JOIN_S
        return max(0.0, self._since + limit - self._clock())

    def _take(self, now: float, *, keep_character: bool) -> list[Piece]:
        size = len(self._waiting)
        size -= incomplete(self._waiting) if keep_character else 0
        if not size:
            return []
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._since, self._sent_at = self._character_at, now
        pieces = []
        while data:
            cut = data[:FRAME_BYTES]
            if len(data) > FRAME_BYTES:
                cut = cut[: len(cut) - incomplete(cut)]
            pieces.append(Piece(self._at, self._at + len(cut), cut))
            self._at += len(cut)
            data = data[len(cut) :]
        return pieces
