"""JSON and msgpack say the same; what one could not say is refused in the other."""

import base64
import datetime as dt
import json
import math

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import codec, commands, events, names
from protocol.codec import JSON, MSGPACK, decode_json, decode_msgpack
from protocol.errors import BadFrame
from tests.unit.protocol.strategies import JSONISH, TEXT, wires

FEWER = settings(max_examples=25)
"""For properties that are tried for each of many models."""


def text(encoded: bytes) -> str:
    return encoded.decode()


@pytest.mark.parametrize("kind", commands.MODELS)
@FEWER
@given(data=st.data())
def test_commands_say_the_same_in_both(kind, data) -> None:
    frame = data.draw(wires(commands.MODELS[kind]))
    from_json = decode_json(text(JSON.encode(frame)))
    from_msgpack = decode_msgpack(MSGPACK.encode(frame))
    assert from_json == from_msgpack == frame
    assert commands.parse(from_json) == commands.parse(from_msgpack)


@pytest.mark.parametrize("kind", events.MODELS)
@FEWER
@given(data=st.data())
def test_events_say_the_same_in_both(kind, data) -> None:
    event = events.EVENTS.validate_python(data.draw(wires(events.MODELS[kind])))
    frame = event.wire()
    from_json = events.EVENTS.validate_python(decode_json(text(JSON.encode(frame))))
    from_msgpack = events.EVENTS.validate_python(decode_msgpack(MSGPACK.encode(frame)))
    assert from_json == from_msgpack == event
    assert from_json.wire() == frame


@pytest.mark.parametrize("kind", commands.MODELS)
@FEWER
@given(data=st.data())
def test_a_command_survives_its_own_wire_form(kind, data) -> None:
    command = commands.parse(data.draw(wires(commands.MODELS[kind], binary=True)))
    assert commands.parse(decode_msgpack(MSGPACK.encode(command.wire()))) == command


@given(st.binary())
def test_output_bytes_arrive_as_they_were(data) -> None:
    in_json = decode_json(text(JSON.encode(JSON.output(data))))
    in_msgpack = decode_msgpack(MSGPACK.encode(MSGPACK.output(data)))
    assert in_msgpack == {"data": data}
    assert len(in_json) == 1
    if "data" in in_json:
        assert in_json["data"].encode() == data
    else:
        assert base64.b64decode(in_json["base64"], validate=True) == data
        with pytest.raises(UnicodeDecodeError):
            data.decode()


@given(st.text())
def test_json_decoding_raises_nothing_but_bad_frame(data) -> None:
    _decode_or_refuse(decode_json, data)


@given(st.binary())
def test_msgpack_decoding_raises_nothing_but_bad_frame(data) -> None:
    _decode_or_refuse(decode_msgpack, data)


@given(JSONISH)
def test_only_maps_are_frames(value) -> None:
    for decode, encoded in (
        (decode_json, json.dumps(value)),
        (decode_msgpack, msgpack.packb(value, unicode_errors="surrogatepass")),
    ):
        frame = _decode_or_refuse(decode, encoded)
        assert frame is None or isinstance(value, dict)


def _decode_or_refuse(decode, data):
    try:
        frame = decode(data)
    except BadFrame:
        return None
    assert isinstance(frame, dict)
    assert all(isinstance(key, str) for key in frame)
    return frame


@pytest.mark.parametrize(
    "data",
    [
        "",
        "hello",
        "[]",
        '"hello"',
        "1",
        "null",
        '{"type":"ping"',
        '{"type":"ping"}{"type":"ping"}',
        '{"type":NaN}',
        '{"type":"ping","x":Infinity}',
        '{"type":"ping","x":[-Infinity]}',
        "{'type':'ping'}",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "1" * 5_000 + "}",
        b'{"type":"ping"}',
    ],
)
def test_what_is_no_json_frame(data) -> None:
    with pytest.raises(BadFrame):
        decode_json(data)


@pytest.mark.parametrize(
    "value",
    [
        [],
        "hello",
        7,
        None,
        {1: "one"},
        {b"type": "ping"},
        {None: 1},
        {"type": "ping", "x": {2: 3}},
        {"type": "ping", "x": [{b"key": 1}]},
        {"type": "ping", "x": math.nan},
        {"type": "ping", "x": [math.inf]},
        {"type": "ping", "x": {"y": -math.inf}},
        {"type": "ping", "x": msgpack.ExtType(5, b"x")},
        {"type": "ping", "x": msgpack.Timestamp(1)},
        {"type": msgpack.Timestamp(1)},
    ],
)
def test_what_is_no_msgpack_frame(value) -> None:
    with pytest.raises(BadFrame):
        decode_msgpack(msgpack.packb(value))


def test_broken_msgpack_is_no_frame() -> None:
    whole = msgpack.packb({"type": "ping"})
    nested = b"\x81\xa1a" * 5_000 + b"\xc0"
    dated = msgpack.packb({"x": dt.datetime.now(dt.UTC)}, datetime=True)
    lone = b"\x81\xa4type\xa3\xed\xa0\x80"
    for data in (b"", whole[:-1], whole + b"\xc0", b"\xc1", nested, dated, lone, "text"):
        with pytest.raises(BadFrame):
            decode_msgpack(data)


def test_a_refusal_of_an_opcode_says_what_to_send() -> None:
    with pytest.raises(BadFrame, match="text frames"):
        decode_json(b"{}")
    with pytest.raises(BadFrame, match="binary frames"):
        decode_msgpack("{}")


@given(st.dictionaries(TEXT, TEXT))
def test_json_is_compact_and_not_escaped(frame) -> None:
    assert JSON.encode(frame) == json.dumps(
        frame, ensure_ascii=False, separators=(",", ":")
    ).encode("utf-8")


def test_nan_is_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        JSON.encode({"x": math.nan})


def test_the_codec_follows_the_subprotocol() -> None:
    assert codec.codec_for(names.SUBPROTOCOL_MSGPACK) is MSGPACK
    assert codec.codec_for(names.SUBPROTOCOL_JSON) is JSON
    assert codec.codec_for(None) is JSON
