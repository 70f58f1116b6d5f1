"""Connections to Redis: a small pool, scripts by hash, errors as `Unavailable`.

What is stored there is the business of `roomlog` and `execlog`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha1
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio.connection import AbstractConnection, ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from protocol.errors import Unavailable
from server import logs

log = logs.get("store")

CALL_S = 5.0
"""A call that takes longer will not come back; the caller is told and may try again."""
_POOL_SIZE = 16
_TRIES = 2
"""A kept connection may have been cut while it was idle: one more try on a new one."""

Argument = str | bytes | int


class Script:
    """A Lua file of `server/lua`, the epoch's rules before it."""

    def __init__(self, name: str) -> None:
        folder = resources.files("server") / "lua"
        self.name = name
        self.source = (folder / "epoch.lua").read_text() + (folder / f"{name}.lua").read_text()
        self.hash = sha1(self.source.encode(), usedforsecurity=False).hexdigest()


class Store:
    """Calls to one Redis node, at most `_POOL_SIZE` at once; the rest wait, bounded by CALL_S."""

    def __init__(self, url: str, *, durable_runs: Callable[[], Iterable[str]] = tuple) -> None:
        self._pool = ConnectionPool.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),  # resending is ours: with the same key
            socket_timeout=None,  # a timeout around the whole call costs a tenth of one per step
            socket_connect_timeout=CALL_S,
            max_connections=_POOL_SIZE * 2,
        )
        self._slots = asyncio.Semaphore(_POOL_SIZE)
        self._idle: list[AbstractConnection] = []
        self._runs: dict[int, str] = {}
        self._durable_runs = durable_runs
        self.where = _without_password(url)

    async def call(self, *command: Argument) -> Any:
        """One command. Raises Unavailable when no answer comes, or a refusal (full, read-only)."""
        return (await self._with_connection(lambda conn: _one(conn, command)))[0]

    async def pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Several commands in one round trip, not in a transaction."""
        return await self._with_connection(lambda conn: _many(conn, commands))

    async def script(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], *, run: bool
    ) -> Any:
        """Run a script; with `run`, its arguments begin with the node's run id and durable runs.

        The run id is that of the very connection that carries the call.
        """

        async def work(conn: AbstractConnection) -> list[Any]:
            head: tuple[Argument, ...] = ()
            if run:
                head = (self._runs[id(conn)], ",".join(self._durable_runs()))
            rest = (len(keys), *keys, *head, *arguments)
            try:
                return await _one(conn, ("EVALSHA", script.hash, *rest))
            except NoScriptError:
                return await _one(conn, ("EVAL", script.source, *rest))

        return (await self._with_connection(work))[0]

    async def run_id(self) -> str:
        """The run id of the node, as told by a connection that answers now."""

        async def work(conn: AbstractConnection) -> list[Any]:
            await _one(conn, ("PING",))
            return [self._runs[id(conn)]]

        return str((await self._with_connection(work))[0])

    async def connection(self) -> AbstractConnection:
        """A connection of the caller's own, for subscriptions; the caller disconnects it."""
        conn = self._pool.connection_class(**self._pool.connection_kwargs)
        try:
            async with asyncio.timeout(CALL_S):
                await conn.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable() from error
        return conn

    async def close(self) -> None:
        for conn in self._idle:
            await conn.disconnect(nowait=True)
        self._idle.clear()

    async def _with_connection(self, work: Callable[[AbstractConnection], Any]) -> list[Any]:
        try:
            async with asyncio.timeout(CALL_S), self._slots:
                for attempt in range(_TRIES):
                    conn = await self._take(fresh=attempt > 0)
                    try:
                        reply: list[Any] = await work(conn)
                    except ResponseError:
                        self._idle.append(conn)
                        raise
                    except (RedisError, OSError):
                        await self._drop(conn)
                        if attempt == _TRIES - 1:
                            raise
                    except BaseException:
                        await self._drop(conn)
                        raise
                    else:
                        self._idle.append(conn)
                        return reply
        except ResponseError as error:
            log.warning("the history store refuses", error=str(error))
            message = f"The history store at {self.where} takes nothing now; try again later."
            raise Unavailable(message, retry_after_ms=1000) from error
        except (RedisError, OSError, TimeoutError) as error:
            raise self._unavailable() from error
        raise self._unavailable()

    async def _take(self, *, fresh: bool) -> AbstractConnection:
        if self._idle and not fresh:
            return self._idle.pop()
        conn = self._pool.connection_class(**self._pool.connection_kwargs)
        await conn.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        try:
            self._runs[id(conn)] = _run_id((await _one(conn, ("INFO", "server")))[0])
        except BaseException:
            await self._drop(conn)
            raise
        return conn

    async def _drop(self, conn: AbstractConnection) -> None:
        self._runs.pop(id(conn), None)
        await conn.disconnect(nowait=True)

    def _unavailable(self) -> Unavailable:
        message = f"The history store at {self.where} does not answer; try again in a moment."
        return Unavailable(message, retry_after_ms=1000)


async def _one(conn: AbstractConnection, command: Sequence[Argument]) -> list[Any]:
    await conn.send_packed_command(conn.pack_command(*command), check_health=False)
    return [await conn.read_response()]


async def _many(conn: AbstractConnection, commands: Sequence[Sequence[Argument]]) -> list[Any]:
    await conn.send_packed_command(conn.pack_commands(commands), check_health=False)
    replies: list[Any] = []
    refused: ResponseError | None = None
    for _ in commands:  # every reply is read, or the next caller would be given the rest
        try:
            replies.append(await conn.read_response())
        except ResponseError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return replies


def _run_id(info: bytes) -> str:
    for line in info.decode().splitlines():
        if line.startswith("run_id:"):
            return line[7:].strip()
    raise ResponseError("INFO tells no run_id")


def check_url(url: str) -> None:
    """Raises ValueError where redis-py could not use the address."""
    parse_url(url)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"
