"""The front door reads one head, however it comes in pieces, and hands all of it on."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import frontdoor
from server.frontdoor import HEAD_BYTES, HEAD_S, FrontDoor, wants_websocket
from tests.unit.server.virtual import virtual

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PLAIN = b"POST /api/rooms HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"


class Transport:
    """What the front door does with its transport."""

    def __init__(self):
        self.written, self.closed, self.protocol = b"", False, None

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def set_protocol(self, protocol):
        self.protocol = protocol


class Taker(asyncio.Protocol):
    """A server behind the door."""

    front_door = None

    def __init__(self, *_args, **_options):
        self.transport, self.data = None, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data


class Http(Taker):
    pass


class WebSocket(Taker):
    pass


@pytest.fixture(autouse=True)
def websockets_is_a_taker(monkeypatch):
    monkeypatch.setattr(frontdoor, "Connection", WebSocket)


def knock(*chunks):
    """A door that got `chunks`; what comes after the head goes to whoever took over."""
    door = FrontDoor(None, None, http=Http)
    transport = Transport()
    door.connection_made(transport)
    for chunk in chunks:
        if not transport.closed:
            (transport.protocol or door).data_received(chunk)
    return door, transport


def timers():
    return [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]


@given(st.sampled_from([UPGRADE, PLAIN]), st.lists(st.integers(1, 60)), st.binary(max_size=50))
def test_a_head_in_any_pieces_reaches_its_server_whole(head, sizes, body) -> None:
    async def main():
        rest, chunks = head + body, []
        for size in sizes:
            chunks.append(rest[:size])
            rest = rest[size:]
        door, transport = knock(*chunks, rest)
        assert type(transport.protocol) is (WebSocket if head is UPGRADE else Http)
        assert transport.protocol.data == head + body
        assert transport.protocol.transport is transport
        assert not transport.written
        assert not transport.closed
        assert timers() == []
        if head is PLAIN:
            assert transport.protocol.front_door is door

    virtual(main())


@pytest.mark.parametrize("pieces", [1, 7, 16 * 1024])
@pytest.mark.parametrize("over", [0, 1000])
def test_a_head_beyond_the_limit_is_refused(pieces, over) -> None:
    async def main():
        data = b"GET / HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES + over)
        size = -(-len(data) // pieces)
        _, transport = knock(*(data[at : at + size] for at in range(0, len(data), size)))
        assert transport.written.startswith(b"HTTP/1.1 431 ")
        head, _, body = transport.written.partition(b"\r\n\r\n")
        assert b"Content-Length: %d" % len(body) in head
        assert transport.closed
        assert transport.protocol is None
        assert timers() == []

    virtual(main())


def test_a_long_head_that_ends_is_refused_and_the_longest_is_not() -> None:
    async def main():
        start = b"GET / HTTP/1.1\r\nX: "
        longest = start + b"x" * (HEAD_BYTES - len(start)) + b"\r\n\r\n"
        _, transport = knock(longest + b"y" * 100_000)
        assert len(transport.protocol.data) == len(longest) + 100_000
        _, transport = knock(start + b"x" * (HEAD_BYTES + 1 - len(start)) + b"\r\n\r\n")
        assert transport.written.startswith(b"HTTP/1.1 431 ")

    virtual(main())


def test_half_a_head_and_then_silence_ends_the_connection_in_time() -> None:
    async def main():
        loop = asyncio.get_running_loop()
        began, closed = loop.time(), loop.create_future()
        transport = Transport()
        transport.close = lambda: closed.set_result(loop.time() - began)
        door = FrontDoor(None, None, http=Http)
        door.connection_made(transport)
        for _ in range(4):
            door.data_received(b"GE")  # dripping does not help
            await asyncio.sleep(HEAD_S / 5)
        assert await closed == pytest.approx(HEAD_S)

    virtual(main())


def test_a_head_in_time_is_not_cut_off_later() -> None:
    async def main():
        _, transport = knock(PLAIN)
        await asyncio.sleep(2 * HEAD_S)
        assert not transport.closed

    virtual(main())


def test_a_lost_connection_leaves_no_timer() -> None:
    async def main():
        door, _ = knock(b"GET")
        assert len(timers()) == 1
        door.connection_lost(None)
        assert timers() == []

    virtual(main())


def test_a_connection_that_closes_is_handed_to_nobody() -> None:
    async def main():
        door, transport = knock(PLAIN[:10])
        transport.close()
        door.data_received(PLAIN[10:])
        assert transport.protocol is None

    virtual(main())


def test_a_later_upgrade_is_handed_over_with_what_was_read() -> None:
    async def main():
        door, transport = knock(PLAIN)
        door.become_websocket(UPGRADE)
        assert type(transport.protocol) is WebSocket
        assert transport.protocol.data == UPGRADE

    virtual(main())


@pytest.mark.parametrize(
    "head",
    [
        b"GET /ws HTTP/1.1\r\nUpgrade: websocket",
        b"GET /ws?token=x HTTP/1.1\r\nHost: x\r\nupgrade:  WebSocket ",
        b"GET /ws HTTP/1.1\r\nUPGRADE:websocket\r\nX: y",
    ],
)
def test_an_upgrade_at_ws_is_for_websockets(head) -> None:
    assert wants_websocket(head)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET /ws HTTP/1.1",
        b"GET /ws HTTP/1.1\r\nConnection: Upgrade",
        b"GET /ws HTTP/1.1\r\nUpgrade: h2c",
        b"GET /ws HTTP/1.1\r\nX-Upgrade: websocket",
        b"GET /ws HTTP/1.1\r\nX: Upgrade: websocket",
        b"GET /wsx HTTP/1.1\r\nUpgrade: websocket",
        b"GET /ws/ HTTP/1.1\r\nUpgrade: websocket",
        b"GET / HTTP/1.1\r\nUpgrade: websocket",
        b"GET /?/ws HTTP/1.1\r\nUpgrade: websocket",
        b"POST /ws HTTP/1.1\r\nUpgrade: websocket",
        b"get /ws HTTP/1.1\r\nUpgrade: websocket",
        b"GET  /ws HTTP/1.1\r\nUpgrade: websocket",
        b"GET /ws\r\nUpgrade: websocket",
        b"\r\nGET /ws HTTP/1.1\r\nUpgrade: websocket",
    ],
)
def test_everything_else_is_for_http(head) -> None:
    assert not wants_websocket(head)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_stumble(head) -> None:
    assert wants_websocket(head) in (True, False)
