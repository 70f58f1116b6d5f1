"""The manager: every sandbox of one server by id. Starts, executes, saves and stops, destroys.

It holds no policy of rooms and no wire; one sandbox's life is `instance.py`'s, what goes on
without being asked is `upkeep.py`'s.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from sandbox.engine import Engine
from sandbox.errors import (
    EngineError,
    EngineUnavailable,
    InvalidSpec,
    SandboxError,
    SandboxUnavailable,
    UnknownSandbox,
)
from sandbox.instance import Instance
from sandbox.pool import EVERY_IMAGE, Kind, Pool
from sandbox.process import OutputSink, Process
from sandbox.provision import Provider
from sandbox.reconcile import Reconciler
from sandbox.records import Records
from sandbox.registry import Registry
from sandbox.roster import Child
from sandbox.saved import SavedLimits
from sandbox.shared import Shared
from sandbox.spec import ExecSpec, SandboxRecord, SandboxSpec, SavedWorkspace, sandbox_id
from sandbox.upkeep import Upkeep
from sandbox.watch import DiskWatch

log = logging.getLogger(__name__)

CLOSE_S: Final = 6.0  # the whole of `close`, within the server's ten
# A start is answered at once; an engine that has not been asked yet gets this long to be.
FIRST_S: Final = 1.0
STOPPED_BY_HAND: Final = "The sandbox was stopped."
STOPPED_BY_SERVER: Final = "The server stopped, and the sandbox with it."


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """`owner` is the id of the server's data folder: containers with it in their label are ours.

    `state_dir` keeps records over restarts. `pool` spares of each of `pool_kinds` wait for new
    sandboxes. `disk_bytes` is the most a sandbox may write, `saved_max_*` what saved workspaces
    may grow to, each in age and all in size. None: no limit.
    """

    owner: str
    docker_host: str | None = None
    max_running: int = 32
    state_dir: Path | None = None
    pool: int = 0
    pool_kinds: tuple[Kind, ...] = EVERY_IMAGE
    disk_bytes: int | None = None
    saved_max_age_s: float | None = None
    saved_max_bytes: int | None = None


class Manager:
    def __init__(
        self,
        config: ManagerConfig,
        *,
        on_change: Callable[[SandboxRecord], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        sandbox_id(config.owner)  # it becomes part of container names
        self.engine = Engine(config.docker_host)
        self._config = config
        self._tasks: set[asyncio.Task[None]] = set()
        self._running_ops: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._closed = False
        self._registry = Registry(
            Records(config.state_dir),
            max_running=config.max_running,
            on_change=on_change,
            clock=clock,
        )
        self._pool = Pool(
            self.engine, config.owner, self._spawn, size=config.pool, kinds=config.pool_kinds
        )
        provider = Provider(
            self.engine, config.owner, pool=self._pool, disk_bytes=config.disk_bytes
        )
        self._registry.shared = Shared(
            self.engine,
            provider,
            config.owner,
            clock,
            self._spawn,
            self._registry.changed,
            self._registry.admit,
        )
        self._reconciler = Reconciler(self.engine, config.owner, self._registry, self._pool)
        self._watch = DiskWatch(self.engine, provider, self._registry, config.disk_bytes)
        saved = SavedLimits(config.saved_max_age_s, config.saved_max_bytes)
        self._upkeep = Upkeep(
            self._registry, self._reconciler, self._pool, saved, clock=clock, spawn=self._spawn
        )

    async def open(self) -> None:
        """Settle what an earlier server left. Never fails for an absent engine: then it is
        settled at the first use that finds one.
        """
        await self._registry.load()
        try:
            await self._reconciler.run()
        except SandboxError as error:
            log.warning("no sandboxes for now: %s", error.message)
        self._spawn(self._upkeep.run())
        self._spawn(self._watch.run())
        self._spawn(self._pool.refill())

    async def close(self, *, keep: bool = True) -> None:
        """Let go of what runs, for a later server to go on with: `Process.wait` raises Detached.

        `keep` false stops it, within CLOSE_S; files are kept, processes end as sandbox_terminated.
        """
        self._closed = True
        for instance in self._registry:
            self._registry.keep(instance)
            if keep:
                instance.detach()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S - 1):
                stopped = () if keep else (self._stop_quietly(one) for one in self._registry)
                await asyncio.gather(self._pool.close(), *stopped)
        if not keep:
            for instance in self._registry:
                instance.release(STOPPED_BY_SERVER)
        for task in list(self._tasks):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._registry.records.flush()
                await self.engine.close()

    async def execute(self, sandbox: SandboxSpec, spec: ExecSpec, sink: OutputSink) -> Process:
        """Run a command, starting its sandbox when it does not run. Raises SandboxUnavailable.

        A sandbox that is known runs as it was last started, not as `sandbox` says.
        """
        await self._met()
        return await self._admitted(sandbox).execute(spec, sink)

    async def adopt(
        self,
        id: str,  # noqa: A002
        exec_id: str,
        sink: OutputSink,
        have: Mapping[str, int],
    ) -> Process | None:
        """The exec that survived an earlier server, its output from `have` on.

        `have` is how many bytes of each stream are stored. None where no runner knows it any more.
        Raises SandboxUnavailable when that can't be found out.
        """
        await self._met()
        instance = self._registry.get(sandbox_id(id))
        return await instance.adopt_exec(exec_id, sink, have) if instance else None

    async def children(self, id: str) -> list[Child]:  # noqa: A002
        """What ended commands left running in it. Raises UnknownSandbox, SandboxUnavailable."""
        return await self._known(id).children()

    async def kill_children(self, id: str, exec_id: str) -> int:  # noqa: A002
        """End what `exec_id` left running; how many processes that was. Raises as `children`."""
        return await self._known(id).kill_children(exec_id)

    async def start(self, sandbox: SandboxSpec) -> SandboxRecord:
        """Its record, at once; changes tell how it goes on. Starting an active id starts nothing,
        but another sleep_after or keep_alive is taken. One that is being stopped or destroyed is
        started after that. Raises SandboxUnavailable (a limit).
        """
        with suppress(TimeoutError, SandboxError):  # without an engine the start itself fails
            async with asyncio.timeout(FIRST_S):
                await self._met()
        killing = self._running_ops.pop(("kill", sandbox.id), None)  # a later kill is another
        if killing is not None:
            await asyncio.sleep(0)  # its turn comes first
        if self._is_going(sandbox.id):
            return self._start_later(sandbox)
        known = self._registry.get(sandbox.id)
        if known is not None:
            active = known.active and known.status != "stopping" and killing is None
            if not active:
                self._registry.admit(known)
            known.respec(sandbox)
            if active:
                return known.record()
        instance = self._admitted(sandbox)
        self._registry.changed(record := replace(instance.record(), status="requested"))
        instance.begin()
        return record

    def _is_going(self, name: str) -> bool:
        return ("destroy", name) in self._running_ops or self._registry.is_going(name)

    def _start_later(self, sandbox: SandboxSpec) -> SandboxRecord:
        """Once the one of this id is gone; a destroy that comes before takes it back."""
        key = ("start", sandbox.id)
        if key not in self._running_ops:
            task = self._running_ops[key] = self._spawn(self._start_when_gone(sandbox))
            task.add_done_callback(partial(self._op_done, key))
        return _as(sandbox, "requested")

    async def _start_when_gone(self, sandbox: SandboxSpec) -> None:
        if task := self._running_ops.get(("destroy", sandbox.id)):
            await asyncio.wait({task})
        elif instance := self._registry.get(sandbox.id):
            await instance.idle()
        try:
            await self.start(sandbox)
        except SandboxError as error:
            log.warning("sandbox %s not started: %s", sandbox.id, error.message)
            self._registry.changed(replace(_as(sandbox, "error"), last_error=error.message))

    def _take_back(self, name: str) -> None:
        if later := self._running_ops.pop(("start", name), None):
            later.cancel()

    async def ready(self, id: str) -> SandboxRecord:  # noqa: A002
        """Its record once it runs. Raises UnknownSandbox, SandboxUnavailable when it does not."""
        instance = self._known(id)
        await instance.ready()
        return instance.record()

    @contextmanager
    def hold(self, id: str, reason: str) -> Iterator[None]:  # noqa: A002
        """Keep the lease of a sandbox open meanwhile, also when it is started only later."""
        name = sandbox_id(id)
        holder = f"{reason}:{secrets.token_hex(4)}"  # no exec's id has a colon
        self._registry.hold(name, holder)
        try:
            yield
        finally:
            self._registry.release(name, holder)

    async def kill(self, id: str) -> SandboxRecord:  # noqa: A002
        """Stop it and keep its files. Raises UnknownSandbox, EngineUnavailable, EngineError."""
        self._take_back(sandbox_id(id))
        instance = self._known(id)
        await self._once(
            "kill", instance.spec.id, lambda: instance.stop("The sandbox was stopped.")
        )
        return instance.record()

    async def destroy(self, id: str) -> None:  # noqa: A002
        """Remove it with its files. Idempotent. Raises EngineUnavailable, EngineError."""
        name = sandbox_id(id)
        self._take_back(name)
        await self._once("destroy", name, lambda: self._destroy(name))

    async def settled(self, id: str) -> None:  # noqa: A002
        """Returns once a running sandbox has left the raised limits of its start."""
        await self._known(id).settled()

    def get(self, id: str) -> SandboxRecord | None:  # noqa: A002
        try:
            instance = self._registry.get(sandbox_id(id))
        except InvalidSpec:
            return None
        return instance.record() if instance else None

    def saved(self) -> list[SavedWorkspace]:
        """What stopped sandboxes left on disk, the oldest first."""
        return self._registry.saved()

    def list(self) -> list[SandboxRecord]:
        return [instance.record() for instance in self._registry]

    async def tick(self) -> None:
        """One round of the upkeep: leases, limits, records. The upkeep's own clock calls it."""
        await self._upkeep.tick()

    async def reconcile(self) -> None:
        """Hold the engine's containers against ours, now. Raises EngineUnavailable, EngineError."""
        await self._reconciler.run()

    # --- inside ---------------------------------------------------------------------------------

    def _known(self, raw: str) -> Instance:
        instance = self._registry.get(sandbox_id(raw))
        if instance is None:
            raise UnknownSandbox(f"There is no sandbox {raw!r}.")
        return instance

    def _admitted(self, spec: SandboxSpec) -> Instance:
        if self._closed:
            raise SandboxUnavailable("The server is stopping.")
        return self._registry.admitted(spec)

    async def _met(self) -> None:
        """What an earlier server left is known from here on. Raises SandboxUnavailable."""
        if self._reconciler.settled:
            return
        try:
            await self._reconciler.run()
        except EngineError as error:
            raise SandboxUnavailable(f"The container engine refused: {error.message}") from error

    async def _destroy(self, name: str) -> None:
        await self._met()
        instance = self._registry.get(name)
        if instance is not None:
            await self._registry.remove(instance)

    async def _once(
        self, what: str, name: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Several at once are one, and one caller's cancellation leaves it to the others."""
        key = (what, name)
        task = self._running_ops.get(key)
        if task is None:
            task = self._running_ops[key] = self._spawn(work())
            task.add_done_callback(partial(self._op_done, key))
        await asyncio.wait({task})
        if task.cancelled():
            raise EngineUnavailable("The server is stopping.")
        task.result()

    def _op_done(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._running_ops.get(key) is task:
            del self._running_ops[key]

    async def _stop_quietly(self, instance: Instance) -> None:
        try:
            await instance.stop(STOPPED_BY_SERVER, grace_s=0)
        except SandboxError as error:
            log.warning("sandbox %s not stopped: %s", instance.spec.id, error.message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SandboxError):
            log.error("a sandbox task failed", exc_info=error)


def _as(spec: SandboxSpec, status: str) -> SandboxRecord:
    """The record of one that is not there yet."""
    return SandboxRecord(
        spec.id, status, workspace_saved=False, image=spec.image, instance_type=spec.instance_type
    )
