"""The manager: every sandbox of one server by id. Starts them on first use, ends what it started.

It holds no policy of rooms and no wire; one sandbox's life is `instance.py`'s.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sandbox import containers
from sandbox.engine import Engine
from sandbox.errors import (
    EngineError,
    InvalidSpec,
    SandboxError,
    SandboxLimit,
    SandboxUnavailable,
    UnknownSandbox,
)
from sandbox.instance import Instance, Shared
from sandbox.process import OutputSink, Process
from sandbox.spec import ExecSpec, SandboxRecord, SandboxSpec, sandbox_id

log = logging.getLogger(__name__)

CLOSE_S: Final = 6.0  # the whole of `close`, within the server's ten
STOPPED_BY_SERVER: Final = "The server stopped, and the sandbox with it."


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """`owner` is the id of the server's data folder: containers with it in their label are ours."""

    owner: str
    docker_host: str | None = None
    max_running: int = 32


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
        self._instances: dict[str, Instance] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reconciled = self._closed = False
        self._reconciling = asyncio.Lock()
        self._on_change = on_change
        self._shared = Shared(
            self.engine, config.owner, clock, self._spawn, self._changed, self._admit
        )

    async def open(self) -> None:
        """Settle what an earlier server left. Never fails for an absent engine: then it is
        settled at the first use that finds one.
        """
        try:
            await self._reconcile()
        except SandboxError as error:
            log.warning("no sandboxes for now: %s", error.message)

    async def close(self) -> None:
        """Stop what runs, within CLOSE_S; files are kept. Processes end as sandbox_terminated."""
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S - 1):
                await asyncio.gather(
                    *(self._stop_quietly(instance) for instance in self._instances.values())
                )
        for instance in self._instances.values():
            instance.release(STOPPED_BY_SERVER)
        for task in list(self._tasks):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self.engine.close()

    async def execute(self, sandbox: SandboxSpec, spec: ExecSpec, sink: OutputSink) -> Process:
        """Run a command, starting its sandbox when it does not run. Raises SandboxUnavailable."""
        return await (await self._instance(sandbox)).execute(spec, sink)

    async def adopt(
        self,
        id: str,  # noqa: A002
        exec_id: str,
        sink: OutputSink,
        have: Mapping[str, int],
    ) -> Process | None:
        """The surviving exec, its output from `have` on; None where its runner is not known."""
        del id, exec_id, sink, have  # a restart stops what ran, so nothing survives it
        return None

    async def start(self, sandbox: SandboxSpec) -> SandboxRecord:
        """The record once it runs. Starting an active id starts nothing. Raises
        SandboxUnavailable.
        """
        instance = await self._instance(sandbox)
        await instance.ensure_running()
        return instance.record()

    async def kill(self, id: str) -> SandboxRecord:  # noqa: A002
        """Stop it and keep its files. Raises UnknownSandbox, EngineUnavailable, EngineError."""
        instance = self._known(id)
        await instance.stop("The sandbox was stopped.")
        return instance.record()

    async def destroy(self, id: str) -> None:  # noqa: A002
        """Remove it with its files. Idempotent. Raises EngineUnavailable, EngineError."""
        await self._reconcile()
        instance = self._instances.get(sandbox_id(id))
        if instance is not None:
            await instance.destroy()
            if instance.status == "stopped":
                self._instances.pop(instance.spec.id, None)

    async def settled(self, id: str) -> None:  # noqa: A002
        """Returns once a running sandbox has left the raised limits of its start."""
        await self._known(id).settled()

    def get(self, id: str) -> SandboxRecord | None:  # noqa: A002
        try:
            instance = self._instances.get(sandbox_id(id))
        except InvalidSpec:
            return None
        return instance.record() if instance else None

    def list(self) -> list[SandboxRecord]:
        return [instance.record() for instance in self._instances.values()]

    # --- inside ---------------------------------------------------------------------------------

    def _known(self, raw: str) -> Instance:
        instance = self._instances.get(sandbox_id(raw))
        if instance is None:
            raise UnknownSandbox(f"There is no sandbox {raw!r}.")
        return instance

    async def _instance(self, spec: SandboxSpec) -> Instance:
        if self._closed:
            raise SandboxUnavailable("The server is stopping.")
        try:
            await self._reconcile()
        except EngineError as error:
            raise SandboxUnavailable(f"The container engine refused: {error.message}") from error
        instance = self._instances.get(spec.id)
        if instance is None:
            instance = self._instances[spec.id] = Instance(self._shared, spec)
        instance.respec(spec)
        return instance

    def _admit(self, wanted: Instance) -> None:
        running = sum(1 for one in self._instances.values() if one.active and one is not wanted)
        if running >= self._config.max_running:
            raise SandboxLimit(
                f"{running} sandboxes run already, as many as this server allows. "
                "Stop one, then try again."
            )

    def _changed(self, record: SandboxRecord) -> None:
        try:
            self._on_change(record)
        except Exception:  # the boundary to whoever listens; a sandbox must not stop half way
            log.exception("telling of sandbox %s failed", record.id)

    async def _reconcile(self) -> None:
        """Once, when an engine is there: know the containers that carry our label, stop those
        that still run. Others' are not touched.
        """
        if self._reconciled:
            return
        async with self._reconciling:
            if self._reconciled:
                return
            found = await self.engine.list(f"{containers.OWNER_LABEL}={self._config.owner}")
            await asyncio.gather(*(self._take_over(container) for container in found))
            self._reconciled = True

    async def _take_over(self, container: dict[str, Any]) -> None:
        try:
            spec = containers.spec_from_labels(container["Labels"])
        except (InvalidSpec, KeyError):
            log.warning("container %s carries our label but no sandbox", container["Id"][:12])
            return
        if spec.id in self._instances:
            return
        if container["State"] not in ("exited", "created", "dead"):
            await self.engine.kill(container["Id"])
        instance = self._instances[spec.id] = Instance(self._shared, spec)
        instance.adopt(container["Id"])

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
