"""The outbox: order kept, bytes bounded, and every byte either sent or told as a gap."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.codec import JSON
from server.outbox import Outbox
from server.wire import Outgoing
from tests.unit.server.frames import decoded

DROP, CLOSE = 1000, 4000


class Stream:
    """A source; `printed` is how far its output came."""

    def __init__(self, name):
        self.name, self.printed = name, 0

    def gap_frame(self, start, end):
        return Outgoing({"type": "gap", "name": self.name, "from": start, "to": end})


class Box:
    """An outbox with streams that print into it and a peer that reads."""

    def __init__(self):
        self.elsewhere = 0
        self.outbox = Outbox(JSON, DROP, CLOSE, lambda: self.elsewhere)
        self.streams = [Stream("a"), Stream("b")]
        self.read = []
        self.said = 0

    def print(self, which, size):
        stream = self.streams[which]
        start, stream.printed = stream.printed, stream.printed + size
        fields = {"type": "output", "name": stream.name, "from": start, "to": stream.printed}
        frame = Outgoing({**fields, "data": "x" * size}).wire(JSON)
        self.outbox.put_output(stream, start, stream.printed, frame)

    def say(self, size):
        self.outbox.put(Outgoing({"type": "say", "n": self.said, "text": "x" * size}).wire(JSON))
        self.said += 1

    def take(self):
        frames = self.outbox.take()
        self.elsewhere += sum(map(len, frames))
        self.read += decoded(b"".join(frames))

    def drain(self):
        self.take()
        self.elsewhere = 0
        if self.outbox.tell_gaps():
            self.drain()


SIZES = st.integers(1, 700)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("print"), st.integers(0, 1), SIZES),
        st.tuples(st.just("print"), st.integers(0, 1), SIZES),
        st.tuples(st.just("say"), SIZES),
        st.tuples(st.just("end"), st.integers(0, 1)),
        st.tuples(st.just("take")),
        st.tuples(st.just("flow"), st.integers(0, 3000)),
        st.tuples(st.just("drain")),
    ),
    max_size=60,
)


def apply(box, op):
    match op:
        case ("end", which):
            box.outbox.tell_gap(box.streams[which])
        case ("flow", size):
            box.elsewhere = max(0, box.elsewhere - size)
        case (name, *arguments):
            getattr(box, name)(*arguments)


@given(OPS)
def test_every_byte_is_sent_or_told_once_and_in_order(ops) -> None:
    box = Box()
    for op in ops:
        apply(box, op)
    box.drain()
    for stream in box.streams:
        at = 0
        for frame in box.read:
            if frame.get("name") == stream.name:
                assert frame["from"] == at
                at = frame["to"]
        assert at == stream.printed
    assert [frame["n"] for frame in box.read if frame["type"] == "say"] == list(range(box.said))


@given(OPS)
def test_marks_decide_what_is_dropped_and_when_it_is_too_slow(ops) -> None:
    box, dropping, left_out = Box(), False, set()
    for op in ops:
        waiting = len(box.outbox)
        gaps = frozenset(left_out)
        apply(box, op)
        if op[0] == "print":
            dropping = waiting > (DROP // 2 if dropping else DROP)
            if dropping:
                assert len(box.outbox) == waiting
                left_out.add(op[1])
            else:
                assert len(box.outbox) > waiting
                left_out.discard(op[1])
        elif op[0] == "end":
            assert (len(box.outbox) > waiting) == (op[1] in gaps)
            left_out.discard(op[1])
        elif op[0] == "drain":
            dropping = False
            left_out.clear()
        assert box.outbox.too_slow == (len(box.outbox) > CLOSE)


@given(OPS)
def test_live_output_alone_never_makes_a_session_too_slow(ops) -> None:
    box = Box()
    for op in ops:
        if op[0] != "say":
            apply(box, op)
            biggest_frame, gap_frames = 800, 60 * 60
            assert len(box.outbox) <= DROP + biggest_frame + gap_frames


def test_a_gap_is_told_before_the_next_output_and_before_the_end() -> None:
    box = Box()
    box.say(DROP)
    box.print(0, 10)
    box.print(1, 5)
    box.print(0, 10)
    box.take()
    box.elsewhere = 0
    box.print(0, 3)
    box.outbox.tell_gap(box.streams[1])
    box.say(1)
    box.take()
    told = [(f["type"], f.get("name"), f.get("from"), f.get("to")) for f in box.read[1:]]
    assert told == [
        ("gap", "a", 0, 20),
        ("output", "a", 20, 23),
        ("gap", "b", 0, 5),
        ("say", None, None, None),
    ]


def test_a_session_at_the_mark_does_not_flip_with_each_frame() -> None:
    box = Box()
    box.elsewhere = DROP + 1
    box.print(0, 1)
    box.elsewhere = DROP // 2 + 1
    box.print(0, 1)
    assert not box.outbox.tell_gaps()
    box.elsewhere = DROP // 2
    assert box.outbox.tell_gaps()
    assert not box.outbox.tell_gaps()
    box.take()
    assert [(f["from"], f["to"]) for f in box.read] == [(0, 2)]


def test_bytes_that_were_taken_and_not_accepted_count() -> None:
    box = Box()
    box.say(CLOSE)
    assert box.outbox.too_slow
    box.take()
    assert len(box.outbox) == box.elsewhere
    assert box.outbox.too_slow
    box.elsewhere = CLOSE
    assert not box.outbox.too_slow
