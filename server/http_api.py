"""The HTTP API of PROTOCOL.md: routes, bodies in, errors out. What they do is the hub's."""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, Protocol, TypeVar

from aiohttp import web
from pydantic import Field, ValidationError
from pydantic.types import StringConstraints

from protocol import commands, names
from protocol.errors import DuetError, Invalid, TooLarge, Unavailable
from protocol.model import (
    CommandText,
    DisplayName,
    Id,
    MessageText,
    Model,
    RoomId,
    Str,
)
from server import execlists, logs
from server.agent import reply
from server.agent.turns import Agent
from server.frontdoor import IDLE_S
from server.hub import Hub
from server.records import sandbox_name
from server.run import Run
from server.safety import refusal_of
from server.static import SECURITY_HEADERS, Page

log = logs.get("http")

BODY_BYTES = 1024 * 1024
"""Largest request body: well beyond the largest command, far below what would hurt."""
HTTP_PARTICIPANT = reply.CALLER
_BAD_REQUEST = 400
_DIGITS = 16  # any offset has fewer
_PURGE = {"": False, "false": False, "0": False, "true": True, "1": True}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NewRoom(Model):
    id: RoomId | None = None
    name: DisplayName | None = None
    description: Annotated[Str, StringConstraints(max_length=names.DESCRIPTION_CHARS)] = ""


class RoomChange(Model):
    name: DisplayName | None = None
    description: Annotated[Str, StringConstraints(max_length=names.DESCRIPTION_CHARS)] | None = None
    agent: "AgentChange | None" = None


class AgentChange(Model):
    approval: Literal["auto", "ask", "off"]


class MessageRequest(Model):
    text: MessageText
    user_id: DisplayName | None = None


class ExecRequest(Model):
    cmd: CommandText
    timeout_ms: Annotated[int, Field(ge=1, le=names.TIMEOUT_MAX_MS)] | None = None


class SandboxExec(Model):
    command: CommandText
    timeout_ms: Annotated[int, Field(ge=1, le=names.TIMEOUT_MAX_MS)] | None = None


class PageQuery(Model):
    before: Annotated[int, Field(ge=0)] | None = None
    after: Annotated[int, Field(ge=0)] | None = None
    limit: Annotated[int, Field(ge=1, le=names.HISTORY_PAGE_MAX)] = names.HISTORY_PAGE_DEFAULT


class SandboxQuery(Model):
    after: Id | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


class Health(Protocol):
    """What /ready and /metrics tell."""

    async def parts(self) -> dict[str, dict[str, Any]]: ...
    def metrics(self) -> dict[str, float]: ...


M = TypeVar("M", bound=Model)


def application(
    hub: Hub,
    agent: Agent,
    page: Page,
    health: Health,
    *,
    allowed_hosts: tuple[str, ...],
    upgrade: Handler,
) -> web.Application:
    """The aiohttp application; `upgrade` answers /ws on connections that were HTTP before."""
    api = _Api(hub, agent, health)
    app = web.Application(middlewares=[_guard(allowed_hosts)], client_max_size=BODY_BYTES)
    app.add_routes(
        [
            web.get("/", page.index),
            web.get("/r/{room}", page.index),
            web.get("/ws", upgrade),
            web.get("/health", api.health),
            web.get("/ready", api.ready),
            web.get("/metrics", api.metrics),
            web.get("/api/rooms", api.rooms),
            web.post("/api/rooms", api.create_room),
            web.get("/api/rooms/{room}", api.room),
            web.patch("/api/rooms/{room}", api.change_room),
            web.delete("/api/rooms/{room}", api.delete_room),
            web.get("/api/rooms/{room}/messages", api.messages),
            web.get("/api/rooms/{room}/execs", api.execs),
            web.post("/api/rooms/{room}/message", api.message),
            web.post("/api/rooms/{room}/sandbox/exec", api.sandbox_exec),
            web.post("/api/rooms/{room}/cleanup", api.cleanup),
            web.get("/api/sandboxes", api.sandboxes),
            web.post("/api/sandboxes", api.start_sandbox),
            web.get("/api/sandboxes/{sandbox}/execs", api.sandbox_execs),
            web.post("/api/sandboxes/{sandbox}/exec", api.execute),
            web.delete("/api/sandboxes/{sandbox}", api.end_sandbox),
            web.get("/assets/{file:.+}", page.file),
        ]
    )
    return app


class _Api:
    def __init__(self, hub: Hub, agent: Agent, health: Health) -> None:
        self._hub = hub
        self._agent = agent
        self._health = health

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(self, _request: web.Request) -> web.Response:
        parts = await self._health.parts()
        ready = all(part["ok"] for part in parts.values())
        return web.json_response({"ready": ready, "parts": parts}, status=200 if ready else 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        lines = [f"duet_{name} {value:g}" for name, value in self._health.metrics().items()]
        return web.Response(text="\n".join([*lines, ""]))

    async def rooms(self, _request: web.Request) -> web.Response:
        return web.json_response({"rooms": await self._hub.list_rooms()})

    async def create_room(self, request: web.Request) -> web.Response:
        new = await _body(request, NewRoom)
        room = await self._hub.create(new.id, new.name or "", new.description, HTTP_PARTICIPANT)
        return web.json_response(room, status=201)

    async def room(self, request: web.Request) -> web.Response:
        return web.json_response(await self._hub.describe(_room(request)))

    async def change_room(self, request: web.Request) -> web.Response:
        change = await _body(request, RoomChange)
        room = await self._hub.change(
            _room(request),
            change.name,
            change.description,
            HTTP_PARTICIPANT,
            approval=None if change.agent is None else change.agent.approval,
        )
        return web.json_response(room)

    async def delete_room(self, request: web.Request) -> web.Response:
        room_id = _room(request)
        errors = await self._hub.delete(room_id)
        answer: dict[str, Any] = {"deleted": True, "roomId": room_id}
        return web.json_response(answer | ({"errors": errors} if errors else {}))

    async def messages(self, request: web.Request) -> web.Response:
        query = _query(request)
        page = await self._hub.page(
            _room(request), before=query.before, after=query.after, limit=query.limit
        )
        return web.json_response(page)

    async def execs(self, request: web.Request) -> web.Response:
        return web.json_response(await execlists.of_room(self._hub, _room(request)))

    async def message(self, request: web.Request) -> web.Response:
        said = await _body(request, MessageRequest)
        by = reply.person(said.user_id, self._agent.participant)
        answer = await reply.message(self._hub, self._agent, _room(request), by, said.text)
        return web.json_response(answer)

    async def sandbox_exec(self, request: web.Request) -> web.Response:
        wanted = await _body(request, ExecRequest)
        room = await self._hub.open(_room(request))
        command = commands.Exec(room=room.id, command=wanted.cmd, timeout_ms=wanted.timeout_ms)
        _, run = await self._hub.execs.start(room, HTTP_PARTICIPANT, command)
        if run is None:
            raise Unavailable("The command was started and its result is not known here.")
        fields = await run.done
        body = {"result": _whole(fields, run), "sandboxName": sandbox_name(room.id)}
        return _failure(fields) or web.json_response(body)

    async def cleanup(self, request: web.Request) -> web.Response:
        room_id = _room(request)
        errors = await self._hub.clean(room_id, HTTP_PARTICIPANT)
        if errors:
            return web.json_response({"cleaned": True, "errors": errors}, status=207)
        return web.json_response({"cleaned": True, "roomId": room_id})

    async def sandboxes(self, request: web.Request) -> web.Response:
        after = request.query.get("after")
        wanted = _checked(SandboxQuery, {"after": after, **_numbers(request, "limit")})
        found, more = self._hub.sandboxes.list(after=wanted.after, limit=wanted.limit)
        return web.json_response({"sandboxes": found} | ({"more": True} if more else {}))

    async def start_sandbox(self, request: web.Request) -> web.Response:
        wanted = await _body(request, commands.SandboxStart)
        return web.json_response(await self._hub.sandboxes.start(wanted, None))

    async def execute(self, request: web.Request) -> web.Response:
        wanted = await _body(request, SandboxExec)
        name = request.match_info["sandbox"]
        command = commands.Exec(sandbox=name, command=wanted.command, timeout_ms=wanted.timeout_ms)
        found = await self._hub.sandboxes.execute(name, HTTP_PARTICIPANT, command, None)
        if isinstance(found, str):
            raise Unavailable("The command was started and its result is not known here.")
        fields = await found.done
        return _failure(fields) or web.json_response(_whole(fields, found))

    async def sandbox_execs(self, request: web.Request) -> web.Response:
        name = request.match_info["sandbox"]
        return web.json_response(await execlists.of_sandbox(self._hub.sandboxes, name))

    async def end_sandbox(self, request: web.Request) -> web.Response:
        name = request.match_info["sandbox"]
        purge = _PURGE.get(request.query.get("purge", "").lower())
        if purge is None:
            message = "purge is true or false."
            raise Invalid(message, details={"purge": ["must be true or false"]})
        if purge:
            await self._hub.sandboxes.destroy(name, None)
            return web.json_response({"destroyed": True, "id": name})
        return web.json_response(await self._hub.sandboxes.kill(name, None))


def _whole(fields: dict[str, Any], run: Run) -> dict[str, Any]:
    """A result with all that is kept of its output."""
    texts, truncated = run.texts()
    return {**fields, **texts, "truncated": truncated}


def _failure(fields: dict[str, Any]) -> web.Response | None:
    """The answer for an end that is no result of the command's own; None for one that is."""
    reason = fields.get("reason")
    details = {"details": {"reason": [reason]}}
    if reason in ("sandbox_terminated", "internal_error"):
        text = f"sandbox execution failed: {fields['message']}"
        return web.json_response({"error": text, **details}, status=500)
    if reason == "sandbox_unavailable":
        return web.json_response({"error": fields["message"], **details}, status=503)
    return None


# Bodies and errors


def _room(request: web.Request) -> str:
    return request.match_info["room"]


async def _body(request: web.Request, model: type[M]) -> M:
    """The request's JSON as a model. Raises Invalid, TooLarge; a silent body ends in 10 s."""
    if (request.content_length or 0) > BODY_BYTES:
        raise TooLarge(f"A request body has at most {BODY_BYTES} bytes.")
    data = bytearray()
    while chunk := await _chunk(request):
        data += chunk
        if len(data) > BODY_BYTES:
            raise TooLarge(f"A request body has at most {BODY_BYTES} bytes.")
    try:
        decoded = json.loads(bytes(data)) if data else {}
    except (ValueError, RecursionError):
        raise Invalid("Not JSON.", details={"body": ["must be JSON"]}) from None
    if not isinstance(decoded, dict):
        raise Invalid("Not an object.", details={"body": ["must be a JSON object"]})
    return _checked(model, decoded)


async def _chunk(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(IDLE_S):
            return await request.content.readany()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise


def _checked(model: type[M], fields: dict[str, Any]) -> M:
    try:
        return model.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as error:
        raise commands.invalid(error) from None


def _numbers(request: web.Request, *wanted: str) -> dict[str, Any]:
    found = {name: request.query[name] for name in wanted if name in request.query}
    return {n: int(t) if t.isdecimal() and len(t) < _DIGITS else t for n, t in found.items()}


def _query(request: web.Request) -> PageQuery:
    fields = _numbers(request, "before", "after", "limit")
    if "before" in fields and "after" in fields:
        message = "give before or after, not both"
        raise Invalid(message, details={"before": [message]})
    return _checked(PageQuery, fields)


def _guard(allowed_hosts: tuple[str, ...]) -> Any:
    """The one boundary of HTTP: who may ask, and errors as the contract says them."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = refusal_of(
            request.headers.getall("Host", ()),
            request.headers.getall("Origin", ()),
            writing=request.method not in _READING,
            allowed=allowed_hosts,
        )
        if refused is not None:
            response: web.StreamResponse = web.json_response({"error": refused}, status=403)
        else:
            response = await _answered(request, handler)
        if not response.prepared:
            response.headers.update(SECURITY_HEADERS)
            response.headers["Server"] = "duet"
        return response

    return guard


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    began = time.monotonic()
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _plain_error(error)
    except DuetError as error:
        return _error(error)
    except (ConnectionError, TimeoutError):
        return web.json_response({"error": "the request did not arrive whole"}, status=408)
    except Exception:
        incident = secrets.token_hex(4)
        facts = {"path": request.path[:200], "elapsed_ms": int((time.monotonic() - began) * 1000)}
        log.exception("a request failed", incident=incident, **facts)
        text = f"Something went wrong on the server; incident {incident}."
        return web.json_response({"error": text}, status=500)


def _plain_error(error: web.HTTPException) -> web.Response:
    """An error of aiohttp's own, such as 404 or 405, in the API's form."""
    if error.status < 400:  # noqa: PLR2004 - a redirect is no error
        raise error
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    return web.json_response({"error": error.reason.lower()}, status=error.status, headers=headers)


def _error(error: DuetError) -> web.Response:
    status = 400 if isinstance(error, TooLarge) and error.details else error.http_status
    body: dict[str, Any] = {"error": "invalid request" if status == _BAD_REQUEST else error.message}
    if error.details:
        body["details"] = dict(error.details)
    wait_s = max(1, (error.retry_after_ms or 1000) // 1000)
    headers = {"Retry-After": str(wait_s)} if error.http_status in (429, 503) else {}
    return web.json_response(body, status=status, headers=headers)
