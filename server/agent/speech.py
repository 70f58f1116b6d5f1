"""What the agent says in a turn: deltas joined into few frames, in order, the end never first.

It also makes text of what models send: no NUL, no halves of surrogate pairs.
"""

import asyncio
from collections.abc import Callable

FLUSH_S = 0.050
"""At most one frame of deltas per 50 ms: faster is not read, and 50 viewers are 50 writes."""
_HIGH, _LOW = "\ud800", "\udc00"
_LAST = "\udfff"


class Clean:
    """Joins surrogate pairs that were split across deltas; drops NUL and what cannot be encoded."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, delta: str) -> str:
        text, self._half = self._half + delta, ""
        if text and _HIGH <= text[-1] < _LOW:
            text, self._half = text[:-1], text[-1]
        return clean(text)


def clean(text: str) -> str:
    """The text as everyone can be sent it."""
    if any(_HIGH <= char <= _LAST for char in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "")


class Speech:
    """The text of a turn. `send` gets a position in code points and the text from there."""

    def __init__(self, send: Callable[[int, str], None]) -> None:
        self._send = send
        self._parts: list[str] = []
        self._waiting: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._clean = Clean()
        self.sent = 0
        """Code points that the members were sent."""
        self.size = 0
        """Code points in all."""

    def add(self, delta: str) -> None:
        """Say more: at once after a pause, else with what else comes within FLUSH_S."""
        text = self._clean.feed(delta)
        if not text:
            return
        self._waiting.append(text)
        self.size += len(text)
        if self._timer is None:
            self.flush()
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._waiting:
            self.flush()
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._due)

    def flush(self) -> None:
        """Send what waits."""
        text = "".join(self._waiting)
        self._waiting.clear()
        if text:
            at, self.sent = self.sent, self.sent + len(text)
            self._parts.append(text)
            self._send(at, text)

    def end(self) -> str:
        """Send the rest; returns the whole text."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.flush()
        return self.text

    @property
    def text(self) -> str:
        """What was sent so far: who joins now goes on from its end."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""


_REPEATED_CHARS = 1_200
_PERIOD_MAX = 150


def repeats(text: str) -> bool:
    """Whether the end of the text is one stretch again and again, as a model says that is lost."""
    tail = text[-_REPEATED_CHARS:]
    if len(tail) < _REPEATED_CHARS:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, _PERIOD_MAX + 1))
