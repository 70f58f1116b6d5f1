"""Where each byte stands among all that an exec printed, also when it is read again."""

import json

from hypothesis import given
from hypothesis import strategies as st

from server.execframes import kept_frames
from server.order import SEGMENTS_MAX, Order
from server.output import FRAME_BYTES, Kept, Piece
from tests.unit.server.frames import data_of, fields_of

PRINTED = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=9)), max_size=20
)


def note_all(printed):
    """An order of what was printed, and what a reference says: each byte's place and value."""
    order, ends, places = Order(), {}, {}
    pos = 0
    for stream, data in printed:
        at = ends.get(stream, 0)
        assert order.note(stream, at, len(data)) == pos
        for byte in data:
            places[stream, ends.get(stream, 0)] = (pos, byte)
            ends[stream] = ends.get(stream, 0) + 1
            pos += 1
    return order, ends, places


def stored(order):
    """The order as it comes back from Redis."""
    segments = json.loads(json.dumps(order.dump()))
    return Order({name: [(at, pos) for at, pos in some] for name, some in segments.items()})


@given(PRINTED)
def test_every_byte_has_its_place_also_when_read_again(printed) -> None:
    order, _, places = note_all(printed)
    for found in (order, stored(order)):
        for (stream, at), (pos, _) in places.items():
            assert found.pos(stream, at) == pos


@given(PRINTED, st.data())
def test_a_piece_is_cut_where_others_printed_in_between(printed, data) -> None:
    order, ends, places = note_all(printed)
    for stream, end in ends.items():
        start = data.draw(st.integers(0, end - 1))
        stop = data.draw(st.integers(start + 1, end))
        content = bytes(places[stream, at][1] for at in range(start, stop))
        for piece in (Piece(start, stop, content), Piece(start, stop, None)):
            at = start
            for pos, part in order.split(stream, piece):
                assert part.at == at < part.end
                for offset in range(part.at, part.end):
                    assert places[stream, offset][0] == pos + offset - part.at
                if piece.data is not None:
                    assert part.data == content[part.at - start : part.end - start]
                at = part.end
            assert at == stop


@given(PRINTED, st.integers(0, 12), st.integers(1, 12), st.booleans())
def test_kept_output_comes_as_it_was_printed(printed, head, tail, again) -> None:
    order, ends, places = note_all(printed)
    streams = {name: Kept(head, tail) for name in ends}
    for stream, data in printed:
        streams[stream].add(streams[stream].end, data)
    pieces = {name: list(kept.read(0, kept.end)) for name, kept in streams.items()}
    made = kept_frames(
        {"room": "blue", "exec": "x", "ref": "r"}, pieces, stored(order) if again else order
    )
    frames = [fields_of(frame) for frame in made]
    have, last = dict.fromkeys(ends, 0), -1
    for frame in frames:
        assert frame["ref"] == "r"
        stream = frame["stream"]
        at = frame["at"] if frame["type"] == "exec.output" else frame["from"]
        assert at == have[stream]
        if frame["type"] == "exec.gap":
            have[stream] = frame["to"]
            continue
        assert last < frame["pos"] == places[stream, at][0]
        last = frame["pos"]
        for offset, byte in enumerate(data_of(frame), at):
            assert places[stream, offset][1] == byte
        have[stream] += frame["size"]
    assert have == ends


@given(st.binary(min_size=1, max_size=200), st.integers(1, 300))
def test_kept_pieces_become_frames_of_the_usual_size(data, times) -> None:
    data *= times
    order = Order()
    order.note("stdout", 0, len(data))
    frames = [
        fields_of(frame)
        for frame in kept_frames(
            {"room": "blue", "exec": "x"}, {"stdout": [Piece(0, len(data), data)]}, order
        )
    ]
    assert b"".join(data_of(frame) for frame in frames) == data
    assert all(0 < frame["size"] <= FRAME_BYTES for frame in frames)
    assert all(frame["pos"] == frame["at"] for frame in frames)
    assert "ref" not in frames[0]


def test_a_chatterer_on_two_streams_is_remembered_within_bounds() -> None:
    order = Order()
    for turn in range(2 * SEGMENTS_MAX):
        order.note("stdout", turn, 1)
        order.note("stderr", turn, 1)
    assert all(len(some) <= SEGMENTS_MAX for some in order.dump().values())
    newest = 2 * SEGMENTS_MAX - 1
    assert order.pos("stdout", newest) == 2 * newest
    assert order.pos("stderr", newest) == 2 * newest + 1
    places = [order.pos("stdout", at) for at in range(0, newest, 100)]
    assert places == sorted(places)
