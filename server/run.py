"""One running exec: its output joined, capped, published, kept and stored; its end told once.

It publishes to a room and acknowledges to the sandbox; how commands run is `sandbox`'s.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from protocol.errors import DuetError, Unavailable, UnknownExec
from protocol.model import PtySize
from sandbox.process import Process
from sandbox.results import ExecResult
from server import logs
from server.execframes import gap_frame, kept_frames, output_frame, result_fields
from server.execlog import STORE_S, ExecLog, StreamWriter
from server.inputs import InputQueue
from server.order import Order
from server.outbox import Source
from server.output import Allowance, Joiner, Kept, Piece
from server.store import Argument
from server.terminal import AnswerFilter
from server.view import REPLAY_BYTES, TerminalView
from server.wire import Outgoing

log = logs.get("exec")

CREDIT_BYTES = 256 * 1024
"""What the runner may send beyond what was taken: a round trip's worth at full speed."""
EVENT_HEAD_BYTES, EVENT_TAIL_BYTES = 1024, 3 * 1024
START_S = 60.0
"""Longest wait of input for its command's sandbox to start."""
_RETRY_S = 0.5
DELIVERY_S = 30.0
"""Longest wait for `exec.started` to be delivered; by then its room is gone or Redis is."""


class Place(Protocol):
    """The room, as a run sees it."""

    def broadcast(self, frame: Outgoing) -> None: ...
    def broadcast_output(self, source: Source, start: int, end: int, frame: Outgoing) -> None: ...


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """How much output is kept, for how long, and how much of it is sent live."""

    head_bytes: int
    tail_bytes: int
    live_burst_bytes: int
    live_bytes_per_s: int


class StreamOut:
    """One stream of a run. It is the outbox's `Source` of gaps."""

    def __init__(self, run: "Run", name: str, writer: StreamWriter) -> None:
        limits = run.limits
        self.name = name
        self.kept = Kept(limits.head_bytes, limits.tail_bytes)
        self.joiner = Joiner(time.monotonic)
        self.writer = writer
        self.filter = AnswerFilter()
        self.received = 0
        self.gap_from: int | None = None
        self._run = run

    def gap_frame(self, start: int, end: int) -> Outgoing:
        """The frame that tells of bytes which are not sent."""
        kept = self.kept.has(start, end)
        return gap_frame(self._run.head, self.name, start, end, kept=kept)


class Run:
    """The owner of one exec, from its start to its end. An `OutputSink` of the sandbox's.

    `space` is where its output is stored; `head` stands in its frames: the exec, and its room.
    """

    def __init__(
        self,
        space: str,
        head: Mapping[str, Any],
        place: Place,
        execlog: ExecLog,
        limits: KeepLimits,
    ) -> None:
        self.space = space
        self.head = head
        self.exec = str(head["exec"])
        self.limits = limits
        self.streams: dict[str, StreamOut] = {}
        self.process: Process | None = None
        self.settled = asyncio.Event()
        """It runs, or it is known that it will not."""
        self.takes_input = False
        self.inputs = InputQueue(self.running)
        self.view: TerminalView | None = None
        self.cancelled = False
        self.ended = False
        self.stored = False
        self.done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.gone: Callable[[], None] = lambda: None
        self.place = place
        self._execlog = execlog
        self._allowance = Allowance(
            limits.live_burst_bytes, limits.live_bytes_per_s, time.monotonic
        )
        self.order = Order()
        self._open = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._dirty = asyncio.Event()
        self._unsent: list[Sequence[Argument]] = []

    @property
    def sources(self) -> list[Source]:
        return list(self.streams.values())

    def open_to(self, opener: str, *, stdin: bool, pty: PtySize | None) -> None:
        """Say what may be typed into it: its input, or a terminal of this size and opener."""
        self.takes_input = stdin or pty is not None
        self.view = None if pty is None else TerminalView(opener, pty)

    async def cancel(self) -> None:
        """End it and all it started, also where it has not begun yet. Idempotent."""
        self.cancelled = True
        if self.process is not None:
            await self.process.cancel()

    async def running(self) -> Process:
        """Its process, once its sandbox has started. Raises UnknownExec where it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await self.settled.wait()
        if self.process is None or self.ended:
            raise UnknownExec("This command does not run any more.")
        return self.process

    def let_go(self) -> None:
        """The server stops and the command does not: who waits here for its end is told so."""
        if not self.done.done():
            message = "The server stops; the command goes on, and the next server tells its end."
            self.done.set_exception(Unavailable(message, retry_after_ms=1000))
            self.done.exception()  # retrieved: often nobody waits

    # What delivery tells

    def started(self) -> None:
        """`exec.started` has reached the members: what waited goes out."""
        if self._open.is_set():
            return
        self._open.set()
        for stream in self.streams.values():
            for piece in stream.kept.read(stream.joiner.position, stream.kept.end):
                if piece.data is not None:
                    self._publish(stream, stream.joiner.add(piece.data))
                else:
                    self._leave_hole(stream, piece)
            self.grant(stream)
        self._arm()

    def exited(self) -> None:
        self.gone()

    # Output

    def output(self, stream: str, at: int, data: bytes) -> None:
        """Take output from the sandbox: keep it, send it on, ask for more.

        What was had before is skipped; a jump of `at` is a hole, told as a gap.
        """
        out = self.streams.get(stream) or self._new_stream(stream)
        if at > out.received:
            self._take(out, out.filter.flush())
            self._skip(out, at)
        data = data[max(0, out.received - at) :]
        out.received += len(data)
        self._take(out, out.filter.feed(data) if stream == "pty" else data)
        if self._open.is_set():
            self.grant(out)
            self._arm()

    def _take(self, out: StreamOut, data: bytes) -> None:
        out.kept.add(out.kept.end, data)
        self._dirty.set()
        if not self._open.is_set() or not data:
            return
        for other in self.streams.values():  # what was printed before goes out before
            if other is not out and other.joiner.wait_s() is not None:
                self._publish(other, other.joiner.due())
        self._publish(out, out.joiner.add(data))

    def _skip(self, out: StreamOut, position: int) -> None:
        """Go on from `position`, which the sandbox has bytes from; those before it are lost."""
        hole = Piece(out.kept.end, position, None)
        out.kept.skip(position)
        out.received = position
        if self._open.is_set():
            self._leave_hole(out, hole)

    def _leave_hole(self, stream: StreamOut, hole: Piece) -> None:
        self._publish(stream, stream.joiner.due(end=True))
        stream.joiner.skip(hole.end)
        self._leave_out(stream, hole)

    async def restore(self, ends: Mapping[str, int]) -> None:
        """Begin with what an earlier life of the server stored, up to `ends`; nothing is sent."""
        for name, end in ends.items():
            out = self._new_stream(name)
            for piece in await self._execlog.read(self.space, self.exec, name, (0, end)):
                if piece.data is not None:
                    out.kept.skip(piece.at)
                    out.kept.add(piece.at, piece.data)
            out.kept.skip(end)
            out.received = end
            out.joiner.skip(end)
            self.order.note(name, 0, end)
            await self._execlog.resume(self.space, self.exec, name, out.writer, end)

    def _new_stream(self, name: str) -> StreamOut:
        writer = self._execlog.writer(self.space, self.exec, name)
        stream = self.streams[name] = StreamOut(self, name, writer)
        return stream

    def grant(self, stream: StreamOut) -> None:
        """Let the sandbox send a round trip's worth beyond what was taken."""
        if self.process is not None:
            self.process.grant(stream.name, stream.received + CREDIT_BYTES)

    def _publish(self, stream: StreamOut, pieces: list[Piece]) -> None:
        for piece in pieces:
            if not self._allowance.take(piece.end - piece.at):
                self._leave_out(stream, piece)
                continue
            self._end_gap(stream, piece.at)
            pos = self.order.note(stream.name, piece.at, piece.end - piece.at)
            frame = output_frame(self.head, stream.name, piece, pos)
            self.place.broadcast_output(stream, piece.at, piece.end, frame)

    def _leave_out(self, stream: StreamOut, piece: Piece) -> None:
        """Count output that is not sent live; `_end_gap` tells of it."""
        self.order.note(stream.name, piece.at, piece.end - piece.at)
        if stream.gap_from is None:
            stream.gap_from = piece.at

    def _end_gap(self, stream: StreamOut, at: int) -> None:
        """Tell everyone of live output that was left out before `at`."""
        if stream.gap_from is not None:
            start, stream.gap_from = stream.gap_from, None
            self.place.broadcast_output(stream, start, at, stream.gap_frame(start, at))

    def _arm(self) -> None:
        """Come back when the first stream's followers may wait no longer."""
        waits = [stream.joiner.wait_s() for stream in self.streams.values()]
        soonest = min((wait for wait in waits if wait is not None), default=None)
        if soonest is None:
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + soonest:
                return
            self._timer.cancel()
        self._timer = loop.call_later(soonest, self._due)

    def _due(self) -> None:
        self._timer = None
        for stream in self.streams.values():
            if (stream.joiner.wait_s() or 0.0) <= 0.001:  # noqa: PLR2004 - a timer's own precision in s
                self._publish(stream, stream.joiner.due())
        self._arm()

    # Storing

    async def keep_stored(self) -> None:
        """Store what is new at most every STORE_S, acknowledging it; until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._store()
            except DuetError as error:
                log.warning("output is not stored yet", exec=self.exec, error=error.message)
                self._dirty.set()
            await asyncio.sleep(STORE_S)

    async def _store(self, *, last: bool = False) -> None:
        """One step of storing. What was made for Redis is sent again until it was taken."""
        if not self._unsent:
            for stream in self.streams.values():
                self._unsent += stream.writer.commands(stream.kept, last=last)
        if not self._unsent:
            return
        stored = {name: stream.writer.stored for name, stream in self.streams.items()}
        await self._execlog.store(self._unsent)
        self._unsent = []
        for name, position in stored.items():
            if self.process is not None:
                self.process.ack(name, position)

    # The end

    async def finish(self, result: ExecResult) -> dict[str, Any]:
        """Send and store the rest; returns the fields of `exec.exited`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DELIVERY_S):
                await self._open.wait()
        self.inputs.close()
        if self._timer is not None:
            self._timer.cancel()
        for stream in self.streams.values():
            self._take(stream, stream.filter.flush())
            self._publish(stream, stream.joiner.due(end=True))
            self._end_gap(stream, stream.kept.end)
        if self.streams:
            await self._store_rest()
        return self._exited(result)

    async def _store_rest(self) -> None:
        while True:
            try:
                if self._unsent:
                    await self._store()  # what an earlier try had made
                await self._store(last=True)
                await self._execlog.store_ends(self.space, self.exec, self.ends(), self.order)
            except DuetError:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def ends(self) -> dict[str, int]:
        return {name: stream.kept.end for name, stream in self.streams.items()}

    def _exited(self, result: ExecResult) -> dict[str, Any]:
        printed = {name: stream.kept.end for name, stream in self.streams.items()}
        fields = result_fields(result)
        texts, truncated = self.texts(EVENT_HEAD_BYTES, EVENT_TAIL_BYTES)
        fields |= texts
        fields["durationMs"] = result.duration_ms
        fields["bytes"] = {"stdout": 0, "stderr": 0, **dict(result.bytes), **printed}
        fields["truncated"] = truncated
        return fields

    def texts(
        self, head: int | None = None, tail: int = 0
    ) -> tuple[dict[str, str], dict[str, bool]]:
        """What was printed as text, all that is kept or an excerpt, and which of it is cut."""
        texts = {"stdout": "", "stderr": ""}
        truncated = {"stdout": False, "stderr": False}
        for name, stream in self.streams.items():
            kept = stream.kept
            text, cut = kept.text() if head is None else kept.excerpt(head, tail)
            texts["stdout" if name == "pty" else name] = text
            truncated[name] = cut
        return texts, truncated

    # For who joins

    def spans(self, most: int | None = None) -> dict[str, dict[str, int]]:
        """Per stream, what follows a join: from the first kept byte to the last sent.

        With `most`, only the last so many bytes of each stream.
        """
        return {
            name: {
                "from": max(
                    self._replay_from(stream, most),
                    min(stream.kept.first(), stream.joiner.position),
                ),
                "to": stream.joiner.position,
            }
            for name, stream in self.streams.items()
        }

    def _replay_from(self, stream: StreamOut, most: int | None) -> int:
        """Where a late joiner begins: of a terminal only the end says something."""
        if self.view is not None:
            most = REPLAY_BYTES if most is None else min(REPLAY_BYTES, most)
        return 0 if most is None else max(0, stream.joiner.position - most)

    def kept_frames(self, most: int | None = None) -> list[Outgoing]:
        """What was sent so far, as frames of output and gaps, as it was printed."""
        pieces = {
            name: stream.kept.read(self._replay_from(stream, most), stream.joiner.position)
            for name, stream in self.streams.items()
        }
        return kept_frames(self.head, pieces, self.order)
