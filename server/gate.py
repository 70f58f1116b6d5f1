"""Listening: WebSockets and HTTP behind the front door, sessions made, counted and swept."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial

from aiohttp import web
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import NegotiationError
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from protocol import names
from protocol.codec import codec_for
from protocol.names import CloseCode
from server import logs
from server.connection import Connection
from server.errors import StartupError
from server.flusher import Flusher
from server.frontdoor import IDLE_S, FrontDoor, HttpProtocol
from server.handlers import Handlers
from server.safety import refusal_of
from server.session import Session
from server.settings import Settings

log = logs.get("gate")

_SWEEP_S = 5.0
_PING_AFTER = 0.4
"""A session is asked for a sign of life at this share of the silence it is allowed."""
_WRITE_HIGH_BYTES = 64 * 1024
_CLOSE_S = 3.0
_BACKLOG = 1024


class Gate:
    """The listening server. `open`, then `sweep` while serving, then `close`."""

    def __init__(self, settings: Settings, handlers: Handlers) -> None:
        self.sessions: set[Session] = set()
        self._settings = settings
        self._handlers = handlers
        self._flusher = Flusher()
        self._server: Server | None = None
        self._runner: web.AppRunner | None = None

    async def open(self, app: web.Application) -> int:
        """Listen; returns the port. Raises StartupError where it is taken."""
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_S)
        await self._runner.setup()
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await serve(
                self._serve_session,
                host,
                port,
                create_connection=partial(FrontDoor, http=self._http),  # type: ignore[arg-type]  # any protocol will do
                select_subprotocol=_select_subprotocol,
                process_request=self._check,
                compression=None,  # a deflate context costs more memory than an idle session
                server_header=None,
                max_size=names.FRAME_BYTES,
                ping_interval=None,  # `sweep` asks all sessions, without a task for each
                close_timeout=_CLOSE_S,
                write_limit=_WRITE_HIGH_BYTES,
                backlog=_BACKLOG,
            )
        except OSError as error:
            message = f"Cannot listen on {host}:{port}: {error.strerror}; choose another --port."
            raise StartupError(message) from None
        return int(next(iter(self._server.sockets)).getsockname()[1])

    def _http(self) -> HttpProtocol:
        if self._runner is None or self._runner.server is None:
            raise RuntimeError("the HTTP server is not set up")
        return HttpProtocol(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_S,
            lingering_time=IDLE_S,
            auto_decompress=False,  # a packed body could be a thousand times its size
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to have none
        )

    async def upgrade(self, request: web.Request) -> web.StreamResponse:
        """/ws on a connection that was HTTP before: hand it to `websockets` after all."""
        handler = request.protocol
        if request.headers.get("Upgrade", "").lower() != "websocket" or not isinstance(
            handler, HttpProtocol
        ):
            headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
            body = {"error": "this address speaks WebSocket"}
            return web.json_response(body, status=426, headers=headers)
        lines = [f"GET {request.path_qs} HTTP/1.1".encode()]
        lines += [name + b": " + value for name, value in request.raw_headers]
        handler.transport = None  # aiohttp has no connection any more, and must not close it
        handler.connection_lost(None)
        handler.front_door.become_websocket(b"\r\n".join([*lines, b"", b""]))
        return web.Response()

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        refused = refusal_of(
            request.headers.get_all("Host"),
            request.headers.get_all("Origin"),
            writing=True,
            allowed=self._settings.allowed_hosts,
        )
        if refused is None:
            return None
        response = connection.respond(403, json.dumps({"error": refused}))
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    async def _serve_session(self, connection: ServerConnection) -> None:
        if not isinstance(connection, Connection):
            raise TypeError("the front door makes our connections")
        session = Session(
            connection,
            codec_for(connection.subprotocol),
            self._handlers,
            self._flusher,
            frames_per_second=self._settings.frames_per_second,
            outbox_bytes=(self._settings.outbox_drop_bytes, self._settings.outbox_close_bytes),
        )
        self.sessions.add(session)
        try:
            await session.run()
        finally:
            self.sessions.discard(session)

    async def sweep(self) -> None:
        """Ask silent sessions for a sign of life and close those that give none."""
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._settings.silent_s / 4))
            for session in list(self.sessions):
                idle_s = session.idle_s()
                if idle_s > self._settings.silent_s:
                    session.close(CloseCode.SILENT, "silent for too long", reconnect=True)
                elif idle_s > self._settings.silent_s * _PING_AFTER:
                    session.ping()

    async def say_bye(self) -> None:
        """Tell every session that the server stops, and wait until they are closed."""
        sessions = list(self.sessions)
        for session in sessions:
            session.close(CloseCode.RESTARTING, "the server is stopping", reconnect=True)
        await asyncio.gather(*(session.closed() for session in sessions))

    async def close(self) -> None:
        """Stop listening. aiohttp first: its idle connections would hold `wait_closed`."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._server is not None:
            await self._server.wait_closed()


def _select_subprotocol(
    _connection: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    """The first offer we speak; none offered is JSON; only unknown ones are refused with 400."""
    for subprotocol in offered:
        if subprotocol in names.SUBPROTOCOLS:
            return subprotocol
    if offered:
        raise NegotiationError("no known subprotocol was offered")
    return None
