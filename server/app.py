"""The whole server: parts made and joined, started in order, watched, drained, stopped."""

import asyncio
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from protocol.errors import DuetError, Unavailable
from protocol.shapes import Limits
from sandbox.errors import InvalidSpec, SandboxError
from sandbox.manager import Manager, ManagerConfig
from sandbox.pool import Kind
from sandbox.spec import IMAGES
from server import logs
from server.agent.make import make_agent, open_models
from server.agent.models import Models
from server.errors import StartupError
from server.execlog import ExecLog
from server.execs import Execs
from server.folder import DataFolder
from server.gate import Gate
from server.handlers import Handlers
from server.http_api import application
from server.hub import Hub
from server.provision_probe import OLD_RUNC, runc_is_old
from server.roomlog import RoomLog
from server.run import KeepLimits
from server.running import ExecConfig
from server.sandboxes import Sandboxes
from server.settings import Settings
from server.solo import SoloExecs
from server.solo_log import SoloLog
from server.static import Page
from server.store import Store, check_url
from server.tasks import GuardedTasks
from server.tokens import Tokens
from server.valkey import EmbeddedValkey

log = logs.get("server")

_SETTLE_S = 2.0
"""What ends that are just being told get to reach the log."""


class Server:
    """One server's parts. Made by `running`; tests use it as users' clients would, by its port."""

    def __init__(
        self,
        settings: Settings,
        folder: DataFolder,
        store: Store,
        valkey: EmbeddedValkey | None,
        tasks: GuardedTasks,
        *,
        models: Models | None = None,
    ) -> None:
        self.settings = settings
        self.port = 0
        self.store = store
        self.valkey = valkey
        self.tasks = tasks
        self.began = time.monotonic()
        roomlog = RoomLog(store, history_events=settings.history_events)
        execlog = ExecLog(
            store,
            head_bytes=settings.exec_head_bytes,
            tail_bytes=settings.exec_tail_bytes,
            kept_s=settings.exec_kept_s,
        )
        self.hub = Hub(store, roomlog, execlog, tasks)
        self.manager = self.hub.manager = Manager(
            _manager_config(settings, folder), on_change=self.hub.sandbox_changed
        )
        config = _exec_config(settings, folder.server_id())
        solo = SoloExecs(
            manager=self.manager,
            store=store,
            execlog=execlog,
            log=SoloLog(store, config.server, settings.exec_kept_s),
            config=config,
            tasks=tasks,
        )
        sandboxes = self.hub.sandboxes = Sandboxes(settings, self.manager, solo, roomlog)
        self.execs = self.hub.execs = Execs(
            roomlog=roomlog,
            execlog=execlog,
            manager=self.manager,
            sandbox_of=sandboxes.spec_of_room,
            config=config,
            tasks=tasks,
        )
        self.agent = self.hub.agent = make_agent(
            settings,
            models,
            hub=self.hub,
            roomlog=roomlog,
            server=folder.server_id(),
            tasks=tasks,
        )
        tokens = Tokens.of_folder(folder.path)
        limits = Limits(
            frames_per_second=settings.frames_per_second,
            exec_kept_bytes=settings.exec_head_bytes + settings.exec_tail_bytes,
        )
        self.gate = Gate(settings, Handlers(self.hub, self.agent, tokens, limits, own_version()))

    def check_settings(self) -> None:
        """Raises StartupError for a setting that only the sandboxes know to be wrong."""
        try:
            self.hub.sandboxes.spec_of_room("check")
        except InvalidSpec as error:
            raise StartupError(error.message) from None

    async def open(self) -> None:
        """Settle what an earlier life left, then listen."""
        await self.manager.open()
        await self.hub.sandboxes.solo.take_up()
        for room in await self.hub.roomlog.rooms():
            await self._take_up(room["id"])
            await self.agent.settle(room["id"])
        page = Page()
        if not page.built:
            log.warning("the page is not built; run `make setup`")
        app = application(
            self.hub,
            self.agent,
            page,
            self,
            allowed_hosts=self.settings.allowed_hosts,
            upgrade=self.gate.upgrade,
        )
        self.port = await self.gate.open(app)
        self.tasks.create_task(self._warn_of_runc())

    async def _warn_of_runc(self) -> None:
        """Say once where what isolates sandboxes is known to have holes."""
        with suppress(SandboxError):  # without an engine nothing runs; /ready tells that
            runc = await self.manager.engine.runc()
            if runc_is_old(runc):
                log.warning("the engine's runc is old", runc=runc, advice=OLD_RUNC)

    async def _take_up(self, room_id: str) -> None:
        """Go on with a room's commands that outlived this server's earlier life."""
        left = await self.execs.left_running(room_id)
        room = await self.hub.open(room_id) if left else None
        for exec_id, running in left.items():
            if room is not None:
                await self.execs.take_up(room, exec_id, running)

    async def drain(self) -> None:
        """Clients get `bye`; commands go on in their sandboxes, for the next life to take up."""
        await self.agent.close()
        await asyncio.gather(self.gate.say_bye(), self.manager.close(keep=True))
        await self.tasks.settle(_SETTLE_S)
        await self.gate.close()

    # Health

    async def parts(self) -> dict[str, dict[str, Any]]:
        """Each part's state, for /ready."""
        history: dict[str, Any] = {"ok": True}
        try:
            await self.store.call("PING")
        except Unavailable as error:
            history = {"ok": False, "message": error.message}
        engine: dict[str, Any] = {"ok": True}
        try:
            await self.manager.engine.ping()
        except SandboxError as error:
            engine = {"ok": False, "message": error.message}
        return {"history": history, "engine": engine}

    def metrics(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        rooms = self.hub.rooms
        return {
            "uptime_seconds": time.monotonic() - self.began,
            "process_cpu_seconds_total": usage.ru_utime + usage.ru_stime,
            "process_max_resident_bytes": usage.ru_maxrss * 1024,
            "sessions": len(self.gate.sessions),
            "rooms_in_memory": len(rooms),
            "execs_running": sum(len(self.execs.live(room)) for room in rooms),
        }


@asynccontextmanager
async def running(settings: Settings, models: Models | None = None) -> AsyncIterator[Server]:
    """A server that listens, until the block ends; then it is drained and stopped, bounded.

    `models` stands in for the settings' model.
    """
    async with AsyncExitStack() as stack:
        folder = DataFolder(settings.data_dir)
        stack.callback(folder.close)
        store, valkey = await _open_store(settings, stack)
        models = models or await open_models(settings, stack)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        server = Server(settings, folder, store, valkey, GuardedTasks(group), models=models)
        server.check_settings()
        core = [
            group.create_task(work)
            for work in (
                server.hub.bus.run(),
                server.hub.tell_sandboxes(),
                server.hub.forget_idle(),
                server.gate.sweep(),
                *([valkey.watch(), valkey.sync()] if valkey else []),
            )
        ]
        try:
            await server.open()
            yield server
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.drain_s):
                    await server.drain()
            for task in core:
                task.cancel()
            await server.tasks.settle(0)


async def _open_store(
    settings: Settings, stack: AsyncExitStack
) -> tuple[Store, EmbeddedValkey | None]:
    """The store at DUET_REDIS_URL, or an embedded Valkey and the store on it."""
    valkey = None
    if settings.redis_url is None:
        valkey = EmbeddedValkey(settings.data_dir / "valkey")
        stack.push_async_callback(valkey.close)
        await valkey.open()
        store = Store(valkey.url, durable_runs=valkey.runs.ids)
    else:
        try:
            check_url(settings.redis_url)
        except ValueError as error:
            raise StartupError(f"DUET_REDIS_URL cannot be used: {error}.") from None
        store = Store(settings.redis_url)
    stack.push_async_callback(store.close)
    try:
        await store.run_id()
    except DuetError as error:
        message = f"No Redis at {store.where}; start it, or unset DUET_REDIS_URL."
        raise StartupError(message) from error
    return store, valkey


def _manager_config(settings: Settings, folder: DataFolder) -> ManagerConfig:
    return ManagerConfig(
        owner=folder.server_id(),
        docker_host=settings.docker_host,
        max_running=settings.max_sandboxes,
        state_dir=folder.path / "sandboxes",
        pool=settings.sandbox_pool,
        pool_kinds=_pool_kinds(settings),
        disk_bytes=settings.sandbox_disk_bytes,
        saved_max_age_s=settings.saved_max_age_s,
        saved_max_bytes=settings.saved_max_bytes,
    )


def _pool_kinds(settings: Settings) -> tuple[Kind, ...]:
    """Spares as the settings' sandboxes are: what differs in these cannot be changed later."""
    network = None if settings.sandbox_network == "bridge" else settings.sandbox_network
    runtime, profile = settings.sandbox_runtime, settings.sandbox_profile
    return tuple(Kind(image, network, runtime, profile) for image in IMAGES)


def _exec_config(settings: Settings, server: str) -> ExecConfig:
    return ExecConfig(
        server=server,
        timeout_ms=settings.exec_timeout_ms,
        output_limit_bytes=settings.exec_output_limit_bytes,
        max_running=settings.max_running_execs,
        keep=KeepLimits(
            head_bytes=settings.exec_head_bytes,
            tail_bytes=settings.exec_tail_bytes,
            live_burst_bytes=settings.exec_live_burst_bytes,
            live_bytes_per_s=settings.exec_live_bytes_per_s,
        ),
    )


async def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. Trouble at start is one line."""
    logs.configure(settings.log_level, settings.log_format)
    _raise_file_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with running(settings) as server:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            sys.stdout.write(f"Duet is ready at http://{host}:{server.port}\n")
            sys.stdout.flush()
            await stop.wait()
            log.info("stopping")
    except StartupError as error:
        sys.stderr.write(f"duet: {error}\n")
        return 1
    except BaseExceptionGroup as group:
        startup, _ = group.split(StartupError)
        if startup is None:
            raise
        sys.stderr.write(f"duet: {startup.exceptions[0]}\n")
        return 1
    return 0


def _raise_file_limit() -> None:
    """Each session is an open file; take what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def own_version() -> str:
    try:
        return version("duet")
    except PackageNotFoundError:
        return "0.0.0"
