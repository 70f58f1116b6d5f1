"""What every measurement needs: a server process, raw WebSocket clients, CPU and memory figures.

The clients are as thin as can be: what is measured is the server, not them.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60
WAIT_S = 60


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` is value to reference, or the other way for rates."""

    name: str
    value: float
    unit: str
    reference: str = ""
    reference_value: float | None = None
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""


class Process:
    """A server of ours as a child: its port, CPU and memory."""

    def __init__(self, child: subprocess.Popen[str], port: int) -> None:
        self.child = child
        self.port = port

    @property
    def pid(self) -> int:
        return self.child.pid

    def cpu_us(self, *, with_children: bool = False) -> float:
        """CPU time used so far in µs, to the nanosecond the scheduler counts."""
        pids = [self.pid, *(_children(self.pid) if with_children else [])]
        return (
            sum(
                int(task.joinpath("schedstat").read_text().split()[0])
                for pid in pids
                for task in Path(f"/proc/{pid}/task").iterdir()
            )
            / 1e3
        )

    def memory_bytes(self) -> int:
        """Anonymous resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no RssAnon")

    def http(self, method: str, path: str, body: object = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=data, method=method)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)


def _children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def duet(**settings: str):
    """`duet serve` on a free port with a data folder of its own."""
    folder = tempfile.mkdtemp(prefix="duet-bench-")
    env = {k: v for k, v in os.environ.items() if not k.startswith("DUET_")}
    env |= {"DUET_LOG_LEVEL": "warning"} | {f"DUET_{k.upper()}": v for k, v in settings.items()}
    command = [str(Path(sys.executable).with_name("duet")), "serve", "--port", "0"]
    try:
        with _started([*command, "--data-dir", folder], env, folder) as process:
            try:
                yield process
            finally:
                for sandbox in process.http("GET", "/api/rooms")["rooms"]:
                    process.http("DELETE", f"/api/rooms/{sandbox['id']}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def script(code: str):
    """A reference server: Python code that prints its URL."""
    with _started([sys.executable, "-c", code], dict(os.environ), None) as process:
        yield process


@contextmanager
def _started(command: list[str], env: dict, folder: str | None):
    child = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r":(\d+)", child.stdout.readline() if child.stdout else "")
        if found is None:
            raise RuntimeError("the server did not start")
        yield Process(child, int(found[1]))
    finally:
        child.terminate()
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def frame(fields: object) -> bytes:
    """A masked text frame; the mask is zero, so the payload stands as it is."""
    body = json.dumps(fields).encode()
    size = len(body)
    head = bytes((0x81, 0x80 | size)) if size < 126 else bytes((0x81, 0xFE)) + size.to_bytes(2)
    return head + b"\0\0\0\0" + body


class Client:
    """A raw WebSocket: sends JSON, finds what it waits for in the bytes that arrive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.buffer = bytearray()

    @classmethod
    async def open(cls, port: int, room: str | None = None) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(
            b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        client = cls(reader, writer)
        if room is not None:
            client.send(type="hello", name="bench")
            await client.until(b'"type":"welcome"')
            client.send(type="join", room=room)
            await client.until(b'"type":"joined"')
        return client

    def send(self, **fields: object) -> None:
        self.writer.write(frame(fields))

    async def until(self, needle: bytes) -> None:
        """Read until `needle` came; what stands after it stays for the next call."""
        async with asyncio.timeout(WAIT_S):
            while (at := self.buffer.find(needle)) < 0:
                del self.buffer[: max(0, len(self.buffer) - 256)]
                data = await self.reader.read(1 << 18)
                if not data:
                    raise ConnectionError("the server closed the connection")
                self.buffer += data
            del self.buffer[: at + len(needle)]

    async def word(self, end: bytes) -> str:
        """What stands before the next `end`."""
        before = len(self.buffer)
        while (at := self.buffer.find(end)) < 0:
            async with asyncio.timeout(WAIT_S):
                self.buffer += await self.reader.read(1 << 18)
            if len(self.buffer) == before:
                raise ConnectionError("the server closed the connection")
        found = self.buffer[:at].decode()
        del self.buffer[: at + len(end)]
        return found

    async def drain(self) -> None:
        """Read and forget until cancelled or closed: a viewer that keeps up."""
        while await self.reader.read(1 << 18):
            pass

    async def run(self, room: str, command: str) -> float:
        """Run a command; seconds from the frame sent to its end received."""
        began = time.perf_counter()
        self.send(type="exec", room=room, command=command)
        await self.until(b'"type":"exec.exited"')
        return time.perf_counter() - began

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def members(port: int, room: str, count: int):
    clients = [await Client.open(port, room) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def container_of(name: str) -> str:
    """The id of the container that runs a sandbox, or a room's; `name` ends its own."""
    found = subprocess.run(
        ["docker", "ps", "-q", "--filter", f"name=-{name}$"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return found[0]


def timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
