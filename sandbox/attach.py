"""One attachment to a container's stdio: the HTTP upgrade and the engine's stream multiplexing.

aiodocker's own stream goes through several layers per chunk; this is a bare asyncio protocol that
hands on each piece as it comes. What the bytes mean is `link.py`'s.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from sandbox.errors import EngineError

HEAD_LIMIT_BYTES = 16 * 1024
# Grants and input are small and windowed; this much unsent means the engine has stopped reading.
WRITE_LIMIT_BYTES = 4 * 1024 * 1024
_MUX = struct.Struct("!BxxxI")  # stream (1 stdout, 2 stderr), length of the payload

OnData = Callable[[int, memoryview], None]
OnClosed = Callable[[], None]


class MuxParser:
    """Splits the engine's multiplexed stream; payloads are handed on in pieces, never joined."""

    def __init__(self, on_data: OnData) -> None:
        self._on_data = on_data
        self._head = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> None:
        view, at, end = memoryview(data), 0, len(data)
        while at < end:
            if self._left == 0:
                need = _MUX.size - len(self._head)
                self._head += data[at : at + need]
                at += need
                if len(self._head) < _MUX.size:
                    return
                self._stream, self._left = _MUX.unpack(self._head)
                self._head = b""
            piece = view[at : at + self._left]
            if piece:
                at += len(piece)
                self._left -= len(piece)
                self._on_data(self._stream, piece)


class Attachment(asyncio.Protocol):
    """`on_data(stream, view)` for each piece, `on_closed()` once, whoever closed."""

    def __init__(self, on_data: OnData, on_closed: OnClosed) -> None:
        self._parser = MuxParser(on_data)
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._head: bytearray | None = bytearray()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self, host: str, container: str) -> None:
        """Raises OSError, EngineError; the caller bounds the time."""
        loop = asyncio.get_running_loop()
        if host.startswith("unix://"):
            await loop.create_unix_connection(lambda: self, host.removeprefix("unix://"))
        else:
            url = urlsplit(host)
            await loop.create_connection(lambda: self, url.hostname or "", url.port or 2375)
        query = "stream=1&stdin=1&stdout=1&stderr=1"
        self.write(
            f"POST /containers/{container}/attach?{query} HTTP/1.1\r\nHost: engine\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )
        try:
            await self._ready
        except asyncio.CancelledError:
            self.close()
            raise

    def write(self, data: bytes) -> bool:
        """False when the engine no longer takes what is written; the caller gives up then."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(data)
        return transport.get_write_buffer_size() <= WRITE_LIMIT_BYTES

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not one by class

    def data_received(self, data: bytes) -> None:
        if self._head is None:
            self._parser.feed(data)
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            if len(self._head) > HEAD_LIMIT_BYTES:
                self._refuse(EngineError(500, "the engine's answer to attach has no end"))
            return
        head, rest = bytes(self._head[:end]), bytes(self._head[end + 4 :])
        status = int(head.split(b" ", 2)[1])
        if status not in (101, 200):
            self._refuse(EngineError(status, rest.decode(errors="replace").strip()))
            return
        self._head = None
        if not self._ready.done():
            self._ready.set_result(None)
        if rest:
            self._parser.feed(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # whoever asks the engine learns more
        self._transport = None
        if self._head is not None:
            self._refuse(ConnectionError("the engine closed the attachment"))
        else:
            self._on_closed()

    def _refuse(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
        self.close()
