"""A session by itself: its rooms and their number, its order, its silence, its line in the log."""

import asyncio
import json

from tests.integration.server.harness import JSON, UPGRADE, WAIT_S, Wire, head
from tests.integration.server.test_crowd import frame


async def test_a_session_is_in_so_many_rooms_as_its_limits_say(server, codec) -> None:
    async with server.client(codec, "Ada") as ada:
        most = ada.welcome["limits"]["rooms"]
        rooms = [await server.new_room() for _ in range(most + 1)]
        for room in rooms[:most]:
            await ada.join(room)
        refused = await ada.refused("join", room=rooms[most])
        assert (refused["code"], refused["retryable"]) == ("limit", False)
        assert str(most) in refused["message"]
        await ada.join(rooms[0])  # it is in there: no room more
        await ada.ok("leave", room=rooms[1])
        await ada.join(rooms[most])
        await ada.ok("say", room=rooms[most], text="in")


async def test_commands_of_all_kinds_take_effect_in_the_order_sent(
    server, codec, pair, room
) -> None:
    ada, _ = pair
    first = await ada.ok("say", room=room, text="first")
    wanted = []
    for number in range(30):
        for type_, fields in (
            ("say", {"text": f"said {number}", "key": f"s{number}"}),
            ("react", {"id": first["id"], "emoji": "x", "on": number % 2 == 0}),
            ("edit", {"id": first["id"], "text": f"edited {number}"}),
            ("exec", {"command": f"echo {number}", "key": f"e{number}"}),
        ):
            wanted.append(f"{type_} {number}")
            await ada.send(type_, room=room, ref=wanted[-1], **fields)
    await ada.until(lambda f: f.get("ref") == wanted[-1])
    acks = [f for f in ada.of("ack") if f["ref"] in wanted]
    assert [ack["ref"] for ack in acks] == wanted
    offsets = [ack["offset"] for ack in acks]
    assert offsets == sorted(set(offsets))
    keyed = {f["key"]: f["offset"] for f in ada.of("message", "exec.started") if "key" in f}
    assert keyed["s7"] == offsets[wanted.index("say 7")]
    assert keyed["e7"] == offsets[wanted.index("exec 7")]
    for event in ada.of("exec.started"):
        await ada.exited(event["exec"])


async def test_nothing_in_an_unknown_room(server, codec) -> None:
    async with server.client(codec, "Ada") as ada:
        for type_, fields in (
            ("join", {}),
            ("leave", {}),
            ("say", {"text": "hi"}),
            ("edit", {"id": "x", "text": "hi"}),
            ("delete", {"id": "x"}),
            ("react", {"id": "x", "emoji": "x", "on": True}),
            ("typing", {"on": True}),
            ("history", {}),
            ("exec", {"command": "ls"}),
            ("ask", {"text": "hi"}),
            ("agent.stop", {"turn": "t"}),
        ):
            refused = await ada.refused(type_, room="never-made", **fields)
            assert (refused["code"], refused["retryable"]) == ("unknown_room", False), type_
        assert (await server.http("GET", "/api/rooms/never-made"))[0] == 404, "nor was it made"


async def test_what_happens_to_a_room_closes_no_session(server, codec) -> None:
    gone, stays = await server.new_room(), await server.new_room()
    async with server.client(codec, "Ada") as ada:
        for room in (gone, stays):
            await ada.join(room)
        await server.http("DELETE", f"/api/rooms/{gone}")
        left = await ada.until("left")
        assert (left["room"], left["code"], left["rejoin"]) == (gone, "deleted", False)
        said = await ada.ok("say", room=stays, text="still here")
        await ada.event(said["offset"], stays)
        assert len(ada.of("left")) == 1
        assert ada.closed is None


class Mute:
    """A client that takes what comes and answers nothing, pings neither."""

    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self.writer.write(head(self.server, "GET /ws", *UPGRADE))
        await self.reader.readuntil(b"\r\n\r\n")
        self.writer.write(frame(type="hello", name="Mute", ref="h"))
        return self

    async def __aexit__(self, *_):
        self.writer.transport.abort()

    async def frames(self):
        """(opcode, payload) of each frame that comes."""
        while True:
            kind, size = await self.reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            yield kind & 0x0F, await self.reader.readexactly(size)
            if kind & 0x0F == 8:
                return


async def test_who_is_silent_is_asked_and_then_closed_with_4002(start, codec) -> None:
    server = start(DUET_SILENT_S="1")
    async with server.client(codec, "Quiet") as quiet, Mute(server) as mute:
        async with asyncio.timeout(WAIT_S):
            found = [one async for one in mute.frames()]
        assert 9 in [kind for kind, _ in found], "it was asked for a sign of life"
        kind, last = found[-1]
        assert (kind, int.from_bytes(last[:2], "big")) == (8, 4002)
        bye = json.loads(found[-2][1])
        assert (bye["type"], bye["code"], bye["reconnect"]) == ("bye", 4002, True)
        # Who says nothing and answers pings stays.
        assert quiet.closed is None
        await quiet.settle()
        assert not quiet.of("bye")


async def test_who_vanishes_is_one_debug_line(start) -> None:
    server = start(DUET_LOG_LEVEL="debug", DUET_LOG_FORMAT="json")
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        gone = []
        for _ in range(3):
            wire = Wire(server, JSON, {"name": "Ghost"})
            async with wire:
                await wire.join(room)
                gone.append(wire.welcome["session"])
                wire.socket.transport.abort()
                await ada.until(lambda _: len(ada.of("participant.left")) == len(gone))
        lines = [line for line in server.log().splitlines() if line.startswith("{")]
        told = [json.loads(line) for line in lines]
    for session in gone:
        (line,) = [line for line in told if line.get("session") == session]
        assert (line["level"], line["part"], line["code"]) == ("debug", "session", 1006)
    assert "Traceback" not in server.log()
