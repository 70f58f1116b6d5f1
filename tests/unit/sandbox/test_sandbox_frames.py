"""Both sides of the runner's wire agree, however the bytes are cut and whatever came before."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import frames
from sandbox.attach import MuxParser
from sandbox.runner import wire

NONCE = bytes(range(16))
names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
outputs = st.builds(
    frames.Output,
    exec=names,
    stream=st.sampled_from(frames.STREAMS),
    at=st.integers(0, 2**63),
    data=st.binary(max_size=300),
)
controls = st.builds(
    frames.Control,
    st.fixed_dictionaries({"t": names, "x": st.text(max_size=20), "n": st.none() | st.integers()}),
)


def encode(frame: frames.Frame) -> bytes:
    """As the runner does it."""
    if isinstance(frame, frames.Output):
        code = frames.STREAMS.index(frame.stream)
        return wire.output_header(frame.exec, code, frame.at, len(frame.data)) + frame.data
    return wire.control_frame(dict(frame.fields))


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    return [*chunks, data[at:]]


def feed(reader: frames.FrameReader, chunks: list[bytes]) -> list[frames.Frame]:
    return [frame for chunk in chunks for frame in reader.feed(chunk)]


@given(
    st.lists(outputs | controls, max_size=6),
    st.binary(max_size=100),
    st.lists(st.integers(0, 50), max_size=30),
)
def test_frames_survive_any_cut_and_any_leftover(sent, leftover, sizes):
    data = leftover + wire.MAGIC + NONCE + b"".join(map(encode, sent))
    assert feed(frames.FrameReader(NONCE), cut(data, sizes)) == sent


@given(st.lists(outputs, max_size=4), st.lists(st.integers(0, 50), max_size=20))
def test_what_an_earlier_client_left_is_skipped(left, sizes):
    old = wire.MAGIC + bytes(16) + b"".join(map(encode, left))
    mine = frames.Control({"t": "hello"})
    reader = frames.FrameReader(NONCE)
    got = feed(reader, cut(old[:-1] + wire.MAGIC + NONCE + encode(mine), sizes))
    assert got == [mine]
    assert reader.synced


def test_nothing_is_read_before_the_mark():
    reader = frames.FrameReader(NONCE)
    assert feed(reader, [encode(frames.Control({"t": "hello"})) * 50]) == []
    assert not reader.synced


@pytest.mark.parametrize(
    "broken",
    [
        b"\0\0\0\0",
        (frames.MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\0\0\0\x02Xx",
        b"\0\0\0\x03J{]",
        b"\0\0\0\x03J[]",
        b"\0\0\0\x03J{}",
        b"\0\0\0\x02O\0",
        b"\0\0\0\x0bO\x07" + bytes(9),
        b"\0\0\0\x0cO\0" + bytes(8) + b"\x01\xff",
    ],
)
def test_a_broken_frame_is_an_error(broken):
    reader = frames.FrameReader(NONCE)
    with pytest.raises(frames.FrameError):
        feed(reader, [wire.MAGIC + NONCE + broken])


def test_the_magic_is_the_same_on_both_sides():
    assert frames.MAGIC == wire.MAGIC


@given(st.dictionaries(names, st.text(max_size=20), max_size=4), st.integers(0, 2**53))
def test_a_line_is_one_line(fields, seq):
    line = frames.encode_line(NONCE, seq, {"t": "x", "f": fields})
    assert line.startswith(b"\n")
    assert line.count(b"\n") == 2
    assert json.loads(line) == {"t": "x", "f": fields, "n": NONCE.hex(), "s": seq}


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=60)), max_size=8),
    st.lists(st.integers(0, 20), max_size=40),
)
def test_the_engine_s_multiplexing_survives_any_cut(sent, sizes):
    data = b"".join(bytes([s, 0, 0, 0]) + len(d).to_bytes(4, "big") + d for s, d in sent)
    got: dict[int, bytes] = {1: b"", 2: b""}

    def take(stream: int, piece: memoryview) -> None:
        got[stream] += bytes(piece)

    parser = MuxParser(take)
    for chunk in cut(data, sizes):
        parser.feed(chunk)
    assert got == {s: b"".join(d for t, d in sent if t == s) for s in (1, 2)}
