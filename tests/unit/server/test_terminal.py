"""AnswerFilter: no query gets through, however it is cut; everything else does, at its offset."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.terminal import AnswerFilter

QUERIES = [
    b"\x05",
    b"\x1bZ",
    b"\x1b[6n",
    b"\x1b[5n",
    b"\x1b[?6n",
    b"\x1b[c",
    b"\x1b[0c",
    b"\x1b[>c",
    b"\x1b[=c",
    b"\x1b[x",
    b"\x1b[?1$p",
    b"\x1b[4$p",
    b"\x1b[>q",
    b"\x1b[?u",
    b"\x1b[18t",
    b"\x1b[14;2t",
    b"\x1b[21t",
    b"\x1bP$qm\x1b\\",
    b"\x1bP+q544e\x1b\\",
    b"\x1b]4;1;?\x07",
    b"\x1b]10;?\x07",
    b"\x1b]11;?\x1b\\",
    b"\x1b]12;?\x07",
    b"\x1b]52;c;?\x07",
    b"\x1b]10;?;?\x07",
]
HARMLESS = [
    b"hello ",
    b"\x1b[31m",
    b"\x1b[2J",
    b"\x1b[10;20H",
    b"\x1b[?25l",
    b"\x1b]0;title\x07",
    b"\x1b]8;;http://x\x1b\\",
    b"\x1b]10;#fff\x07",
    b"\x1b[8;24;80t",
    b"\x1b[0 q",
    "ü€\n".encode(),
    b"n c x",
    b"\x1b[1;31mn",
    b"\x1b(B",
    b"\x1b7",
]


def through(data: bytes, cuts: list[int]) -> bytes:
    filter_ = AnswerFilter()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [filter_.feed(data[a:b]) for a, b in pairwise(places)]
    return b"".join(parts) + filter_.flush()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_becomes_nuls_wherever_it_is_cut(query) -> None:
    data = b"a" + query + b"b"
    for cut in range(len(data)):
        assert through(data, [cut]) == b"a" + bytes(len(query)) + b"b"


@given(st.lists(st.sampled_from(HARMLESS), max_size=20), st.lists(st.integers(0, 400), max_size=8))
def test_what_asks_for_nothing_arrives_unchanged(parts, cuts) -> None:
    data = b"".join(parts)
    assert through(data, cuts) == data


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=20),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_mixed_streams_keep_their_length_and_lose_only_queries(parts, cuts) -> None:
    pieces = [
        QUERIES[i % len(QUERIES)] if query else HARMLESS[i % len(HARMLESS)] for query, i in parts
    ]
    expected = [bytes(len(p)) if query else p for p, (query, _) in zip(pieces, parts, strict=True)]
    assert through(b"".join(pieces), cuts) == b"".join(expected)


@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=8))
def test_any_bytes_keep_their_number(data, cuts) -> None:
    assert len(through(data, cuts)) == len(data)


def test_an_endless_sequence_is_let_go() -> None:
    filter_ = AnswerFilter()
    assert len(filter_.feed(b"\x1b]0" + b"x" * 10_000)) > 9_000
