"""What the agent says in a turn: deltas joined into few frames, in order, the end never first.

It also makes text of what models send: no NUL, no halves of surrogate pairs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from server.room import Tasks

FLUSH_S = 0.050
"""At most one frame of deltas per 50 ms: faster is not read, and 50 viewers are 50 writes."""
_HIGH, _LOW = "\ud800", "\udc00"
_LAST = "\udfff"


class Clean:
    """Joins surrogate pairs that were split across deltas, and replaces what cannot be encoded.

    NUL is dropped unless it is to be kept: in a command it must be seen, to be refused.
    """

    def __init__(self, *, keep_nul: bool = False) -> None:
        self._keep_nul = keep_nul
        self._half = ""

    def feed(self, delta: str) -> str:
        text, self._half = self._half + delta, ""
        if text and _HIGH <= text[-1] < _LOW:
            text, self._half = text[:-1], text[-1]
        return paired(text) if self._keep_nul else clean(text)


def clean(text: str) -> str:
    """The text as everyone can be sent it."""
    return paired(text).replace("\0", "")


def paired(text: str) -> str:
    """The text as it can be encoded: pairs joined, halves of them replaced."""
    if any(_HIGH <= char <= _LAST for char in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class Speech:
    """The text of a turn. `send` gets a position in code points and the text from there.

    `send` returns once the members have the text; what is added meanwhile is joined for the next.
    """

    def __init__(self, send: Callable[[int, str], Awaitable[None]], tasks: Tasks) -> None:
        self._send = send
        self._tasks = tasks
        self._parts: list[str] = []
        self._waiting: list[str] = []
        self._hurry = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
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
        self._begin()

    def _begin(self) -> None:
        if self._sender is None:
            self._sender = self._tasks.create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send what waits, again and again, a pause between; until nothing came in a pause."""
        try:
            while self._waiting:
                text = "".join(self._waiting)
                count = len(self._waiting)
                await self._send(self.sent, text)
                # No await between the sending and this: who joins sees either both or none.
                del self._waiting[:count]
                self._parts.append(text)
                self.sent += len(text)
                with suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_S):
                        await self._hurry.wait()
        finally:
            self._sender = None

    async def flush(self) -> None:
        """Send what waits without a pause; returns once the members have all that was added."""
        if self._waiting:
            self._begin()
        self._hurry.set()
        try:
            if self._sender is not None:
                await asyncio.wait([self._sender])
        finally:
            self._hurry.clear()

    async def end(self) -> str:
        """Send the rest; returns the whole text."""
        await self.flush()
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
