"""What bad frames get: an error in the contract's words; nothing is lost and nothing hangs."""

import json
import math
import struct

import msgpack
import pytest
import websockets

from tests.integration.server.harness import JSON, MSGPACK, WAIT_S, Wire

BOTH = [
    [],
    ["hello"],
    "hello",
    7,
    None,
    True,
]


@pytest.fixture
async def ada(server, codec, room):
    async with server.client(codec, "Ada") as ada:
        await ada.join(room)
        yield ada


async def bad(client, data, code="bad_frame", **options):
    """Send it; the next answer is that error and the session goes on."""
    begin = len(client.frames)
    await client.send_raw(data, **options)
    error = await client.until("error", begin)
    assert error["code"] == code, error
    assert error["retryable"] is False
    assert error["message"]
    await client.settle()
    assert len([f for f in client.frames[begin:] if f["type"] == "error"]) == 1
    return error


@pytest.mark.parametrize("value", BOTH, ids=repr)
async def test_a_frame_is_an_object(ada, codec, value) -> None:
    await bad(ada, msgpack.packb(value) if codec == MSGPACK else json.dumps(value))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "hello",
        '{"type":"ping"',
        "{'type':'ping'}",
        '{"type":"ping","x":NaN}',
        '{"type":"ping","x":-Infinity}',
        "[" * 50_000,
        '{"type":' * 20_000,
        '{"type":"ping"}{"type":"ping"}',
        "\ufeff",
    ],
)
async def test_what_is_not_json(server, room, data) -> None:
    async with server.client(JSON) as ada:
        await bad(ada, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb({"type": "ping"})[:-1],
        msgpack.packb({"type": "ping"}) + b"\x00",
        msgpack.packb({"type": "ping", "x": math.nan}),
        msgpack.packb({"type": "ping", "x": [math.inf]}),
        msgpack.packb({"type": "ping", "x": msgpack.ExtType(7, b"x")}),
        msgpack.packb({"type": "ping", "x": msgpack.Timestamp(1)}),
        msgpack.packb({"type": "ping", 7: 8}),
        msgpack.packb({"type": "ping", "x": {b"k": 1}}),
        b"\x81\xa4type\xa3\xed\xa0\x80",
        b"\x81\xa4type\xdb\xff\xff\xff\xff",
        b"\x91" * 10_000,
        b"\xdd\xff\xff\xff\xff",
    ],
)
async def test_what_is_not_msgpack(server, room, data) -> None:
    async with server.client(MSGPACK) as ada:
        await bad(ada, data)


async def test_the_wrong_opcode(server) -> None:
    async with server.client(JSON) as ada:
        await bad(ada, b'{"type":"ping"}')
    async with server.client(MSGPACK) as ben:
        await bad(ben, '{"type":"ping"}')


async def test_no_type_and_unknown_types(ada) -> None:
    begin = len(ada.frames)
    await ada.send_frame({"ref": "no-type"})
    error = await ada.until("error", begin)
    assert (error["code"], error["ref"]) == ("bad_frame", "no-type")
    for type_ in ("shout", "", "message", "welcome", "SAY", "x" * 5000):
        error = await ada.refused(type_)
        assert error["code"] == "invalid"
        assert "type" in error["details"]
    await ada.settle()


MISSING = {
    "join": ["room"],
    "say": ["room", "text"],
    "edit": ["room", "id", "text"],
    "react": ["room", "id", "emoji", "on"],
    "typing": ["room", "on"],
    "history": ["room"],
    "exec.input": ["exec"],
    "exec.resize": ["exec", "cols", "rows"],
    "exec.signal": ["exec", "signal"],
    "exec.read": ["exec", "at"],
}


async def test_missing_fields_are_named(ada) -> None:
    for type_, fields in MISSING.items():
        error = await ada.refused(type_)
        assert error["code"] == "invalid"
        assert sorted(error["details"]) == sorted(fields), type_
    for both in ({}, {"command": "ls", "argv": ["ls"]}):
        assert (await ada.refused("exec", room="blue", **both))["code"] == "invalid"


@pytest.mark.parametrize("wrong", [7, 1.5, True, None, ["x"], {"x": 1}], ids=repr)
async def test_wrong_types_are_not_coerced(ada, room, wrong) -> None:
    for type_, field, rest in (
        ("say", "text", {}),
        ("join", "room", {}),
        ("exec", "command", {}),
        ("react", "id", {"emoji": "x", "on": True}),
    ):
        error = await ada.refused(type_, **({"room": room} | rest | {field: wrong}))
        assert error["code"] == "invalid"
    for flag in ("true", 1, 0):
        assert (await ada.refused("typing", room=room, on=flag))["code"] == "invalid"
    for number in ("1", 1.0, True):
        assert (await ada.refused("history", room=room, before=number))["code"] == "invalid"


async def test_extra_fields_are_ignored(ada, room) -> None:
    ack = await ada.ok("say", room=room, text="hi", colour="blue", nested={"a": [1, None]})
    message = await ada.event(ack["offset"])
    assert "colour" not in message


async def test_a_frame_over_the_limit_closes_with_1009(server, codec, room) -> None:
    async with server.client(codec) as ada:
        limit = ada.welcome["limits"]["frameBytes"]
        await ada.send("say", room=room, text="x" * limit)
        assert await ada.until_closed() == 1009
        assert not ada.of("error")
    async with server.client(codec) as ada:
        frame = {"type": "ping", "ref": "big", "x": ""}
        room_left = limit - len(json.dumps(frame)) - 10
        await ada.send_frame(frame | {"x": "x" * room_left})
        await ada.until(lambda f: f.get("ref") == "big")


async def test_a_fragmented_frame_over_the_limit_closes_with_1009(server) -> None:
    async with server.client(JSON) as ada:
        with pytest.raises(websockets.ConnectionClosed):
            await ada.socket.send(["x" * 65536] * 1_000)
        assert await ada.until_closed() == 1009
        assert not ada.of("error")


async def test_bad_utf8_closes_with_1007(server) -> None:
    async with server.client(JSON) as ada:
        await ada.send_raw(b'{"type":"ping","x":"\xff"}', text=True)
        assert await ada.until_closed() == 1007
        assert not ada.of("error")


async def test_text_over_the_limit_is_too_large(ada, room) -> None:
    limits = ada.welcome["limits"]
    most = limits["textChars"]
    error = await ada.refused("say", room=room, text="x" * (most + 1))
    assert (error["code"], list(error["details"])) == ("too_large", ["text"])
    await ada.ok("say", room=room, text="𝄞" * most)
    command = "x" * (limits["commandBytes"] + 1)
    assert (await ada.refused("exec", room=room, command=command))["code"] == "too_large"


@pytest.mark.parametrize("text", ["a\0b", "\0"])
async def test_nul_is_invalid(ada, room, text) -> None:
    for type_, fields in (
        ("say", {"room": room, "text": text}),
        ("say", {"room": room, "text": "hi", "key": text}),
        ("exec", {"room": room, "command": text}),
        ("exec", {"room": room, "argv": ["echo", text]}),
        ("exec", {"room": room, "command": "ls", "env": {"A": text}}),
        ("exec", {"room": room, "command": "ls", "env": {text: "A"}}),
        ("exec", {"room": room, "command": "ls", "cwd": text}),
        ("join", {"room": text}),
        ("exec.cancel", {"exec": text}),
    ):
        assert (await ada.refused(type_, **fields))["code"] == "invalid", (type_, fields)


@pytest.mark.parametrize("escape", [r"\ud800", r"x\udfffy", r"\udc00\ud800"])
async def test_lone_surrogates_are_invalid(server, room, escape) -> None:
    async with server.client(JSON) as ada:
        await ada.join(room)
        for frame in (
            '{"type":"say","room":"ROOM","text":"%s","ref":"s"}',
            '{"type":"say","room":"ROOM","text":"hi","key":"%s","ref":"s"}',
            '{"type":"exec","room":"ROOM","command":"%s","ref":"s"}',
            '{"type":"exec","room":"ROOM","command":"ls","env":{"%s":"x"},"ref":"s"}',
            '{"type":"join","room":"%s","ref":"s"}',
            '{"type":"%s","ref":"s"}',
            '{"type":"exec.cancel","exec":"%s","ref":"s"}',
            '{"type":"exec.input","exec":"x","data":"%s","ref":"s"}',
        ):
            begin = len(ada.frames)
            await ada.send_raw(frame.replace("ROOM", room).replace("%s", escape))
            error = await ada.until("error", begin)
            assert (error["code"], error["ref"]) == ("invalid", "s"), frame
        await ada.send_raw('{"type":"ping","ref":"%s"}'.replace("%s", escape))
        error = await ada.until("error", begin + 1)
        assert (error["code"], "ref" in error) == ("invalid", False)
        await ada.settle()


@pytest.mark.parametrize("blank", ["", " ", "   \t\n "])
async def test_a_command_of_only_spaces(ada, room, blank) -> None:
    for type_, field in (("exec", "command"), ("say", "text")):
        error = await ada.refused(type_, room=room, **{field: blank})
        assert (error["code"], list(error["details"])) == ("invalid", [field])
    assert not ada.of("exec.started")


@pytest.mark.parametrize("name", ["a/b", "..", "../etc", "x" * 300, "Blue", "", "a b", "é"])
async def test_a_room_name_that_is_none(server, ada, name) -> None:
    for type_ in ("join", "leave", "history"):
        error = await ada.refused(type_, room=name)
        assert (error["code"], list(error["details"])) == ("invalid", ["room"])
    status, answer = await server.http("POST", "/api/rooms", {"id": name})
    assert (status, answer["error"]) == (400, "invalid request")
    assert list(answer["details"]) == ["id"]


async def test_commands_before_hello(server, codec, room) -> None:
    async with Wire(server, codec, None) as early:
        for type_, fields in (
            ("ping", {}),
            ("join", {"room": room}),
            ("say", {"room": room, "text": "hi"}),
            ("exec", {"room": room, "command": "ls"}),
        ):
            assert (await early.refused(type_, **fields))["code"] == "hello_required"
        welcome = await early.ok("hello", name="Late")
        assert welcome["type"] == "welcome"
        await early.join(room)


async def test_a_second_hello(ada, room) -> None:
    error = await ada.refused("hello", name="Eve")
    assert error["code"] == "already_hello"
    ack = await ada.ok("say", room=room, text="still me")
    message = await ada.event(ack["offset"])
    assert message["by"]["name"] == "Ada"


@pytest.mark.parametrize("token", ["", "x", "a.b", "é", "x" * 5000, "a.b.c.d"])
async def test_a_token_that_is_none(server, codec, token) -> None:
    async with Wire(server, codec, None) as eve:
        error = await eve.refused("hello", token=token)
        assert error["code"] == "unauthenticated"
        await eve.ok("hello", name="Eve")


async def test_a_forged_token(server, codec) -> None:
    async with server.client(codec, "Ada") as ada, Wire(server, codec, None) as eve:
        token = ada.welcome["token"]
        for at in range(0, len(token), 5):
            forged = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
            reply = await eve.ask("hello", token=forged)
            assert (reply["type"], reply.get("code")) == ("error", "unauthenticated"), at


@pytest.mark.parametrize("kind", ["agent", "admin", "", 7])
async def test_a_kind_that_is_not_for_clients(server, codec, kind) -> None:
    async with Wire(server, codec, None) as eve:
        assert (await eve.refused("hello", name="Eve", kind=kind))["code"] == "invalid"


async def test_a_room_one_has_not_joined(server, codec, ada) -> None:
    other = await server.new_room()
    for type_, fields in (
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
        assert (await ada.refused(type_, room=other, **fields))["code"] == "not_joined", type_
    page = await server.http("GET", f"/api/rooms/{other}/messages")
    assert page[1]["events"] == []


async def test_a_room_that_is_not_there(ada) -> None:
    error = await ada.refused("join", room="no-such-room")
    assert (error["code"], error["retryable"]) == ("unknown_room", False)


async def test_many_bad_frames_close_with_4502(server, codec) -> None:
    async with server.client(codec) as eve:
        for _ in range(20):
            await eve.send_raw("nonsense" if codec == JSON else b"\xc1")
        await eve.settle()
        assert len(eve.of("error", code="bad_frame")) == 20
        await eve.send_raw("nonsense" if codec == JSON else b"\xc1")
        assert await eve.until_closed() == 4502
        (bye,) = eve.of("bye")
        assert (bye["code"], bye["reconnect"]) == (4502, False)


async def test_invalid_requests_do_not_close(ada) -> None:
    for _ in range(50):
        assert (await ada.refused("say", room="a/b", text=""))["code"] == "invalid"
    await ada.settle()


async def test_the_ref_is_echoed_and_bounded(ada) -> None:
    for ref in ("r", "é" * 64, "x" * 64, " "):
        await ada.send("ping", ref=ref)
        await ada.until(lambda f, ref=ref: f["type"] == "pong" and f["ref"] == ref)
    begin = len(ada.frames)
    await ada.send("ping", ref="x" * 65)
    error = await ada.until("error", begin)
    assert (error["code"], "ref" in error) == ("invalid", False)
    await ada.send("ping")
    pong = await ada.until(lambda f: f["type"] == "pong" and "ref" not in f, begin)
    assert pong == {"type": "pong"}


async def test_too_many_frames_are_limited_and_pass(server, codec) -> None:
    async with server.client(codec) as ada:
        allowed = ada.welcome["limits"]["framesPerSecond"]
        for number in range(2 * allowed):
            await ada.send("ping", ref=str(number))
        answered = lambda f: f.get("ref") == str(2 * allowed - 1)  # noqa: E731
        await ada.until(answered, limit_s=WAIT_S)
        limited = ada.of("error", code="rate_limited")
        assert len(ada.of("pong")) >= allowed
        assert len(ada.of("pong")) + len(limited) == 2 * allowed
        for error in limited:
            assert error["retryable"] is True
            assert error["retryAfterMs"] > 0


async def test_protocol_errors_of_websocket_itself(server) -> None:
    """A reserved opcode and an unmasked frame: the connection closes, the server goes on."""
    for data in (
        b"\x83\x80\0\0\0\0",
        b"\x81\x02{}",
        struct.pack("!BBH", 0x89, 0xFE, 200) + bytes(204),
    ):
        async with server.client(JSON) as eve:
            eve.socket.transport.write(data)
            assert await eve.until_closed() == 1002
    async with server.client(JSON) as ada:
        await ada.settle()
