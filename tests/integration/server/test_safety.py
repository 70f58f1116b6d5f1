"""What the port refuses: floods, halves, silence, foreign hosts and origins, odd upgrades."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.integration.server.harness import (
    JSON,
    UPGRADE,
    WAIT_S,
    body_of,
    head,
    raw,
    status_of,
)


async def test_a_large_body_is_413(server, room) -> None:
    size = 20 * 1024 * 1024
    path = f"POST /api/rooms/{room}/sandbox/exec"
    kind = "Content-Type: application/json"
    plain = head(server, path, kind, f"Content-Length: {size}") + b" " * size
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    chunked = head(server, path, kind, "Transfer-Encoding: chunked") + piece * 320 + b"0\r\n\r\n"
    for data in (plain, chunked):
        answer = await raw(server, data, whole=True)
        assert status_of(answer) == 413
        assert json.loads(body_of(answer))["error"]
    assert (await server.http("GET", "/health"))[0] == 200


async def test_a_header_flood_is_refused(server) -> None:
    many = head(server, "GET /health", *(f"X-{n}: {n}" for n in range(100_000)))
    long = head(server, "GET /health", "X: " + "x" * 5_000_000)
    line = head(server, "GET /" + "x" * 5_000_000)
    endless = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 100_000
    upgrade = head(server, "GET /ws", *UPGRADE, *(f"X-{n}: {n}" for n in range(100_000)))
    for data in (many, long, line, endless, upgrade):
        answer = await raw(server, data)
        assert answer == b"" or status_of(answer) in (400, 414, 431)
    assert (await server.http("GET", "/health"))[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n: \r\n\r\n",
        b"POST /api/rooms HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/rooms HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_not_http(server, data) -> None:
    answer = await raw(server, data)
    assert answer == b"" or status_of(answer) in (400, 403, 426, 505)
    if answer and status_of(answer) == 400:
        assert list(json.loads(body_of(answer))) == ["error"]
        assert b"\r\nserver: duet\r\n" in answer.lower()
    assert (await server.http("GET", "/health"))[0] == 200


async def test_half_a_request_and_silence_is_closed_in_ten_seconds(server, room) -> None:
    path = f"POST /api/rooms/{room}/sandbox/exec"
    whole = head(server, path, "Content-Type: application/json", "Content-Length: 100")
    began = asyncio.get_running_loop().time()
    halves = {
        "nothing": b"",
        "half a head": b"GET /health HTTP/1.1\r\nHost: 127",
        "half a handshake": head(server, "GET /ws", *UPGRADE)[:-2],
        "half a body": whole + b'{"cmd": "l',
        "no body": whole,
        "half a second head": head(server, "GET /health") + b"GET /health HTTP/1.1\r\nHo",
    }
    took = {}

    async def try_half(name, data):
        answer = await raw(server, data, limit_s=WAIT_S)
        took[name] = asyncio.get_running_loop().time() - began
        return answer

    answers = await asyncio.gather(*(try_half(*item) for item in halves.items()))
    assert max(took.values()) < 13, took
    assert all(a == b"" or status_of(a) in (200, 400, 408) for a in answers)


async def test_a_slow_trickle_of_a_head_is_closed_too(server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    began = asyncio.get_running_loop().time()

    async def trickle():
        while True:
            writer.write(b"X")
            await asyncio.sleep(0.5)  # the sender's own pace, not a wait for something

    feeding = asyncio.create_task(trickle())
    try:
        async with asyncio.timeout(WAIT_S):
            assert status_or_nothing(await reader.read())
    except ConnectionError:
        pass
    finally:
        feeding.cancel()
        writer.close()
    assert asyncio.get_running_loop().time() - began < 13


def status_or_nothing(answer: bytes) -> bool:
    return answer == b"" or status_of(answer) == 408


async def test_a_client_that_leaves_mid_body_is_no_error(server, room) -> None:
    path = f"POST /api/rooms/{room}/sandbox/exec"
    data = head(server, path, "Content-Length: 100") + b'{"cmd'
    await asyncio.gather(*(raw(server, data, eof=True) for _ in range(20)))
    assert "Traceback" not in server.log()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "a b", "[::2]:80"]
)
async def test_a_foreign_host_is_403(server, host) -> None:
    for line, headers in (
        ("GET /", ()),
        ("GET /health", ()),
        ("GET /api/rooms", ()),
        ("GET /ws", UPGRADE),
    ):
        answer = await raw(
            server,
            head(server, line, *headers, *(() if headers else ("Connection: close",)), host=host),
        )
        assert status_of(answer) == 403 or (not host and status_of(answer) == 400), line


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "", "file://", "http://localhost.evil"],
)
async def test_a_foreign_origin_is_403_for_what_writes(server, room, origin) -> None:
    own = f"Origin: {origin}"
    upgrade = await raw(server, head(server, "GET /ws", *UPGRADE, own))
    assert status_of(upgrade) == 403
    for line, body in (
        ("POST /api/rooms", b"{}"),
        (f"POST /api/rooms/{room}/sandbox/exec", b'{"cmd":"ls"}'),
        (f"POST /api/rooms/{room}/cleanup", b""),
        (f"PATCH /api/rooms/{room}", b'{"name":"x"}'),
        (f"DELETE /api/rooms/{room}", b""),
    ):
        size = f"Content-Length: {len(body)}"
        answer = await raw(server, head(server, line, own, size, "Connection: close") + body)
        assert status_of(answer) == 403, line
        assert json.loads(body_of(answer))["error"]
    assert (await server.http("GET", f"/api/rooms/{room}"))[0] == 200


async def test_ones_own_origin_and_loopback_names_are_fine(server) -> None:
    for name in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", f"[::1]:{server.port}"):
        data = head(
            server,
            "POST /api/rooms",
            f"Origin: http://{name}",
            "Content-Length: 2",
            "Connection: close",
            host=name,
        )
        assert status_of(await raw(server, data + b"{}")) == 201


async def test_two_hosts_or_origins_are_as_good_as_none(server) -> None:
    own, evil = f"127.0.0.1:{server.port}", "evil.example"
    bodies = ("Content-Length: 2", "Connection: close")
    for line, headers, body in (
        ("GET /ws", UPGRADE, b""),
        ("POST /api/rooms", bodies, b"{}"),
    ):
        for first, second in ((own, evil), (evil, own)):
            twice = head(server, line, f"Host: {second}", *headers, host=first)
            assert status_of(await raw(server, twice + body)) in (400, 403), (line, first)
            origins = (f"Origin: http://{first}", f"Origin: http://{second}")
            twice = head(server, line, *origins, *headers)
            assert status_of(await raw(server, twice + body)) in (400, 403), (line, first)


async def test_other_sites_may_not_read_answers(server, room) -> None:
    """No CORS headers, on no route and for no method, also where it is asked for them."""
    wanted = (
        "Origin: http://evil.example",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: content-type",
        "Connection: close",
    )
    for path in ("/", "/health", "/api/rooms", f"/api/rooms/{room}/messages", "/no-such"):
        for method in ("GET", "HEAD", "OPTIONS"):
            answer = await raw(server, head(server, f"{method} {path}", *wanted))
            assert b"access-control" not in answer.lower(), (method, path)
            if method == "OPTIONS":
                assert status_of(answer) in (404, 405)


async def test_it_listens_on_loopback_alone_unless_told(server, start) -> None:
    def listening(port):
        tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
        rows = [row.split() for table in tables for row in table.splitlines()[1:]]
        found = [row[1].split(":") for row in rows if row[3] == "0A"]
        return {address for address, at in found if int(at, 16) == port}

    assert listening(server.port) == {"0100007F"}
    told = start(DUET_HOST="0.0.0.0")
    assert listening(told.port) == {"00000000"}


async def test_it_runs_on_uvloop(server) -> None:
    assert "/uvloop/loop." in Path(f"/proc/{server.process.pid}/maps").read_text()


async def test_allowed_hosts(start) -> None:
    server = start(DUET_ALLOWED_HOSTS="duet.example,other.example")
    for host, status in (("duet.example", 200), ("OTHER.example:443", 200), ("evil.example", 403)):
        answer = await raw(server, head(server, "GET /health", "Connection: close", host=host))
        assert status_of(answer) == status, host
    upgrade = head(server, "GET /ws", *UPGRADE, "Origin: https://duet.example", host="duet.example")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(upgrade)
    assert b" 101 " in await reader.readline()
    writer.close()


async def test_subprotocols(server) -> None:
    async def answer(*headers):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head(server, "GET /ws", *UPGRADE, *headers))
        got = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        writer.close()
        return status_of(got), got.decode().lower()

    status, text = await answer()
    assert (status, "sec-websocket-protocol" in text) == (101, False)
    offered = "Sec-WebSocket-Protocol: "
    for one in ("duet.v1.json", "duet.v1.msgpack"):
        status, text = await answer(f"{offered}other, {one}")
        assert status == 101
        assert f"sec-websocket-protocol: {one}\r\n" in text
    assert (await answer(f"{offered}other"))[0] == 400
    assert (await answer(f"{offered}duet.v2.json, graphql-ws"))[0] == 400


async def test_no_subprotocol_speaks_json(server, room) -> None:
    client = server.client(JSON, "Plain")
    client.subprotocol = None
    async with client:
        await client.join(room)
        await client.ok("say", room=room, text="hi")


async def test_the_upgrade_may_come_on_a_used_connection(server) -> None:
    """As from a proxy that keeps connections."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(WAIT_S):
        writer.write(head(server, "GET /health"))
        assert b" 200 " in await reader.readline()
        rest = await reader.readuntil(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", rest.lower())[1])
        await reader.readexactly(size)
        writer.write(head(server, "GET /ws", *UPGRADE))
        assert b" 101 " in await reader.readline()
        await reader.readuntil(b"\r\n\r\n")
        frame = b'{"type":"hello","name":"Ada","ref":"1"}'
        writer.write(bytes((0x81, 0x80 | len(frame))) + b"\0\0\0\0" + frame)
        kind, size = await reader.readexactly(2)
        assert kind == 0x81
        size = int.from_bytes(await reader.readexactly(2), "big") if size == 126 else size
        welcome = json.loads(await reader.readexactly(size))
        assert (welcome["type"], welcome["ref"]) == ("welcome", "1")
    writer.close()


async def test_ws_without_an_upgrade_is_426(server) -> None:
    for line in ("GET /ws", "GET /ws?x=1"):
        answer = await raw(server, head(server, line, "Connection: close"))
        assert status_of(answer) == 426
