"""The subscription: one connection for all rooms, confirmed, watched and renewed.

It hands payloads on in the order they come; holes after a lost connection are the room's to fill.
"""

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from protocol.errors import Unavailable
from server import logs
from server.roomlog import channel
from server.store import CALL_S, Store

log = logs.get("bus")

_QUIET_S = 10.0
"""A connection that says nothing this long is asked; half-open ones are found this way."""
_RETRY_MIN_S, _RETRY_MAX_S = 0.1, 2.0


class Bus:
    """`run` keeps the connection; `subscribe` returns once Redis has confirmed."""

    def __init__(
        self,
        store: Store,
        *,
        on_payload: Callable[[str, bytes], None],
        on_renewed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._on_payload = on_payload
        self._on_renewed = on_renewed
        self._rooms: dict[bytes, str] = {}
        self._confirmed: dict[bytes, asyncio.Future[None]] = {}
        self._connection: AbstractConnection | None = None

    async def subscribe(self, room: str) -> None:
        """Raises Unavailable where no confirmation comes."""
        name = channel(room).encode()
        if name not in self._rooms:
            self._rooms[name] = room
            self._confirmed[name] = asyncio.get_running_loop().create_future()
            await self._send("SUBSCRIBE", name)
        try:
            async with asyncio.timeout(CALL_S):
                await asyncio.shield(self._confirmed[name])
        except TimeoutError:
            raise _unavailable() from None

    async def unsubscribe(self, room: str) -> None:
        name = channel(room).encode()
        if self._rooms.pop(name, None) is not None:
            confirmed = self._confirmed.pop(name)
            if not confirmed.done():
                confirmed.set_exception(_unavailable())
                confirmed.exception()  # whoever still waits is told; nobody need
            await self._send("UNSUBSCRIBE", name)

    async def run(self) -> None:
        """Connect, read, connect again; until cancelled."""
        retry_s = _RETRY_MIN_S
        while True:
            try:
                self._connection = await self._store.connection()
                await self._renew()
                retry_s = _RETRY_MIN_S
                await self._read(self._connection)
            except (RedisError, OSError, Unavailable) as error:
                log.warning("the subscription was lost and is renewed", error=str(error))
            finally:
                await self._disconnect()
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, _RETRY_MAX_S)

    async def _renew(self) -> None:
        """Subscribe again to everything; each room is told when it has been confirmed."""
        loop = asyncio.get_running_loop()
        for name, future in self._confirmed.items():
            if future.done():
                self._confirmed[name] = loop.create_future()
        if self._rooms:
            await self._send("SUBSCRIBE", *self._rooms)

    async def _send(self, *command: str | bytes) -> None:
        """Send where there is a connection; without one, `_renew` makes up for it."""
        connection = self._connection
        if connection is None:
            return
        try:
            packed = connection.pack_command(*command)
            await connection.send_packed_command(packed, check_health=False)
        except (RedisError, OSError) as error:
            log.debug("the subscription could not be written to", error=str(error))

    async def _read(self, connection: AbstractConnection) -> None:
        asked = False
        while True:
            reply = await connection.read_response(timeout=_QUIET_S)
            if reply is None:
                if asked:
                    raise ConnectionError("no answer")
                asked = True
                await self._send("PING")
                continue
            asked = False
            self._handle(reply)

    def _handle(self, reply: list[bytes]) -> None:
        kind, name = reply[0], reply[1]
        room = self._rooms.get(name)
        if room is None:
            return
        if kind == b"message":
            try:
                self._on_payload(room, reply[2])
            except Exception:  # one room's trouble must not end the delivery to all
                log.exception("a delivery failed", room=room)
        elif kind == b"subscribe":
            future = self._confirmed.get(name)
            if future is not None and not future.done():
                future.set_result(None)
            self._on_renewed(room)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


def _unavailable() -> Unavailable:
    message = "The history store does not answer; try again in a moment."
    return Unavailable(message, retry_after_ms=1000)
