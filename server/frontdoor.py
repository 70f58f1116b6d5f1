"""The front door: one port. Reads one request head, then hands the connection to its server.

`websockets` gets upgrades at /ws, aiohttp everything else; nothing behind knows of the other.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from websockets.server import ServerProtocol

from server.connection import Connection

HEAD_BYTES = 16 * 1024
HEAD_S = 10.0
IDLE_S = 10.0
"""A kept connection with half a head, or none, is closed after this; so are silent bodies."""
_TOO_LARGE_BODY = b'{"error": "the request head is larger than 16 KiB"}'
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)
)
_END = b"\r\n\r\n"


class HttpProtocol(RequestHandler):
    """aiohttp's protocol, which remembers its front door for an upgrade that comes later."""

    __slots__ = ("front_door",)
    front_door: "FrontDoor"

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request in the API's form; aiohttp would tell its own name and page."""
        plain = super().handle_error(request, status, exc, message)
        answer = web.json_response(
            {"error": HTTPStatus(status).phrase.lower()}, status=plain.status
        )
        answer.headers["Server"] = "duet"
        answer.force_close()
        return answer


class FrontDoor(asyncio.Protocol):
    """What `websockets.serve(create_connection=…)` makes for each connection.

    `protocol` and `server` are those of the WebSocket that this connection may become.
    """

    def __init__(
        self,
        protocol: ServerProtocol,
        server: Any,
        *,
        http: Callable[[], HttpProtocol],
        **options: Any,
    ) -> None:
        self.protocol = protocol
        self._server = server
        self._http = http
        self._options = options
        self._head = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP transports are
        self._timer = asyncio.get_running_loop().call_later(HEAD_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        self._head += data
        end = self._head.find(_END)
        if end > HEAD_BYTES or (end < 0 and len(self._head) > HEAD_BYTES):
            self._refuse()
        elif end >= 0:
            self._stop_timer()
            head, self._head = bytes(self._head), bytearray()
            if wants_websocket(head[:end]):
                self.become_websocket(head)
            else:
                self._become_http(head)

    def become_websocket(self, data: bytes) -> None:
        """Hand the connection, with all that was read of it, to `websockets`."""
        connection = Connection(self.protocol, self._server, **self._options)
        self._hand_over(connection, data)

    def _become_http(self, data: bytes) -> None:
        handler = self._http()
        handler.front_door = self
        self._hand_over(handler, data)

    def _hand_over(self, protocol: asyncio.Protocol, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def _refuse(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._transport.write(_TOO_LARGE)
            self._transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def wants_websocket(head: bytes) -> bool:
    """Whether a request head asks for an upgrade to WebSocket at /ws."""
    line, _, rest = head.partition(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or parts[0] != b"GET" or parts[1].split(b"?")[0] != b"/ws":  # noqa: PLR2004 - method, target, version
        return False
    for header in rest.split(b"\r\n"):
        name, _, value = header.partition(b":")
        if name.strip().lower() == b"upgrade" and value.strip().lower() == b"websocket":
            return True
    return False
