"""Our frame headers are those of RFC 6455, and both codecs say the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Opcode

from protocol import events
from protocol.codec import JSON, MSGPACK, encode_json
from server.wire import Outgoing, Output, framed
from tests.unit.protocol.strategies import wires
from tests.unit.server.frames import data_of, fields_of, parsed


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 70000])
@pytest.mark.parametrize("binary", [False, True])
def test_a_header_is_read_as_it_was_meant(size, binary) -> None:
    payload = b"x" * size
    (frame,) = parsed(framed(payload, binary=binary))
    assert frame.opcode is (Opcode.BINARY if binary else Opcode.TEXT)
    assert frame.fin
    assert [frame.rsv1, frame.rsv2, frame.rsv3] == [False] * 3
    assert bytes(frame.data) == payload


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_joined_frames_come_apart_again(payloads) -> None:
    joined = b"".join(framed(payload, binary=True) for payload in payloads)
    assert [bytes(frame.data) for frame in parsed(joined)] == payloads


@pytest.mark.parametrize("kind", events.MODELS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_frame_says_the_same_in_both_codecs(kind, data) -> None:
    fields = data.draw(wires(events.MODELS[kind]))
    frame = Outgoing(fields)
    assert fields_of(frame, JSON) == fields_of(frame, MSGPACK) == fields


@settings(max_examples=30)
@given(wires(events.MODELS["message"]))
def test_stored_json_goes_out_as_it_is(fields) -> None:
    stored = encode_json(fields)
    frame = Outgoing(stored)
    assert bytes(parsed(frame.wire(JSON))[0].data) == stored
    assert fields_of(frame, MSGPACK) == fields


@given(st.binary(max_size=200))
def test_output_carries_its_bytes_in_either_codec(data) -> None:
    frame = Output({"type": "exec.output", "at": 7}, data)
    for codec in (JSON, MSGPACK):
        fields = fields_of(frame, codec)
        assert data_of(fields) == data
        assert (fields["type"], fields["at"]) == ("exec.output", 7)


def test_a_frame_is_encoded_once_per_codec() -> None:
    frame = Outgoing({"type": "pong"})
    for codec in (JSON, MSGPACK):
        assert frame.wire(codec) is frame.wire(codec)


def test_a_frame_keeps_no_hold_of_the_callers_fields() -> None:
    fields = {"type": "pong"}
    frame = Output(fields, b"x")
    frame.wire(JSON)
    assert fields == {"type": "pong"}
