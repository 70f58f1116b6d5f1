"""One sandbox: its container, its link, its running processes, and the moves between its states.

The manager owns the instances and knows ids; what a container looks like is `containers.py`'s.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from sandbox import containers
from sandbox.errors import (
    EngineError,
    LinkBroken,
    SandboxError,
    SandboxUnavailable,
)
from sandbox.health import Fate, engine_lost, until_silent, what_became
from sandbox.link import Link
from sandbox.place import Place
from sandbox.process import OutputSink, Process, end_all
from sandbox.roster import Child, Roster
from sandbox.shared import Shared
from sandbox.spec import ExecSpec, SandboxSpec
from sandbox.startup import is_needed, judge, startup
from sandbox.survivors import Survivor
from sandbox.throttle import Throttle, hurry

log = logging.getLogger(__name__)

HUNG_S: Final = 4.0  # an engine that is silent for so long does not start anything either
STOP_GRACE_S: Final = 1  # the runner's own TERM-then-exit takes half of it
# How long after a kill the link may stay open; it closes within milliseconds.
KILLED_S: Final = 1.0


class Instance(Place):
    def __init__(self, shared: Shared, spec: SandboxSpec) -> None:
        super().__init__(spec, clock=shared.clock, changed=shared.changed)
        self._shared = shared
        self._engine = shared.engine
        self._lock = asyncio.Lock()
        self._starting: asyncio.Task[None] | None = None
        self._throttle: Throttle | None = None
        self._watching: asyncio.Task[None] | None = None
        self._roster = Roster(spec.id, self.lease, shared.clock, self)
        self._startup: Process | None = None
        self._aborted: asyncio.Task[None] | None = None
        self._stopping = ""

    @property
    def _link(self) -> Link | None:
        return self._roster.link

    @property
    def name(self) -> str:
        return containers.container_name(self._shared.owner, self.spec.id)

    @property
    def busy(self) -> bool:
        """On its way somewhere, so that what the engine tells of it now may be old at once."""
        return self._lock.locked() or self.status in ("requested", "starting", "stopping")

    async def meet(self, container: str) -> None:
        """Go on with a container that an earlier server left running, and with what runs in it.

        One whose runner does not answer is killed; its files are kept. Raises EngineUnavailable,
        EngineError: then nothing is known yet.
        """
        async with self._lock:
            if self.destroyed or self._link is not None:  # while it waited for its turn
                return
            await self._hurry(container)
            try:
                link, found = await self._roster.meet(self._engine, container)
            except LinkBroken as error:
                log.warning("sandbox %s not met again: %s", self.spec.id, error.message)
                await self._engine.kill(container)
                self.last_error = None
                self.adopt(container)
                self.tell()
                return
            self._roster.survive(found)
            self._up(container, link, found)
            self._shared.spawn(self._roster.drop_unclaimed(link))
            self.move("running")

    def detach(self) -> None:
        """Let go of it; container and commands go on, for a later server."""
        for process in self._unlink():
            process.detach()

    # --- commands -------------------------------------------------------------------------------

    async def execute(self, spec: ExecSpec, sink: OutputSink) -> Process:
        """Raises SandboxUnavailable."""
        await self.ensure_running()
        return self._roster.launch(spec, sink, self._stopping or "The sandbox has just ended.")

    async def adopt_exec(
        self, exec_id: str, sink: OutputSink, have: Mapping[str, int]
    ) -> Process | None:
        """The surviving exec from `have` on; None where its runner does not know it."""
        async with self._lock:  # a link that was lost may just be met again
            return self._roster.adopt(exec_id, sink, have)

    async def children(self) -> list[Child]:
        """What ended commands left in the background. Raises SandboxUnavailable."""
        return await self._roster.children()

    async def kill_children(self, exec_id: str) -> int:
        """How many processes that was. Raises SandboxUnavailable."""
        return await self._roster.kill_children(exec_id)

    # --- start ----------------------------------------------------------------------------------

    async def ensure_running(self) -> None:
        """Coalesces: two at once start one container. Raises SandboxUnavailable."""
        if self._link is not None and self.status == "running":
            return
        task = self.begin()
        await asyncio.wait({task})  # one caller's cancellation leaves the start to the others
        if task.cancelled():
            raise SandboxUnavailable("The server is stopping.")
        task.result()

    async def ready(self) -> None:
        """Returns once the start on its way is done. Raises SandboxUnavailable: it is not up."""
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self.status != "running":
            raise SandboxUnavailable(self.last_error or "The sandbox does not run.")

    def begin(self) -> asyncio.Task[None]:
        """The start that is on its way, or a new one."""
        if self._starting is None or self._starting.done() or self._starting is self._aborted:
            self._starting = self._shared.spawn(self._start_once())
        return self._starting

    async def _start_once(self) -> None:
        async with self._lock:
            if self._link is not None and self.status == "running":
                return
            if self.destroyed:  # the manager makes a new one of this id
                raise SandboxUnavailable("The sandbox was being destroyed. Try again.")
            if self._aborted is asyncio.current_task():
                raise SandboxUnavailable("The sandbox was stopped before it was up.")
            self._stopping = ""
            try:
                self._shared.admit(self)
                self.move("starting")
                await self._start()
            except SandboxError as error:
                stopped = self._aborted is asyncio.current_task()
                self.last_error = None if stopped else error.message
                self.move("stopped" if stopped else "error")
                if isinstance(error, SandboxUnavailable):
                    raise
                raise SandboxUnavailable(f"The sandbox did not start: {error.message}") from error

    async def _start(self) -> None:
        await self._engine.ping(HUNG_S)
        cpus = (await self._engine.info()).cpus
        container, link = await self._shared.provider.obtain(self.spec, cpus)
        try:
            if link is None:
                link = await self._roster.start(self._engine, container)
            else:
                self._roster.own(link)
            if link.closed:
                raise LinkBroken("The sandbox ended as soon as it was up.")
        except (SandboxError, asyncio.CancelledError):
            await self._kill_quietly(container)
            raise
        self._roster.drop_survivors()
        self._up(container, link)
        await self._run_startup(container)
        self.lease.arm()
        self.move("running")

    async def _run_startup(self, container: str) -> None:
        """Raises StartupFailed; files are kept then."""
        if not is_needed(self.spec):
            return
        spec, tail = startup(self.spec)
        tail.process = self._startup = process = self._roster.launch(spec, tail, "It just ended.")
        try:
            judge(self.spec, await process.wait(), tail)
            process.confirm()
        except SandboxError:
            self.release("The sandbox did not start.")
            await self._save(container, STOP_GRACE_S)
            raise
        finally:
            self._startup = None

    async def _save(self, container: str, grace_s: int) -> None:
        """Stop the container, which keeps its files, and see that it did.

        Raises EngineUnavailable, EngineError; nothing is removed then.
        """
        await self._hurry(container)
        await self._engine.stop(container, grace_s)
        found = await self._engine.inspect(container)
        if found is not None and found["State"].get("Running"):
            raise EngineError(500, "the engine did not stop the sandbox")
        if found is not None and found["State"].get("Status") not in containers.GOING:
            self.saved()

    async def idle(self) -> None:
        """Returns once what goes on with it now is done."""
        async with self._lock:
            pass

    async def settled(self) -> None:
        """Returns once the limits of the last start are the type's own."""
        if self._throttle is not None:
            await self._throttle.settled()

    # --- ends -----------------------------------------------------------------------------------

    def raise_cpu(self) -> None:
        if self._throttle is not None:
            self._throttle.up()

    def abandon(self, message: str) -> None:
        """Kill the container now; its commands end with `message`."""
        if self._link is not None and self.container is not None:
            self._stopping = message
            self._shared.spawn(self._abandon(self._link, self.container))

    async def _abandon(self, link: Link, container: str) -> None:
        await self._kill_quietly(container)
        await asyncio.sleep(KILLED_S)
        if link is self._link:  # the engine did not do it; nobody waits any longer
            fate = engine_lost("the engine could not stop it.")
            self._settle(fate, self._unlink())

    async def _kill_quietly(self, container: str) -> None:
        await self._hurry(container)
        with suppress(SandboxError):
            await self._engine.kill(container)

    async def _hurry(self, container: str) -> None:
        """More CPU for what must not take long, until it has ended or its limits are set anew."""
        if self._throttle is not None:
            self._throttle.close()
        await hurry(self._engine, self.spec, container)

    def on_closed(self) -> None:
        """The link is gone; what that means is for the engine to say, unless we stop it."""
        if self._link is not None and self._link.last_words:
            log.warning("sandbox %s: runner: %s", self.spec.id, self._link.last_words)
        broken = self._link is not None and self._link.broken
        processes = self._unlink()
        if broken:  # meeting it again would only end the same way
            self._stopping = "The sandbox said what it may not say, so it was stopped."
        if self.status in ("requested", "starting", "stopping"):  # who does that settles it
            end_all(processes, "sandbox_terminated", self._stopping or "It ended during its start.")
        else:
            self._shared.spawn(self._settle_loss(processes))

    def _unlink(self) -> list[Process]:
        """Let go of the link, silently; what ran over it is the caller's to end."""
        if self._throttle is not None:
            self._throttle.close()
        return self._roster.unlink()

    async def _watch(self, link: Link, container: str) -> None:
        """End what runs over a link that is open and carries nothing."""
        its = self._roster
        why = await until_silent(self._engine, container, link, lambda: bool(its.processes))
        if link is self._link:
            self._settle(engine_lost(why), self._unlink())

    async def _settle_loss(self, processes: list[Process]) -> None:
        async with self._lock:  # a next start waits, and so can't be mistaken for this one
            container = self.container or self.name
            volume = self.name if self.spec.profile == "strict" else None
            fate = await what_became(self._engine, container, volume)
            if fate.runs and not self._stopping and await self._resume(container, processes):
                return
            if fate.runs:  # nobody could end what runs in it
                await self._kill_quietly(container)
            if not fate.exists:
                self.container = None
            self._settle(fate, processes)

    def _settle(self, fate: Fate, processes: list[Process]) -> None:
        self._roster.drop_survivors()
        end_all(processes, fate.reason, self._stopping or fate.message)
        if self.status == "running":
            if fate.files and fate.status == "stopped":
                self.saved()
            self.last_error = fate.message if fate.status == "error" else None
            self.move(fate.status)

    async def _resume(self, container: str, processes: list[Process]) -> bool:
        """Meet a runner again whose link was cut while it ran on."""
        await self._hurry(container)
        try:
            link, found = await self._roster.meet(self._engine, container)
        except SandboxError as error:
            log.warning("sandbox %s not met again: %s", self.spec.id, error.message)
            return False
        self._roster.processes.update({process.exec: process for process in processes})
        self._up(container, link, found)
        return True

    def _up(self, container: str, link: Link, found: Mapping[str, Survivor] | None = None) -> None:
        """It runs, over a link that is new: what it has is gone on with, its limits are set."""
        self.up(container)
        self._roster.take_up(link, found or {})
        self._throttle = Throttle(
            self._engine, self._shared.spawn, self.spec, container, self.abandon
        )
        if self._watching is not None:
            self._watching.cancel()
        self._watching = self._shared.spawn(self._watch(link, container))

    def release(self, message: str) -> None:
        """End what runs, without asking the engine."""
        self._roster.drop_survivors()
        end_all(self._unlink(), "sandbox_terminated", message)

    async def stop(
        self,
        message: str,
        *,
        grace_s: int = STOP_GRACE_S,
        error: str | None = None,
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        """Save it and stop it: the one way, whoever wants it. Idempotent.

        `message` is told to what ran, `error` kept as its last error; `still` is asked when its
        turn has come. Raises EngineUnavailable, EngineError.
        """
        await self._abort_start(message)
        async with self._lock:
            unsaved = self.container is not None and self.saved_at is None
            if not (self._link or self.active or unsaved) or not still():
                return
            self._stopping = message
            self.move("stopping")
            try:
                if self.container is not None:
                    await self._save(self.container, grace_s)
            except SandboxError as failure:
                self.last_error = f"Its files were not saved: {failure.message}"
                self.move("error")
                raise
            finally:
                self.release(message)
            self.last_error = error
            self.stopped()

    async def _abort_start(self, message: str) -> None:
        """A start that waits does not begin any more, one that runs its command ends soon."""
        if self._starting is not None and not self._starting.done():
            self._aborted = self._starting
        if self._startup is not None:
            self._stopping = message
            await self._startup.cancel()

    async def destroy(
        self, *, error: str | None = None, still: Callable[[], bool] = lambda: True
    ) -> None:
        """Remove container and files. Idempotent. Raises EngineUnavailable, EngineError.

        `error` and `still` as `stop` takes them; `destroyed` tells whether it was done.
        """
        if not still():
            return
        await self._abort_start("The sandbox was destroyed.")
        async with self._lock:
            if not still():
                return
            self._stopping = "The sandbox was destroyed."
            self.move("stopping")
            try:
                container = self.container or self.name
                await self._hurry(container)
                await self._engine.remove_with_volumes(container, containers.OWNER_LABEL)
                if self.spec.profile == "strict":  # a volume outlives a container removed by others
                    await self._engine.remove_volume(self.name)
            except SandboxError as failure:
                self.last_error = failure.message
                self.move("error")
                raise
            finally:
                self.release(self._stopping)
            self.container, self.destroyed, self.saved_at = None, True, None
            self.last_error = error
            self.move("stopped")
