"""A whole server as a process, and a WebSocket client written from the contract alone.

The client shares no code with `protocol`, but holds every frame that it gets against the models
and the contract's rules of order; a test that uses it checks both without saying so.
"""

import asyncio
import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import aiohttp
import msgpack
import websockets

from tests.integration.server.rules import SERVER_FRAME_BYTES, Rules, data_of

DUET = (sys.executable, "-m", "server.cli")
START_S = 60.0
WAIT_S = 20.0
"""For what is a matter of milliseconds, on a machine that does other things as well."""
SANDBOX_S = 60.0
"""For the first command of a room: a container is made."""
JSON, MSGPACK = "duet.v1.json", "duet.v1.msgpack"


class Server:
    """`duet serve`, its address and its log; on a free port unless one is given."""

    def __init__(self, data_dir: Path, port: int = 0, **env: str) -> None:
        self.data_dir = data_dir
        data_dir.mkdir(parents=True, exist_ok=True)
        self.log_path = data_dir.with_suffix(f".{secrets.token_hex(3)}.log")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DUET_")}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*DUET, "serve", "--port", str(port), "--data-dir", data_dir],
                cwd=data_dir,  # no .env of the repository
                env=kept | {"DUET_LOG_LEVEL": "info"} | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.port = 0

    def wait_ready(self) -> "Server":
        """Wait for the printed URL."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if found := re.search(r"http://[\w.\[\]:-]*?:(\d+)", self.log()):
                self.port = int(found[1])
                return self
            time.sleep(0.02)
        state = self.process.poll()
        self.stop()
        raise AssertionError(f"the server did not start ({state}):\n{self.log()}")

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self, limit_s: float = 10.0) -> int:
        """SIGTERM, and the exit code; more than `limit_s` is a failure."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no exit within {limit_s} s:\n{self.log()}") from None

    def client(self, subprotocol: str = JSON, name: str = "Ada", **hello: object) -> "Wire":
        return Wire(self, subprotocol, {"name": name, **hello})

    async def http(self, method: str, path: str, body: object = None, **options):
        """Status and decoded JSON (or text)."""
        if body is not None:
            options["json"] = body
        timeout = aiohttp.ClientTimeout(total=SANDBOX_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.request(method, self.url + path, **options) as response,
        ):
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text

    async def new_room(self, **fields: object) -> str:
        status, room = await self.http("POST", "/api/rooms", fields)
        assert status == 201, room
        return room["id"]


@contextlib.contextmanager
def serving(data_dir: Path) -> Iterator[Server]:
    """A server that many tests share; at its end none of them may have upset it."""
    server = Server(data_dir).wait_ready()
    try:
        yield server
        assert "Traceback" not in server.log(), server.log()
    finally:
        try:
            server.stop()
        finally:
            remove_containers(server)


def remove_containers(server: Server) -> None:
    """Take away the sandboxes that a server of this data folder left."""
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=duet.owner={owner(server)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ids := listed.stdout.split():
        subprocess.run(["docker", "rm", "-f", "-v", *ids], capture_output=True, check=False)


def owner(server: Server) -> str:
    file = server.data_dir / "server-id"
    return file.read_text().strip() if file.exists() else "nobody"


def encode(frame: dict, subprotocol: str) -> str | bytes:
    return msgpack.packb(frame) if subprotocol == MSGPACK else json.dumps(frame)


def decode(data: str | bytes) -> dict:
    if isinstance(data, bytes):
        return msgpack.unpackb(data)
    return json.loads(data)


class Wire:
    """One session. `frames` holds all that came; `ask` waits for a reply, `until` for an event."""

    def __init__(self, server: Server, subprotocol: str | None, hello: dict | None) -> None:
        self.server = server
        self.subprotocol = subprotocol
        self._hello = hello
        self._refs = itertools.count(1)
        self._news = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self.frames: list[dict] = []
        self.rules = Rules()
        self.closed: websockets.ConnectionClosed | None = None

    async def __aenter__(self) -> Self:
        offered = None if self.subprotocol is None else [self.subprotocol]
        self.socket = await self._stack.enter_async_context(
            websockets.connect(
                self.server.url.replace("http", "ws") + "/ws",
                subprotocols=offered,
                max_size=SERVER_FRAME_BYTES,
                ping_interval=None,
                close_timeout=5,
                open_timeout=WAIT_S,
                proxy=None,
            )
        )
        self._reader = asyncio.create_task(self._read())
        self._stack.push_async_callback(self._stop)
        if self._hello is not None:
            self.welcome = await self.ask("hello", **self._hello)
            assert self.welcome["type"] == "welcome", self.welcome
        return self

    async def __aexit__(self, kind, error, trace) -> None:
        await self._stack.aclose()
        if error is None:
            assert not self.rules.broken, "\n".join(self.rules.broken)

    async def _stop(self) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _read(self) -> None:
        try:
            while True:
                data = await self.socket.recv()
                frame = decode(data)
                self.rules.hold(frame, len(data))
                self.frames.append(frame)
                self._news.set()
        except websockets.ConnectionClosed as closed:
            self.closed = closed
            self._news.set()

    @property
    def id(self) -> str:
        return self.welcome["participant"]["id"]

    async def send(self, type_: str, **fields: object) -> None:
        await self.send_frame({"type": type_, **fields})

    async def send_frame(self, frame: object) -> None:
        await self.send_raw(encode(frame, self.subprotocol or JSON))

    async def send_raw(self, data: str | bytes, **options) -> None:
        await self.socket.send(data, **options)

    async def ask(self, type_: str, **fields: object) -> dict:
        """Send with a ref and give what carries it: the reply or the error."""
        ref = f"r{next(self._refs)}"
        begin = len(self.frames)
        await self.send(type_, ref=ref, **fields)
        return await self.until(
            lambda frame: frame.get("ref") == ref and not frame["type"].startswith("exec."), begin
        )

    async def ok(self, type_: str, **fields: object) -> dict:
        reply = await self.ask(type_, **fields)
        assert reply["type"] != "error", reply
        return reply

    async def refused(self, type_: str, **fields: object) -> dict:
        reply = await self.ask(type_, **fields)
        assert reply["type"] == "error", reply
        return reply

    async def until(self, wanted, begin: int = 0, limit_s: float = WAIT_S) -> dict:
        """The first frame from `begin` on that is `wanted`: a function, or its type."""
        if isinstance(wanted, str):
            type_ = wanted
            wanted = lambda frame: frame["type"] == type_  # noqa: E731
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    self._news.clear()
                    for index in range(begin, len(self.frames)):
                        if wanted(self.frames[index]):
                            return self.frames[index]
                    begin = len(self.frames)
                    if self.closed is not None:
                        break
                    await self._news.wait()
        raise AssertionError(f"it never came ({self.closed}); last: {self.frames[-5:]}")

    async def event(self, offset: int, room: str | None = None) -> dict:
        """The persisted event at an offset (of a room), live."""
        return await self.until(
            lambda f: f.get("offset") == offset and "by" in f and room in (None, f["room"])
        )

    async def until_closed(self, limit_s: float = WAIT_S) -> int:
        """The close code."""
        async with asyncio.timeout(limit_s):
            await asyncio.wait({self._reader})
        return self.closed.rcvd.code if self.closed.rcvd else 1006

    async def settle(self) -> None:
        """Whatever the server sent before now has arrived: its answers keep their order."""
        await self.ok("ping")

    async def join(self, room: str, **fields: object) -> dict:
        return await self.ok("join", room=room, **fields)

    async def run(self, room: str, command: str, **fields: object) -> str:
        """Start a command; its exec id."""
        return (await self.ok("exec", room=room, command=command, **fields))["exec"]

    async def exited(self, exec_id: str, limit_s: float = SANDBOX_S) -> dict:
        return await self.until(
            lambda frame: frame["type"] == "exec.exited" and frame["exec"] == exec_id,
            limit_s=limit_s,
        )

    async def printed(self, exec_id: str, text: bytes, limit_s: float = SANDBOX_S) -> None:
        """Wait until the live output of an exec holds `text`."""
        await self.until(lambda _: text in self.output(exec_id), limit_s=limit_s)

    async def input(self, exec_id: str, text: str, **fields: object) -> None:
        """exec.input, again while the sandbox is still starting."""
        async with asyncio.timeout(SANDBOX_S):
            while True:
                reply = await self.ask("exec.input", exec=exec_id, data=text, **fields)
                if reply["type"] == "ack":
                    return
                assert reply["retryable"], reply
                await asyncio.sleep(reply.get("retryAfterMs", 100) / 1000)

    def output(self, exec_id: str, stream: str = "stdout") -> bytes:
        """The live bytes of an exec so far (not what exec.read answered)."""
        return b"".join(
            data_of(frame)
            for frame in self.frames
            if frame["type"] == "exec.output"
            and frame["exec"] == exec_id
            and frame["stream"] == stream
            and "ref" not in frame
        )

    def of(self, *types: str, **fields: object) -> list[dict]:
        """Frames of these types with these fields."""
        return [
            frame
            for frame in self.frames
            if frame["type"] in types
            and all(frame.get(name) == value for name, value in fields.items())
        ]

    def log(self, room: str) -> list[dict]:
        """The persisted events of a room as they came live."""
        return [
            f
            for f in self.frames
            if f.get("room") == room and f["type"] != "joined" and "offset" in f
        ]


async def raw(
    server: Server,
    data: bytes,
    *,
    limit_s: float = WAIT_S,
    eof: bool = False,
    whole: bool = False,
) -> bytes:
    """Send bytes on a new connection and give all that comes back until it is closed.

    With `whole`, only until one answer is complete.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**20)
    try:
        async with asyncio.timeout(limit_s):
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
                if eof:
                    writer.write_eof()
            got = bytearray()
            with contextlib.suppress(ConnectionError):
                while (piece := await reader.read(65536)) and not (whole and complete(got + piece)):
                    got += piece
                got += piece
            return bytes(got)
    finally:
        writer.close()


def complete(answer: bytes) -> bool:
    start, end, body = answer.partition(b"\r\n\r\n")
    size = re.search(rb"content-length: (\d+)", start.lower())
    return bool(end) and size is not None and len(body) >= int(size[1])


def head(server: Server, line: str, *headers: str, host: str | None = None) -> bytes:
    """A request head; `Host` is the server's own unless given."""
    name = host if host is not None else f"127.0.0.1:{server.port}"
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {name}", *headers, "", ""]).encode()


UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def status_of(answer: bytes) -> int:
    assert re.match(rb"HTTP/1\.[01] ", answer), answer[:200]
    return int(answer[9:12])


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]
