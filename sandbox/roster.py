"""The commands of one sandbox and the link they speak over: frames to them, messages from them.

When there is a link, and what its loss means, `instance.py` decides.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sandbox.engine import Engine
from sandbox.errors import LinkBroken, SandboxUnavailable
from sandbox.frames import Frame, Output
from sandbox.lease import Lease
from sandbox.link import Link
from sandbox.process import OutputSink, Process
from sandbox.spec import ExecSpec
from sandbox.startup import STARTUP_EXEC
from sandbox.survivors import Survivor, survivors

log = logging.getLogger(__name__)

# How long commands that outlived their server wait for the later one to ask for them.
CLAIM_S: Final = 60.0
RAISE_AFTER_S: Final = 0.5  # an answer that takes longer waits for CPU
ANSWER_S: Final = 5.0  # a runner on a sixteenth of a CPU that others use up


@dataclass(frozen=True, slots=True)
class Child:
    """A process that a command left in the background; `started_ms` since the epoch."""

    exec: str
    pid: int
    command: str
    started_ms: int


class Owner(Protocol):
    """The sandbox, as its roster sees it."""

    def on_closed(self) -> None: ...
    def raise_cpu(self) -> None: ...
    def abandon(self, message: str) -> None: ...


class Roster:
    """The `Host` of its processes. `survivors` are the execs that an earlier client began and
    nobody has claimed yet; like processes, they hold the lease open.
    """

    def __init__(self, name: str, lease: Lease, clock: Callable[[], float], owner: Owner) -> None:
        self.link: Link | None = None
        self.processes: dict[str, Process] = {}
        self.survivors: dict[str, Survivor] = {}
        self.raise_cpu = owner.raise_cpu
        self.abandon = owner.abandon
        self._name = name
        self._lease = lease
        self._clock = clock
        self._on_closed = owner.on_closed
        self._dirty: set[Process] = set()
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._number = 0

    # --- the link -------------------------------------------------------------------------------

    def new_link(self) -> Link:
        return Link(self._on_frame, self._on_closed)

    async def start(self, engine: Engine, container: str) -> Link:
        """A link to a runner that is brought up. Raises as `Link.start` does.

        A container that ended while its engine was away has its stdin closed at the first start
        after that (seen with 20.10 and live-restore), and not at the second.
        """
        link = self.new_link()
        try:
            await link.start(engine, container)
        except LinkBroken:
            if not link.lost:
                raise
            await engine.kill(container)
            link = self.new_link()
            await link.start(engine, container)
        return link

    def own(self, link: Link) -> None:
        """A link that was made elsewhere, over which nothing runs yet."""
        link.hand_over(self._on_frame, self._on_closed)

    async def meet(self, engine: Engine, container: str) -> tuple[Link, dict[str, Survivor]]:
        """A runner that is up, over a new link; what it has.

        Raises EngineUnavailable, EngineError, and LinkBroken where there is none to be met.
        """
        await _thaw(engine, container)
        link = self.new_link()
        hello = await link.resume(engine, container)
        try:
            found = survivors(hello)
            self._check(link, found)
        except LinkBroken:
            link.close()
            raise
        return link, found

    def _check(self, link: Link, found: Mapping[str, Survivor]) -> None:
        if link.closed:
            raise LinkBroken("The sandbox ended as it was met.")
        if STARTUP_EXEC in found and STARTUP_EXEC not in self.processes:
            raise LinkBroken("Its startup command was not seen to its end.")

    def take_up(self, link: Link, found: Mapping[str, Survivor]) -> None:
        """Go on over `link` with what is known here, where the runner knows it too."""
        self.link = link
        self.survivors = {name: found[name] for name in self.survivors if name in found}
        for process in list(self.processes.values()):
            process.resumed(known=process.exec in found)

    def unlink(self) -> list[Process]:
        """Let go of the link, silently; what ran over it is the caller's to end."""
        link, self.link = self.link, None
        if link is not None:
            link.close()
        processes, self.processes = list(self.processes.values()), {}
        for future in self._asked.values():
            future.cancel()
        return processes

    # --- commands -------------------------------------------------------------------------------

    def launch(self, spec: ExecSpec, sink: OutputSink, lost: str) -> Process:
        """Run it; where the link was lost just before, it has ended with `lost`."""
        process = Process(self, spec, sink, self._clock)
        if self.link is None:
            process.fail("sandbox_terminated", lost)
            return process
        self.processes[spec.exec] = process
        self._lease.hold(spec.exec)
        process.launch()
        return process

    def survive(self, found: Mapping[str, Survivor]) -> None:
        """These are met by a server that did not begin them."""
        self.survivors = dict(found)
        for name, survivor in found.items():
            if not survivor.done:
                self._lease.hold(name)

    async def drop_unclaimed(self, link: Link) -> None:
        """End what nobody has asked for in time: nobody can see or end it any more."""
        await asyncio.sleep(CLAIM_S)
        if link is self.link:
            for name in self.survivors:
                log.warning("sandbox %s: nobody asked for exec %s; ending it", self._name, name)
                self.send({"t": "cancel", "x": name, "grace": 0.0})
            self.drop_survivors()

    def drop_survivors(self) -> None:
        for name in self.survivors:
            self._lease.release(name)
        self.survivors.clear()

    def adopt(self, exec_id: str, sink: OutputSink, have: Mapping[str, int]) -> Process | None:
        """The exec that survived, from `have` on; None where there is none of that name."""
        if exec_id in self.processes:
            return self.processes[exec_id]
        survivor = self.survivors.pop(exec_id, None)
        if survivor is None:
            return None
        process = Process.survived(self, survivor, sink, self._clock, have)
        self.processes[exec_id] = process
        self._lease.hold(exec_id)
        process.claim()
        return process

    # --- messages -------------------------------------------------------------------------------

    def send(self, fields: Mapping[str, Any]) -> None:
        if self.link is not None:
            self.link.send(fields)

    def dirty(self, process: Process) -> None:
        """Send its grants and acknowledgements, joined with others of this turn of the loop."""
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._flow)
        self._dirty.add(process)

    def _flow(self) -> None:
        for process in self._dirty:
            if not process.done:
                self.send(process.flow_message())
        self._dirty.clear()

    def ended(self, process: Process) -> None:
        self.processes.pop(process.exec, None)
        self._lease.release(process.exec)

    def forget(self, process: Process) -> None:
        self.send({"t": "forget", "x": process.exec})

    async def children(self) -> list[Child]:
        """Raises SandboxUnavailable."""
        answer = await self._ask({"t": "children"})
        with suppress(KeyError, TypeError, ValueError):
            return [
                Child(str(row["x"]), int(row["pid"]), str(row["cmd"]), int(row["at"]))
                for row in answer["rows"]
            ]
        raise SandboxUnavailable("The sandbox did not say what runs in it.")

    async def kill_children(self, exec_id: str) -> int:
        """How many processes were killed. Raises SandboxUnavailable."""
        answer = await self._ask({"t": "kill_children", "x": exec_id})
        return int(answer.get("killed") or 0)

    async def _ask(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.link is None:
            return {"rows": []}  # nothing runs in it
        self._number += 1
        number = self._number
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({**fields, "i": number})
        try:
            done, _ = await asyncio.wait({future}, timeout=RAISE_AFTER_S)
            if not done:
                self.raise_cpu()
                done, _ = await asyncio.wait({future}, timeout=ANSWER_S)
        finally:
            del self._asked[number]
        if not done or future.cancelled():
            raise SandboxUnavailable("The sandbox did not answer. Try again, or stop it.")
        answer: Mapping[str, Any] = future.result()
        return answer

    def _on_frame(self, frame: Frame) -> None:
        if isinstance(frame, Output):
            if process := self.processes.get(frame.exec):
                process.on_output(frame)
        elif process := self.processes.get(str(frame.fields.get("x", ""))):
            try:
                process.on_control(frame.fields)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise LinkBroken(f"a broken {frame.fields['t']}: {error!r}") from error
        elif frame.fields["t"] == "answer":
            future = self._asked.get(frame.fields.get("i", 0))
            if future is not None and not future.done():
                future.set_result(frame.fields)
        elif frame.fields["t"] == "fault":
            log.warning("sandbox %s: runner: %s", self._name, frame.fields.get("message"))


async def _thaw(engine: Engine, container: str) -> None:
    """See that it runs; one that somebody paused goes on. Raises as `meet` does."""
    found = await engine.inspect(container)
    state = (found or {}).get("State") or {}
    if not state.get("Running") or state.get("Restarting"):
        raise LinkBroken("It does not run any more.")
    if state.get("Paused"):
        await engine.unpause(container)
