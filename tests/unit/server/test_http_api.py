"""The HTTP API's own parts: queries, bodies, errors and results in the contract's form."""

import asyncio
import json
from unittest import mock

import pytest
from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from protocol.errors import Invalid, RateLimited, TooLarge, Unavailable, UnknownRoom, every_error
from server import http_api
from server.http_api import BODY_BYTES, ExecRequest, NewRoom
from tests.unit.server.virtual import virtual


def query(text):
    return http_api._query(make_mocked_request("GET", f"/api/rooms/blue/messages?{text}"))


class Body:
    """A request body, in the pieces it came in."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    async def readany(self):
        return self.pieces.pop(0) if self.pieces else b""


def posted(*pieces, **headers):
    return make_mocked_request("POST", "/", headers=headers, payload=Body(*pieces))


def body_of(response):
    return json.loads(response.body)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", (None, None, 50)),
        ("before=7", (7, None, 50)),
        ("after=0&limit=200", (None, 0, 200)),
        ("limit=1&other=x", (None, None, 1)),
        ("before=0", (0, None, 50)),
    ],
)
def test_a_page_is_asked_for_by_offset(text, fields) -> None:
    found = query(text)
    assert (found.before, found.after, found.limit) == fields


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("before=-1", "before"),
        ("before=x", "before"),
        ("before=", "before"),
        ("before=1.5", "before"),
        ("before=1_000", "before"),
        ("before=%2B1", "before"),
        ("after=99999999999999999999", "after"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("before=1&after=1", "before"),
    ],
)
def test_a_bad_query_names_its_field(text, field) -> None:
    with pytest.raises(Invalid) as refused:
        query(text)
    assert list(refused.value.details) == [field]


async def test_a_body_may_come_in_pieces() -> None:
    wanted = await http_api._body(posted(b'{"cmd": "l', b's", "timeoutMs": 5}'), ExecRequest)
    assert (wanted.cmd, wanted.timeout_ms) == ("ls", 5)
    assert (await http_api._body(posted(), NewRoom)).id is None


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "cmd"),
        (b"{", "body"),
        (b"[]", "body"),
        (b'"ls"', "body"),
        (b"null", "body"),
        (b"\xff\xfe\xfd", "body"),
        (b"[" * 100_000, "body"),
        (b"{}", "cmd"),
        (b'{"cmd": ""}', "cmd"),
        (b'{"cmd": " \\t\\n"}', "cmd"),
        (b'{"cmd": "a\\u0000b"}', "cmd"),
        (b'{"cmd": "\\ud800"}', "cmd"),
        (b'{"cmd": 7}', "cmd"),
        (b'{"cmd": "ls", "timeoutMs": 0}', "timeoutMs"),
        (b'{"cmd": "ls", "timeoutMs": "5"}', "timeoutMs"),
        (b'{"cmd": "ls", "timeoutMs": true}', "timeoutMs"),
        (b'{"cmd": "ls", "timeoutMs": NaN}', "timeoutMs"),
    ],
)
async def test_a_bad_body_names_its_field(data, field) -> None:
    with pytest.raises(Invalid) as refused:
        await http_api._body(posted(data), ExecRequest)
    assert list(refused.value.details) == [field]
    response = http_api._error(refused.value)
    assert response.status == 400
    assert body_of(response)["error"] == "invalid request"
    assert all(isinstance(messages, list) for messages in body_of(response)["details"].values())


async def test_a_wrong_room_id_is_told_in_words() -> None:
    with pytest.raises(Invalid) as refused:
        await http_api._body(posted(b'{"id": "Blue room"}'), NewRoom)
    (told,) = refused.value.details["id"]
    assert "a room id is 1 to 64 of a-z, 0-9, _ and -" in told


async def test_a_large_body_is_refused_by_its_length_and_by_what_comes() -> None:
    lying = {"Content-Length": str(BODY_BYTES + 1)}
    for request in (
        posted(**lying),
        posted(*([b"x" * 65536] * (BODY_BYTES // 65536 + 1))),
    ):
        with pytest.raises(TooLarge) as refused:
            await http_api._body(request, ExecRequest)
        assert http_api._error(refused.value).status == 413


def test_a_silent_body_ends_its_connection() -> None:
    async def main():
        request = posted()
        request._payload = StreamReader(request._protocol, 2**16, loop=asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            await http_api._body(request, ExecRequest)
        request.transport.abort.assert_called_once_with()

    virtual(main())


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.code)
def test_every_error_has_its_status_and_words(kind) -> None:
    response = http_api._error(kind("What to do."))
    assert response.status == kind.http_status
    text = "invalid request" if response.status == 400 else "What to do."
    assert body_of(response) == {"error": text}
    assert ("Retry-After" in response.headers) == (response.status in (429, 503))


@pytest.mark.parametrize(
    ("retry_after_ms", "seconds"), [(None, "1"), (0, "1"), (900, "1"), (2500, "2"), (60_000, "60")]
)
def test_who_may_try_again_is_told_when(retry_after_ms, seconds) -> None:
    for kind in (Unavailable, RateLimited):
        response = http_api._error(kind("later", retry_after_ms=retry_after_ms))
        assert response.headers["Retry-After"] == seconds


def test_a_result_has_all_that_is_kept() -> None:
    fields = {"ok": True, "exitCode": 0, "stdout": "a", "durationMs": 5, "truncated": {}}
    run = mock.Mock()
    run.texts.return_value = {"stdout": "abc", "stderr": ""}, {"stdout": True, "stderr": False}
    answer = http_api._whole(fields, run)
    assert answer["stdout"] == "abc"
    assert answer["truncated"] == {"stdout": True, "stderr": False}
    assert answer["exitCode"] == 0


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("command_failed", 200),
        ("timeout", 200),
        ("cancelled", 200),
        ("out_of_memory", 200),
        ("output_limit", 200),
        ("sandbox_terminated", 500),
        ("internal_error", 500),
        ("sandbox_unavailable", 503),
    ],
)
def test_a_failed_command_is_a_result_and_a_failed_sandbox_an_error(reason, status) -> None:
    fields = {"ok": False, "reason": reason, "message": "why", "retryable": False}
    response = http_api._failure(fields)
    if status == 200:
        assert response is None
        return
    assert response.status == status
    said = "sandbox execution failed: why" if status == 500 else "why"
    assert body_of(response) == {"error": said, "details": {"reason": [reason]}}


async def through_guard(handler, method="GET", host="localhost", **headers):
    guard = http_api._guard(())
    request = make_mocked_request(method, "/", headers={"Host": host, **headers})
    return await guard(request, handler)


async def test_the_guard_answers_errors_and_adds_the_safe_headers() -> None:
    async def fail(error):
        raise error

    for error, status in [
        (UnknownRoom("There is none."), 404),
        (web.HTTPMethodNotAllowed("PUT", ["GET"]), 405),
        (TimeoutError(), 408),
        (ConnectionResetError(), 408),
        (RuntimeError("secret"), 500),
    ]:
        response = await through_guard(lambda _, error=error: fail(error))
        assert response.status == status
        assert "secret" not in body_of(response)["error"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in response.headers
        assert ("Allow" in response.headers) == (status == 405)


async def test_the_guard_lets_nobody_else_in() -> None:
    asked = []

    async def handler(request):
        asked.append(request)
        return web.Response()

    refused = [
        await through_guard(handler, host="evil.example"),
        await through_guard(handler, method="POST", Origin="http://evil.example"),
        await through_guard(handler, method="DELETE", Origin="null"),
        await through_guard(handler, method="PATCH", Origin="http://localhost:1"),
    ]
    assert [response.status for response in refused] == [403] * 4
    assert asked == []
    served = [
        await through_guard(handler, Origin="http://evil.example"),
        await through_guard(handler, method="POST"),
        await through_guard(handler, method="POST", Origin="http://localhost"),
    ]
    assert [response.status for response in served] == [200] * 3
