"""The HTTP API: rooms, pages of history, cleanup, the web page's headers, and what is refused."""

import asyncio
import re

import pytest

from tests.integration.server.harness import (
    body_of,
    head,
    raw,
    status_of,
)


async def test_rooms_are_created_read_changed_and_deleted(server, codec) -> None:
    status, made = await server.http(
        "POST", "/api/rooms", {"name": "Blue room", "description": "For tests"}
    )
    assert status == 201
    room = made["id"]
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", room)
    assert (made["name"], made["description"]) == ("Blue room", "For tests")
    assert await server.http("GET", f"/api/rooms/{room}") == (200, made)
    status, listed = await server.http("GET", "/api/rooms")
    assert status == 200
    assert room in [one["id"] for one in listed["rooms"]]
    async with server.client(codec) as ada:
        await ada.join(room)
        change = {"name": "Red room"}
        status, changed = await server.http("PATCH", f"/api/rooms/{room}", change)
        assert (status, changed["name"], changed["description"]) == (200, "Red room", "For tests")
        updated = await ada.until("room.updated")
        assert (updated["name"], updated["description"]) == ("Red room", "For tests")
        status, _ = await server.http("DELETE", f"/api/rooms/{room}")
        assert 200 <= status < 300
        left = await ada.until("left")
        assert (left["room"], left["code"], left["rejoin"]) == (room, "deleted", False)
        assert (await ada.refused("say", room=room, text="hm"))["code"] in (
            "not_joined",
            "unknown_room",
        )
        assert (await ada.refused("join", room=room))["code"] == "unknown_room"
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/messages"), ("POST", "/cleanup")):
        status, answer = await server.http(method, f"/api/rooms/{room}{path}")
        assert status == 404, (method, path, answer)
        assert answer["error"]


async def test_a_room_made_again_is_another(server, codec) -> None:
    room = await server.new_room(id="again-and-again")
    async with server.client(codec) as ada:
        first = await ada.join(room)
        await ada.ok("say", room=room, text="old")
        await server.http("DELETE", f"/api/rooms/{room}")
        await ada.until("left")
        await server.new_room(id=room)
        second = await ada.join(room, since={"epoch": first["epoch"], "offset": first["offset"]})
        assert second["epoch"] != first["epoch"]
        assert second["resumed"] is False
        assert [e for e in second["events"] if e["type"] == "message"] == []
    await server.http("DELETE", f"/api/rooms/{room}")


async def test_a_taken_id_is_409(server) -> None:
    room = await server.new_room()
    status, answer = await server.http("POST", "/api/rooms", {"id": room})
    assert status == 409
    assert answer["error"]
    made = await asyncio.gather(
        *(server.http("POST", "/api/rooms", {"id": "raced-for"}) for _ in range(5))
    )
    assert sorted(status for status, _ in made) == [201, 409, 409, 409, 409]
    await server.http("DELETE", "/api/rooms/raced-for")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"id": "../x"}, "id"),
        ({"id": 7}, "id"),
        ({"name": 7}, "name"),
        ({"name": "x" * 1000}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"description": "x" * 10_000}, "description"),
        ({"description": ["x"]}, "description"),
    ],
)
async def test_wrong_room_fields_are_named(server, body, field) -> None:
    status, answer = await server.http("POST", "/api/rooms", body)
    assert (status, answer["error"]) == (400, "invalid request")
    assert list(answer["details"]) == [field]
    assert all(isinstance(text, str) for text in answer["details"][field])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "cmd"),
        ({"cmd": ""}, "cmd"),
        ({"cmd": "   "}, "cmd"),
        ({"cmd": 7}, "cmd"),
        ({"cmd": "a\0b"}, "cmd"),
        ({"cmd": "x" * 40_000}, "cmd"),
        ({"cmd": "ls", "timeoutMs": 0}, "timeoutMs"),
        ({"cmd": "ls", "timeoutMs": "5"}, "timeoutMs"),
        ({"cmd": "ls", "timeoutMs": -1}, "timeoutMs"),
    ],
)
async def test_wrong_exec_fields_are_named(server, room, body, field) -> None:
    status, answer = await server.http("POST", f"/api/rooms/{room}/sandbox/exec", body)
    assert (status, answer["error"]) == (400, "invalid request")
    assert list(answer["details"]) == [field]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"null", b'{"cmd":NaN}', b"\xff\xfe", b"[" * 100_000]
)
async def test_invalid_json(server, room, body) -> None:
    status, answer = await server.http("POST", f"/api/rooms/{room}/sandbox/exec", data=body)
    assert (status, answer["error"]) == (400, "invalid request")
    assert answer["details"]


@pytest.mark.parametrize("query", ["before=x", "after=-1", "limit=0", "limit=201", "limit=1e9",
                                   "before=1&after=1", "before=99999999999999999999", "after="])  # fmt: skip
async def test_wrong_queries(server, room, query) -> None:
    status, answer = await server.http("GET", f"/api/rooms/{room}/messages?{query}")
    assert (status, answer["error"]) == (400, "invalid request")
    assert answer["details"]


async def test_unknown_rooms_and_routes_are_404(server) -> None:
    for method, path, body in (
        ("GET", "/api/rooms/no-such", None),
        ("PATCH", "/api/rooms/no-such", {"name": "x"}),
        ("DELETE", "/api/rooms/no-such", None),
        ("GET", "/api/rooms/no-such/messages", None),
        ("GET", "/api/rooms/no-such/execs", None),
        ("POST", "/api/rooms/no-such/sandbox/exec", {"cmd": "ls"}),
        ("POST", "/api/rooms/no-such/cleanup", None),
        ("GET", "/api/rooms/..%2fetc", None),
        ("GET", "/api/no-such", None),
        ("GET", "/no-such.js", None),
        ("GET", "/assets/..%2f..%2f..%2fpyproject.toml", None),
        ("GET", "/../../../etc/passwd", None),
    ):
        status, answer = await server.http(method, path, body)
        assert status in ({404, 400} if ".." in path else {404}), (method, path, answer)
        assert answer["error"]


async def test_wrong_methods_are_405(server, room) -> None:
    for method, path in (
        ("PUT", "/api/rooms"),
        ("DELETE", "/api/rooms"),
        ("GET", f"/api/rooms/{room}/sandbox/exec"),
        ("GET", f"/api/rooms/{room}/cleanup"),
        ("POST", f"/api/rooms/{room}/messages"),
        ("POST", "/health"),
    ):
        status, answer = await server.http(method, path)
        assert (status, bool(answer["error"])) == (405, True), (method, path)


async def test_cleanup_clears_and_says_so(server, codec) -> None:
    room = await server.new_room()
    async with server.client(codec) as ada:
        joined = await ada.join(room)
        await ada.ok("say", room=room, text="to be forgotten")
        done = await ada.exited(await ada.run(room, "echo x > kept; pwd"))
        assert done["ok"] is True
        running = await ada.run(room, "echo on; sleep 98")
        await ada.printed(running, b"on\n")
        answer = await server.http("POST", f"/api/rooms/{room}/cleanup")
        assert answer == (200, {"cleaned": True, "roomId": room})
        cleared = await ada.until("room.cleared")
        end = await ada.exited(running)
        assert (end["ok"], end["reason"]) == (False, "sandbox_terminated")
        page = await ada.ok("history", room=room, limit=200)
        assert all(e["type"] != "message" for e in page["events"])
        assert page["more"] is False
        said = await ada.ok("say", room=room, text="after")
        assert said["offset"] > cleared["offset"], "offsets go on"
        again = await ada.join(room)
        assert again["epoch"] == joined["epoch"]
        fresh = await ada.exited(await ada.run(room, "cat kept"))
        assert fresh["reason"] == "command_failed", "the workspace is a new one"


@pytest.mark.parametrize("end", ["cleanup", "delete"])
async def test_who_waits_for_a_command_over_http_is_told_when_its_room_goes(server, end) -> None:
    room = await server.new_room()
    async with server.client() as ada:
        await ada.join(room)
        body = {"cmd": "echo on; sleep 97"}
        path = f"/api/rooms/{room}"
        waiting = asyncio.create_task(server.http("POST", f"{path}/sandbox/exec", body))
        started = await ada.until("exec.started", limit_s=60)
        await ada.printed(started["exec"], b"on\n")
        if end == "cleanup":
            await server.http("POST", f"{path}/cleanup")
        else:
            await server.http("DELETE", path)
        status, answer = await asyncio.wait_for(waiting, 20)
        assert status == 500
        assert answer["error"].startswith("sandbox execution failed: ")
        assert answer["details"] == {"reason": ["sandbox_terminated"]}


async def test_health_and_readiness(server) -> None:
    assert await server.http("GET", "/health") == (200, "ok")
    status, ready = await server.http("GET", "/ready")
    assert (status, ready) == (
        200,
        {"ready": True, "parts": {"history": {"ok": True}, "engine": {"ok": True}}},
    )
    async with server.client():
        status, metrics = await server.http("GET", "/metrics")
    assert status == 200
    told = dict(line.split() for line in metrics.splitlines())
    assert int(told["duet_sessions"]) >= 1


async def test_the_page_and_its_headers(server) -> None:
    """The page needs no inline script, is not framed, and is known by its ETag."""
    answer = await raw(server, head(server, "GET /", "Connection: close"))
    assert status_of(answer) == 200
    text = answer.partition(b"\r\n\r\n")[0].decode().lower()
    headers = dict(line.split(": ", 1) for line in text.split("\r\n")[1:])
    assert headers["content-type"].startswith("text/html")
    policy = headers["content-security-policy"]
    scripts = re.search(r"script-src ([^;]*)|default-src ([^;]*)", policy)
    assert scripts
    assert "unsafe" not in scripts[0]
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    known = re.search(r"\r\netag: (.*?)\r\n", answer.decode(), re.IGNORECASE)[1]
    again = await raw(server, head(server, "GET /", f"If-None-Match: {known}", "Connection: close"))
    assert (status_of(again), body_of(again)) == (304, b"")
    html = body_of(answer).decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", html)
    assets = re.findall(r'(?:src|href)="(/?assets/[^"]+)"', html)
    assert assets, "the page is built"
    for asset in assets:
        path = "/" + asset.lstrip("/")
        answer = await raw(server, head(server, f"GET {path}", "Connection: close"))
        assert status_of(answer) == 200
        assert b"immutable" in answer.partition(b"\r\n\r\n")[0]


async def test_a_room_link_gives_the_page(server, room) -> None:
    status, page = await server.http("GET", f"/r/{room}")
    assert (status, "<html" in page) == (200, True)
