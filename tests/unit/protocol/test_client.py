"""The client against a scripted peer: a real WebSocket on port 0 whose every frame is given."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import websockets

from protocol import names
from protocol.client import Client, Disconnected, connect
from protocol.codec import codec_for
from protocol.errors import DuetError, Forbidden, NotJoined, RateLimited

ADA = {"id": "p1", "name": "Ada", "kind": "bot"}
BEN = {"id": "p2", "name": "Ben", "kind": "human"}
LIMITS = {
    "frameBytes": 262144,
    "serverFrameBytes": 262144,
    "textChars": 16384,
    "commandBytes": 32768,
    "framesPerSecond": 2000,
    "rooms": 100,
    "execKeptBytes": 1048576,
    "resumeEvents": 1000,
}


class Peer:
    """The server's side of one connection, driven by the test."""

    def __init__(self, socket):
        self.socket = socket
        self.codec = codec_for(socket.subprotocol)

    async def take(self, kind):
        async with asyncio.timeout(10):
            frame = self.codec.decode(await self.socket.recv())
        assert frame["type"] == kind
        return frame

    async def send(self, type_, **fields):
        data = self.codec.encode({"type": type_, **fields})
        await self.socket.send(data, text=not self.codec.binary)

    async def welcome(self):
        hello = await self.take("hello")
        await self.send(
            "welcome",
            ref=hello["ref"],
            session="s1",
            participant=ADA,
            token="tok",
            server={"version": "0", "protocol": 1},
            limits=LIMITS,
        )
        return hello

    async def let_join(self, **changes):
        join = await self.take("join")
        empty = {"participants": [ADA], "events": [], "execs": [], "turns": []}
        at = {"role": "member", "epoch": "E", "offset": 4, "oldest": 1, "resumed": False}
        await self.send("joined", ref=join["ref"], room=join["room"], **(at | empty | changes))
        return join


@asynccontextmanager
async def served(story, codec="json", **options):
    """A client whose peer plays `story`; the story's own failures are the test's."""
    ended = asyncio.get_running_loop().create_future()

    async def play(socket):
        try:
            ended.set_result(await story(Peer(socket)))
        except Exception as error:
            ended.set_exception(error)
            raise

    async with (
        websockets.serve(play, "127.0.0.1", 0, subprotocols=names.SUBPROTOCOLS) as server,
        asyncio.timeout(20),
    ):
        port = server.sockets[0].getsockname()[1]
        async with connect(
            f"http://127.0.0.1:{port}", name="Ada", codec=codec, **options
        ) as client:
            yield client
        await ended


@pytest.fixture(params=["json", "msgpack"])
def codec(request):
    return request.param


async def test_hello_and_what_welcome_says(codec) -> None:
    async def story(peer):
        assert peer.codec is codec_for(f"duet.v1.{codec}")
        return await peer.welcome()

    async with served(story, codec) as client:
        assert (client.session, client.token, client.participant.name) == ("s1", "tok", "Ada")
        assert client.limits.text_chars == 16384


async def test_a_refused_hello_is_the_error_of_its_code() -> None:
    async def story(peer):
        hello = await peer.take("hello")
        assert hello["kind"] == "bot"
        assert hello["token"] == "old"
        await peer.send(
            "error", ref=hello["ref"], code="forbidden", message="Not you.", retryable=False
        )
        await peer.socket.wait_closed()

    with pytest.raises(Forbidden, match="Not you"):
        async with served(story, token="old"):
            raise AssertionError("no client without a welcome")


async def test_chat_and_history(codec) -> None:
    async def story(peer):
        await peer.welcome()
        join = await peer.let_join()
        assert join["output"] is True
        say = await peer.take("say")
        message = {"room": "r", "offset": 5, "ts": 9, "by": ADA, "id": "m5", "text": say["text"]}
        await peer.send("message", **message)
        await peer.send("ack", ref=say["ref"], offset=5, id="m5")
        await peer.send("news.of.tomorrow", room="r")
        await peer.send("typing", room="r", participant=BEN, on=True)
        page = await peer.take("history")
        assert (page["after"], page["limit"]) == (2, 10)
        await peer.send(
            "page", ref=page["ref"], events=[{"type": "message", **message}], more=False
        )
        await peer.send("left", room="r", code="deleted", message="It is gone.", rejoin=False)

    async with served(story, codec) as client:
        room = await client.join("r")
        assert room.position.offset == 4
        ack = await room.say("hej")
        assert (ack.offset, ack.id) == (5, "m5")
        page = await room.history(after=2, limit=10)
        assert [event.text for event in page.events] == ["hej"]
        seen = [event.type async for event in room.events(idle_s=10)]
        assert seen == ["message", "typing", "left"]
        assert room.position.model_dump() == {"epoch": "E", "offset": 5}


async def test_exec_output_and_result(codec) -> None:
    async def story(peer):
        await peer.welcome()
        await peer.let_join()
        asked = await peer.take("exec")
        assert asked["argv"] == ["cat", "x"]
        assert "command" not in asked
        base = {"room": "r", "ts": 9, "by": ADA, "exec": "e1"}
        await peer.send(
            "exec.started", **base, offset=5, key=asked["key"], command="cat x", cwd="/"
        )
        await peer.send("exec.started", **(base | {"exec": "e2"}), offset=6, command="y", cwd="/")
        out = {"room": "r", "exec": "e1", "stream": "stdout"}
        data = peer.codec.output(b"one\xff")
        await peer.send("exec.output", **out, at=0, size=4, pos=0, **data)
        await peer.send(
            "exec.output", **(out | {"exec": "e2"}), at=0, size=1, pos=0, **peer.codec.output(b"z")
        )
        await peer.send("ack", ref=asked["ref"], offset=5, exec="e1")
        await peer.send("exec.gap", **out, **{"from": 4, "to": 8}, kept=True)
        end = {"ok": False, "reason": "command_failed", "message": "It failed.", "exitCode": 3}
        size = {"durationMs": 5, "bytes": {"stdout": 8}, "truncated": {"stdout": False}}
        await peer.send("exec.exited", **base, offset=7, retryable=False, **end, **size)
        read = await peer.take("exec.read")
        assert (read["exec"], read["at"], read["limit"]) == ("e1", 4, 4)
        await peer.send(
            "exec.output",
            ref=read["ref"],
            exec="e1",
            stream="stdout",
            at=4,
            size=4,
            pos=4,
            **peer.codec.output(b"two\n"),
        )
        await peer.send("ack", ref=read["ref"], at=4, end=8)

    async with served(story, codec) as client:
        room = await client.join("r")
        run = await room.exec(["cat", "x"])
        assert run.id == "e1"
        assert b"".join([piece.data async for piece in run]) == b"one\xfftwo\n"
        result = await run.wait()
        assert (result.ok, result.reason, result.exit_code) == (False, "command_failed", 3)
        assert run.lost_bytes == 0


async def test_a_refused_exec_leaves_nothing_behind() -> None:
    async def story(peer):
        await peer.welcome()
        await peer.let_join()
        asked = await peer.take("exec")
        await peer.send(
            "error",
            ref=asked["ref"],
            code="rate_limited",
            message="Slower.",
            retryable=True,
            retryAfterMs=70,
            details={"frame": ["too many"]},
        )
        asked = await peer.take("exec")
        await peer.send(
            "error", ref=asked["ref"], code="brand_new", message="What.", retryable=True
        )

    async with served(story) as client:
        room = await client.join("r")
        with pytest.raises(RateLimited) as caught:
            await room.exec("ls")
        assert caught.value.retry_after_ms == 70
        assert caught.value.details == {"frame": ["too many"]}
        with pytest.raises(DuetError) as caught:
            await room.exec("ls")
        assert type(caught.value) is DuetError
        assert (caught.value.code, caught.value.retryable) == ("brand_new", True)
        assert client.runs._by_key == client.runs._by_id == {}
        assert client._pending == {}


@pytest.mark.parametrize(("code", "again"), [(4000, True), (1001, True), (4501, False)])
async def test_a_close_reaches_everyone_who_waits(code, again) -> None:
    async def story(peer):
        await peer.welcome()
        await peer.let_join()
        asked = await peer.take("exec")
        await peer.send("ack", ref=asked["ref"], offset=5, exec="e1")
        await peer.take("say")
        await peer.send("bye", code=code, reason="because", reconnect=again)
        await peer.socket.close(code)

    async with served(story) as client:
        room = await client.join("r")
        run = await room.exec("sleep 9")

        async def outcome(waiting):
            with pytest.raises(Disconnected) as caught:
                await waiting
            return caught.value

        async def first(iterator):
            return await anext(aiter(iterator))

        waits = [room.say("hi"), run.wait(), first(run), first(room.events()), later(client)]
        gone = await asyncio.gather(*map(outcome, waits))
        assert {(one.close_code, one.reason, one.reconnect) for one in gone} == {
            (code, "because", again)
        }


async def later(client: Client):
    """A request that comes after the end."""
    await client._socket.wait_closed()
    await client.ping()


async def test_a_broken_server_ends_the_connection() -> None:
    async def story(peer):
        await peer.welcome()
        await peer.take("ping")
        await peer.socket.send("{not json")
        await peer.socket.wait_closed()

    async with served(story) as client:
        with pytest.raises(Disconnected) as caught:
            await client.ping()
        assert (caught.value.close_code, caught.value.reconnect) == (1002, False)


async def test_no_answer_is_a_timeout_and_the_session_goes_on() -> None:
    async def story(peer):
        await peer.welcome()
        late = await peer.take("ping")
        again = await peer.take("ping")
        await peer.send("pong", ref=late["ref"])
        await peer.send("pong", ref=again["ref"])

    async with served(story, timeout_s=0.2) as client:
        with pytest.raises(TimeoutError):
            await client.ping()
        await client.ping()


async def test_leaving_ends_the_rooms_runs_and_events() -> None:
    async def story(peer):
        await peer.welcome()
        await peer.let_join()
        asked = await peer.take("exec")
        base = {"room": "r", "ts": 9, "by": ADA, "exec": "e1", "offset": 5}
        await peer.send("exec.started", **base, key=asked["key"], command="x", cwd="/")
        await peer.send("ack", ref=asked["ref"], offset=5, exec="e1")
        leave = await peer.take("leave")
        await peer.send("ack", ref=leave["ref"])

    async with served(story) as client:
        room = await client.join("r")
        run = await room.exec("sleep 9")
        await room.leave()
        assert [event.type async for event in room.events()] == ["exec.started"]
        with pytest.raises(NotJoined):
            await run.wait()


async def test_joining_again_keeps_the_room_and_its_unread_events() -> None:
    async def story(peer):
        await peer.welcome()
        await peer.let_join()
        message = {"room": "r", "ts": 9, "by": BEN, "text": "hi"}
        await peer.send("message", **message, offset=5, id="m5")
        again = await peer.let_join(offset=6, resumed=True)
        assert again["since"] == {"epoch": "E", "offset": 5}
        await peer.send("message", **message, offset=6, id="m6")
        pong = await peer.take("ping")
        await peer.send("pong", ref=pong["ref"])

    async with served(story) as client:
        room = await client.join("r")
        unread = room.events(idle_s=10)
        first = await anext(unread)
        assert await client.join("r", since=room.position) is room
        await client.ping()
        assert (first.id, (await anext(unread)).id) == ("m5", "m6")
        assert room.position.offset == 6


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    async def story(peer):
        await peer.welcome()

    with pytest.raises(KeyError, match="mine"):
        async with served(story):
            raise KeyError("mine")


async def test_nobody_there() -> None:
    with pytest.raises(OSError, match="onnect"):
        async with connect("http://127.0.0.1:9"):
            raise AssertionError("there is nobody at port 9")
