"""Output joined, capped and kept, against small models and with a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.output import (
    CHARACTER_S,
    FRAME_BYTES,
    JOIN_S,
    Allowance,
    Joiner,
    Kept,
    incomplete,
    whole,
)

TEXT = st.text(st.sampled_from("a é€\U0001f600\n"), max_size=40)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class KeptModel:
    """Byte by byte: the contiguous head, and the newest of everything else."""

    def __init__(self, head_bytes, tail_bytes):
        self.head_bytes, self.tail_bytes = head_bytes, tail_bytes
        self.head, self.rest, self.end = {}, [], 0

    def add(self, at, data):
        for offset, byte in enumerate(data, start=at):
            if offset < self.end:
                continue
            if offset == len(self.head) < self.head_bytes:
                self.head[offset] = byte
            else:
                self.rest.append((offset, byte))
            self.end = offset + 1

    def bytes(self):
        return self.head | dict(self.rest[-self.tail_bytes :])


@st.composite
def adds(draw):
    """Chunks as they come: mostly one after the other, some overlapping, some after a jump."""
    end, made = 0, []
    for data, kind, shift in draw(
        st.lists(
            st.tuples(st.binary(max_size=12), st.sampled_from("nnnnoj"), st.integers(0, 6)),
            max_size=12,
        )
    ):
        at = {"n": end, "o": max(0, end - shift), "j": end + shift}[kind]
        made.append((at, data))
        if data:
            end = max(end, at + len(data))
    return made


@given(adds(), st.integers(0, 10), st.integers(1, 20), st.data())
def test_kept_is_the_head_and_the_newest_tail(chunks, head, tail, data) -> None:
    kept, model = Kept(head, tail), KeptModel(head, tail)
    for at, chunk in chunks:
        kept.add(at, chunk)
        model.add(at, chunk)
    there = model.bytes()
    assert kept.end == model.end
    assert kept.all() == bytes(there[offset] for offset in sorted(there))
    assert kept.first() == min(there, default=kept.end)
    start = data.draw(st.integers(0, kept.end + 3))
    end = data.draw(st.integers(start + 1, kept.end + 4))
    at = start
    for piece in kept.read(start, end):
        assert piece.at == at < piece.end
        at = piece.end
        span = range(piece.at, piece.end)
        if piece.data is None:
            assert not any(offset in there for offset in span)
        else:
            assert list(piece.data) == [there[offset] for offset in span]
    assert at == max(start, min(end, kept.end))
    assert kept.has(start, end) == all(offset in there for offset in range(start, end))


@given(TEXT, st.integers(1, 30), st.integers(1, 30))
def test_an_excerpt_is_the_text_or_its_two_ends(text, head, tail) -> None:
    data = text.encode()
    kept = Kept(1000, 1000)
    kept.add(0, data)
    excerpt, cut = kept.excerpt(head, tail)
    assert len(excerpt.encode()) <= head + tail
    assert "\ufffd" not in excerpt
    assert cut == (len(data) > head + tail)
    if not cut:
        assert excerpt == text
    else:
        ends = [n for n in range(len(excerpt) + 1) if text.startswith(excerpt[:n])]
        assert any(text.endswith(excerpt[n:]) for n in ends)
        assert len(excerpt.encode()) >= head + tail - 6  # two characters that were cut


@given(st.binary(max_size=60), st.integers(0, 10), st.integers(1, 20))
def test_what_is_not_kept_is_told_as_cut(data, head, tail) -> None:
    kept = Kept(head, tail)
    kept.add(0, data)
    text, cut = kept.text()
    assert cut == (len(data) > head + tail)
    assert kept.excerpt(head, tail)[1] == cut
    if not cut:
        assert text == data.decode(errors="replace")


@given(TEXT.filter(bool), st.integers(0, 200))
def test_a_cut_character_is_recognised_from_both_sides(text, cut) -> None:
    data = text.encode()
    cut %= len(data) + 1
    first, last = data[:cut], data[cut:]
    kept = first[: len(first) - incomplete(first)]
    assert kept.decode() == text[: len(kept.decode())]
    assert text.endswith(whole(last).decode())
    missing = len(data) - len(kept) - len(whole(last))
    assert missing < 5
    assert incomplete(bytearray(first)) == incomplete(first)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"a", 0),
        (b"\xc3", 1),
        (b"\xe2\x82", 2),
        (b"\xf0\x9f\x98", 3),
        (b"\xc3\xa9", 0),
        (b"\x80\x80\x80", 0),
        (b"\xc0", 0),
        (b"\xff", 0),
        (b"\xf5\x80", 0),
        (b"\xe2\x82\xac\x82", 0),
    ],
)
def test_only_what_may_still_become_a_character_is_incomplete(data, count) -> None:
    assert incomplete(data) == count


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), max_size=30))
def test_an_allowance_gives_its_burst_and_then_its_rate(steps) -> None:
    clock = Clock()
    allowance, burst, per_s = Allowance(1000, 100, clock), 1000, 100
    began, taken = clock.now, 0
    for pause_ds, size in steps:
        clock.now += pause_ds / 10
        if allowance.take(size):
            taken += size
        assert taken <= burst + (clock.now - began) * per_s + 1e-6


def test_an_allowance_is_full_again_after_a_rest_and_never_fuller() -> None:
    clock = Clock()
    allowance = Allowance(1000, 100, clock)
    assert allowance.take(1000)
    assert not allowance.take(1)
    clock.now += 1.0
    assert allowance.take(100)
    clock.now += 1e6
    assert allowance.take(1000)
    assert not allowance.take(1)


class Line:
    """A joiner whose owner comes back exactly when it was told to."""

    def __init__(self):
        self.clock = Clock()
        self.joiner = Joiner(self.clock)
        self.sent = []  # (time, piece)
        self.arrived = []  # when each byte came

    def _note(self, pieces):
        self.sent += [(self.clock.now, piece) for piece in pieces]

    def add(self, data):
        self.arrived += [self.clock.now] * len(data)
        self._note(self.joiner.add(data))

    def wait(self, seconds):
        until = self.clock.now + seconds
        while (wait := self.joiner.wait_s()) is not None and self.clock.now + wait <= until:
            self.clock.now += wait
            before = len(self.sent), wait
            self._note(self.joiner.due())
            assert (len(self.sent), self.joiner.wait_s()) != before, "it was told to come in vain"
        self.clock.now = until

    def end(self):
        self._note(self.joiner.due(end=True))
        assert self.joiner.wait_s() is None
        return b"".join(piece.data for _, piece in self.sent)


STEPS = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=6) | st.sampled_from([b"\xe2", b"\x82\xac", b"x" * 9000]),
        st.sampled_from([0, 0, 0.001, 0.01, 0.02, 0.029, 0.05, 0.2]),
    ),
    max_size=25,
)


@given(STEPS)
def test_a_joiner_gives_all_bytes_in_order_and_in_time(steps) -> None:
    line = Line()
    for data, pause in steps:
        line.add(data)
        line.wait(pause)
    assert line.end() == b"".join(data for data, _ in steps)
    at = 0
    for when, piece in line.sent:
        assert (piece.at, piece.end) == (at, at + len(piece.data))
        assert 0 < len(piece.data) <= FRAME_BYTES
        assert when - line.arrived[at] <= CHARACTER_S + 0.001
        at = piece.end
    assert line.joiner.position == at


@given(st.lists(st.tuples(TEXT.filter(bool), st.integers(0, 60)), max_size=20))
def test_whole_characters_wait_30_ms_at_most(steps) -> None:
    line = Line()
    for text, pause_ms in steps:
        line.add(text.encode())
        line.wait(pause_ms / 1000)
    line.wait(JOIN_S)
    sent = {at: when for when, piece in line.sent for at in range(piece.at, piece.end)}
    assert len(sent) == len(line.arrived)
    for at, when in sent.items():
        assert when - line.arrived[at] <= JOIN_S + 0.001


@given(st.text(max_size=60), st.data())
def test_a_character_is_not_torn_when_its_rest_comes_in_time(text, data) -> None:
    line, rest = Line(), (text * data.draw(st.sampled_from([1, 1, 1, 900]))).encode()
    while rest:
        size = data.draw(st.integers(1, 4) | st.just(20_000))
        line.add(rest[:size])
        rest = rest[size:]
        line.wait(data.draw(st.integers(0, 30)) / 1000)  # four bytes come within 90 ms
    line.end()
    for _, piece in line.sent:
        piece.data.decode()


def test_the_first_chunk_after_a_pause_goes_at_once_and_its_followers_together() -> None:
    line = Line()
    line.add(b"a")
    assert [piece.data for _, piece in line.sent] == [b"a"]
    for byte in (b"b", b"c", b"d"):
        line.wait(0.005)
        line.add(byte)
    assert len(line.sent) == 1
    line.wait(JOIN_S)
    assert [piece.data for _, piece in line.sent] == [b"a", b"bcd"]
    assert line.sent[1][0] - line.sent[0][0] == pytest.approx(0.005 + JOIN_S)


def test_a_full_frame_waits_for_nobody() -> None:
    line = Line()
    line.add(b"a")
    line.add(b"b" * FRAME_BYTES)
    assert [len(piece.data) for _, piece in line.sent] == [1, FRAME_BYTES]


def test_a_character_that_never_ends_goes_after_100_ms() -> None:
    line = Line()
    line.add(b"\xe2\x82")
    line.wait(CHARACTER_S - 0.002)
    assert not line.sent
    line.wait(0.003)
    assert [piece.data for _, piece in line.sent] == [b"\xe2\x82"]


def test_what_precedes_an_incomplete_character_does_not_wait_for_it() -> None:
    line = Line()
    line.add(b"x")
    line.wait(0.001)
    line.add(b"y\xe2")
    line.wait(JOIN_S)
    assert [piece.data for _, piece in line.sent] == [b"x", b"y"]
    line.add(b"\x82\xac")
    line.wait(JOIN_S)
    assert line.sent[-1][1].data == "€".encode()
    assert line.sent[-1][1].at == 2
