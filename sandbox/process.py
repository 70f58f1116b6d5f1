"""One running exec as its owner sees it: output to a sink, credit and acknowledgement back, an end.

It speaks the runner's messages over a link it is given and asks its sandbox for help when a kill
is not confirmed. Exactly one result, whatever happens.
"""

import asyncio
import logging
import signal as signals
import uuid
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from sandbox.errors import Detached, LinkBroken
from sandbox.frames import Output
from sandbox.results import ExecResult, from_exit, lost
from sandbox.spec import WORKDIR, ExecSpec, check_size, signal_number
from sandbox.survivors import Survivor

log = logging.getLogger(__name__)

CREDIT_BYTES: Final = 256 * 1024  # may be sent before the first grant
FLOW_STEP_BYTES: Final = 64 * 1024  # grants and acknowledgements smaller than this wait for more
INPUT_WINDOW_BYTES: Final = 256 * 1024  # written and not yet taken by the command
INPUT_PIECE_BYTES: Final = 48 * 1024
GRACE_S: Final = 0.5  # the runner's own, between TERM and KILL
RAISE_AFTER_S: Final = 0.3  # a kill not confirmed by then gets more CPU
KILL_AFTER_S: Final = 3.0  # and by then takes the container with it
SPAWN_S: Final = 10.0  # what a spawn may take before its deadline is counted from here
# A spawn takes a millisecond. One that is not confirmed by then gets more CPU, twice: what runs in
# the sandbox has used up the runner's. The engine takes some time for it on a machine at its limit.
SPAWN_RAISE_S: Final = (1.0, 6.0)


class OutputSink(Protocol):
    """Takes output in order, at once; `stream` is stdout, stderr or pty."""

    def output(self, stream: str, at: int, data: bytes) -> None: ...


class Host(Protocol):
    """What a process needs of its sandbox."""

    def send(self, fields: Mapping[str, Any]) -> None: ...
    def dirty(self, process: "Process") -> None: ...
    def ended(self, process: "Process") -> None: ...
    def forget(self, process: "Process") -> None: ...
    def raise_cpu(self) -> None: ...
    def abandon(self, message: str) -> None: ...


class _Flow:
    """Positions of one stream: received, granted and acknowledged, and what the runner knows."""

    __slots__ = ("acked", "acked_sent", "granted", "granted_sent", "received")

    def __init__(self) -> None:
        self.received = self.acked = self.acked_sent = 0
        self.granted = self.granted_sent = CREDIT_BYTES

    def due(self) -> bool:
        more = self.granted - self.granted_sent
        starving = self.granted_sent - self.received < FLOW_STEP_BYTES
        return more >= FLOW_STEP_BYTES or (more > 0 and starving)

    def ack_due(self) -> bool:
        return self.acked - self.acked_sent >= FLOW_STEP_BYTES


class Process:
    def __init__(
        self, host: Host, spec: ExecSpec, sink: OutputSink, clock: Callable[[], float]
    ) -> None:
        self.exec = spec.exec
        self.spec = spec
        self._host = host
        self._sink = sink
        self._clock = clock
        self._began = clock()
        names = ("pty",) if spec.pty else ("stdout", "stderr")
        self._flows = {name: _Flow() for name in names}
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[ExecResult] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._written = self._taken = 0
        self._input_closed = False
        self._room = asyncio.Event()
        self._cancelled = False
        self._started = False
        self._forced: tuple[str, str] | None = None

    @classmethod
    def survived(
        cls,
        host: Host,
        survivor: Survivor,
        sink: OutputSink,
        clock: Callable[[], float],
        have: Mapping[str, int],
    ) -> "Process":
        """One that an earlier client began; `have` is how far each stream is stored."""
        process = cls(host, survivor.spec(), sink, clock)
        process._began -= survivor.age_ms / 1000
        process._started = True
        process._written = process._taken = survivor.written
        process._input_closed = not survivor.takes_input
        for name, flow in process._flows.items():
            flow.received = min(have.get(name, 0), survivor.printed.get(name, 0))
            flow.acked = flow.received
            granted = survivor.granted.get(name, 0)
            flow.granted = max(granted, flow.received + CREDIT_BYTES)
        return process

    # --- what the owner does --------------------------------------------------------------------

    async def wait(self) -> ExecResult:
        """The one result. Never raises for the engine; may be cancelled and awaited again.

        Raises Detached when the manager is closed and leaves the command running.
        """
        return await asyncio.shield(self._result)

    def confirm(self) -> None:
        """Its end and all its output are stored: the runner may forget them.

        Until then a later server is given both. Does nothing while it runs.
        """
        if self.done:
            self._host.forget(self)

    @property
    def done(self) -> bool:
        return self._result.done()

    def ack(self, stream: str, position: int) -> None:
        """Bytes before `position` are stored: the runner may forget them."""
        flow = self._flows[stream]
        flow.acked = max(flow.acked, min(position, flow.received))
        if flow.ack_due():
            self._host.dirty(self)

    def grant(self, stream: str, position: int) -> None:
        """The runner may send bytes before `position`; a flood waits for more."""
        flow = self._flows[stream]
        flow.granted = max(flow.granted, position)
        if flow.due():
            self._host.dirty(self)

    async def write(self, data: bytes, *, eof: bool = False) -> None:
        """Queue input; returns when it is sent, waits while the command does not take it.

        Input for a command that has ended or closed its stdin is dropped, as a terminal does.
        """
        for at in range(0, len(data), INPUT_PIECE_BYTES):
            piece = data[at : at + INPUT_PIECE_BYTES]
            while self._written - self._taken + len(piece) > INPUT_WINDOW_BYTES and self._takes:
                self._room.clear()
                await self._room.wait()
            self._input(piece, eof=eof and at + len(piece) == len(data))
        if eof and not data:
            self._input(b"", eof=True)

    @property
    def _takes(self) -> bool:
        return not (self._input_closed or self.done)

    def _input(self, piece: bytes, *, eof: bool) -> None:
        if self._takes:
            self._written += len(piece)
            text = b2a_base64(piece, newline=False).decode()
            self._host.send({"t": "in", "x": self.exec, "d": text, "eof": eof})

    async def resize(self, cols: int, rows: int) -> None:
        """Raises InvalidSpec. Without a terminal it does nothing."""
        check_size(cols, rows)
        self._host.send({"t": "size", "x": self.exec, "c": cols, "r": rows})

    async def signal(self, name: str) -> None:
        """Signal the command's process group; KILL is an immediate cancel. Raises InvalidSpec."""
        number = signal_number(name)
        if number == signals.SIGKILL:
            self._cancel(0.0)
        else:
            self._host.send({"t": "sig", "x": self.exec, "sig": number})

    async def cancel(self) -> None:
        """Ask for the end of everything it started; `wait` tells when that is done."""
        self._cancel(GRACE_S)

    def _cancel(self, grace_s: float) -> None:
        if not self.done:
            self._cancelled = True
            self._host.send({"t": "cancel", "x": self.exec, "grace": grace_s})
            self._expect_kill(grace_s)

    # --- what its sandbox does ------------------------------------------------------------------

    def launch(self) -> None:
        spec = self.spec
        self._host.send(
            {
                "t": "run",
                "x": spec.exec,
                "command": spec.command,
                "argv": spec.argv,
                "cwd": spec.cwd or WORKDIR,
                "env": dict(spec.env),
                "ms": spec.timeout_ms,
                "stdin": spec.stdin,
                "pty": spec.pty,
                "limit": spec.output_limit_bytes,
                "credit": CREDIT_BYTES,
            }
        )
        self._expect_start()

    def have(self) -> dict[str, int]:
        """How far each stream came, for a runner that is met again."""
        return {name: flow.received for name, flow in self._flows.items()}

    def claim(self) -> None:
        """Hear of it over a link that is new, from where we are."""
        self._host.send({"t": "claim", "x": self.exec, "have": self.have()})
        self._host.send(self.flow_message())
        left_s = self.spec.timeout_ms / 1000 - (self._clock() - self._began)
        self._expect_kill(max(0.0, left_s) + SPAWN_S)

    def resumed(self, *, known: bool) -> None:
        """The link is a new one: what was said on the old one may not have arrived.

        Input on its way then is lost, and not counted against the window any more.
        """
        if known:
            self.claim()
        elif self._started:
            self.fail("sandbox_terminated", "The sandbox does not know the command any more.")
        else:  # it was lost on its way, so it has not run
            self.launch()
            self._host.send(self.flow_message())
        self._taken = self._written
        self._room.set()
        if self._cancelled:
            self._cancel(GRACE_S)

    def on_output(self, frame: Output) -> None:
        """Raises LinkBroken for bytes that nobody granted or that leave a hole."""
        flow = self._flows.get(frame.stream)
        if flow is None or frame.at > flow.received:
            raise LinkBroken(f"output of {self.exec} at {frame.at} leaves a hole")
        data = frame.data[flow.received - frame.at :]
        if flow.received + len(data) > flow.granted_sent:
            raise LinkBroken(f"output of {self.exec} beyond its credit")
        if not data or self.done:
            return
        at = flow.received
        flow.received += len(data)
        try:
            self._sink.output(frame.stream, at, data)
        except Exception:  # the boundary between a link and one command's owner
            incident = uuid.uuid4().hex[:12]
            log.exception("sink of exec %s failed, incident %s", self.exec, incident)
            self._cancel(0.0)
            self.fail("internal_error", f"The server failed on its output (incident {incident}).")

    def on_control(self, fields: Mapping[str, Any]) -> None:
        match fields["t"]:
            case "started":
                self._started = True
                self._disarm()
                if not self._cancelled:
                    self._expect_kill(self.spec.timeout_ms / 1000 + GRACE_S)
            case "killed":
                self._disarm()
            case "in":
                self._taken = int(fields["at"])
                self._input_closed = bool(fields["closed"])
                self._room.set()
            case "gap":  # what a later client lacks was kept no longer
                flow = self._flows[fields["st"]]
                flow.received = max(flow.received, int(fields["at"]))
            case "exit":
                self._end(from_exit(self.spec, fields))

    def flow_message(self) -> dict[str, Any]:
        """What the runner should know now of credit and storage."""
        for flow in self._flows.values():
            flow.granted_sent, flow.acked_sent = flow.granted, flow.acked
        return {
            "t": "flow",
            "x": self.exec,
            "g": {name: flow.granted for name, flow in self._flows.items()},
            "a": {name: flow.acked for name, flow in self._flows.items()},
        }

    def fail(self, reason: str, message: str) -> None:
        """End it with a result nobody saw; does nothing when it has ended."""
        ms = round((self._clock() - self._began) * 1000)
        if self._forced is not None and reason == "sandbox_terminated":
            reason, message = self._forced
        self._end(lost(reason, message, ms, self.have()))

    def detach(self) -> None:
        """Let go of it; it runs on. Does nothing when it has ended."""
        self._disarm()
        if not self._result.done():
            self._result.set_exception(Detached("The server let go of it, and it runs on."))
            self._result.exception()  # perhaps nobody waits
            self._room.set()

    def _end(self, result: ExecResult) -> None:
        self._disarm()
        if not self._result.done():
            self._result.set_result(result)
            self._room.set()
            self._host.ended(self)

    # --- a kill that is not confirmed -----------------------------------------------------------

    def _expect_kill(self, after_s: float) -> None:
        self._disarm()
        self._timers = [
            self._loop.call_later(after_s + RAISE_AFTER_S, self._host.raise_cpu),
            self._loop.call_later(after_s + KILL_AFTER_S, self._give_up),
        ]

    def _expect_start(self) -> None:
        self._disarm()
        self._timers = [self._loop.call_later(at, self._host.raise_cpu) for at in SPAWN_RAISE_S]
        self._timers.append(self._loop.call_later(SPAWN_S, self._withdraw))

    def _withdraw(self) -> None:
        """It was not begun: say so, and see that it does not begin later."""
        log.warning("exec %s was not begun in %g s", self.exec, SPAWN_S)
        self._host.send({"t": "cancel", "x": self.exec, "grace": 0.0})
        message = "The sandbox was too busy to begin it. End some of what runs there, then retry."
        self.fail("sandbox_unavailable", message)

    def _give_up(self) -> None:
        log.warning("exec %s could not be ended; killing its sandbox", self.exec)
        what = "It was cancelled" if self._cancelled else "It ran longer than it may"
        reason = "cancelled" if self._cancelled else "timeout"
        self._forced = (reason, f"{what}, and its sandbox had to be stopped to end it.")
        self._host.abandon("A command could not be ended, so the sandbox was stopped.")

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def end_all(processes: Iterable[Process], reason: str, message: str) -> None:
    for process in processes:
        process.fail(reason, message)
