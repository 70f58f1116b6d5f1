"""An exec's log: the head, the newest tail, holes told, and nothing lost by sending again."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from server.execlog import STORE_BYTES, ExecLog
from server.order import Order
from server.output import Kept, Piece
from tests.unit.server.streams import STEPS, Dict, check_stream


def exec_log(store, **limits):
    return ExecLog(store, **{"head_bytes": 100, "tail_bytes": 100, "kept_s": 60, **limits})


@given(STEPS)
def test_what_is_read_is_what_was_printed_or_a_hole(steps) -> None:
    asyncio.run(check_stream(Dict(), steps))


async def test_a_flood_stores_its_newest_and_says_what_is_missing() -> None:
    log = exec_log(Dict(), tail_bytes=2 * STORE_BYTES)
    writer, kept = log.writer("blue", "x", "pty"), Kept(100, 2 * STORE_BYTES)
    kept.add(0, b"h" * 100 + b"m" * STORE_BYTES + b"t" * STORE_BYTES)
    commands = writer.commands(kept)
    assert sum(len(part) for command in commands for part in command if isinstance(part, bytes)) < (
        STORE_BYTES + 200
    )
    await log.store(commands)
    pieces = await log.read("blue", "x", "pty", (0, kept.end))
    hole, end = 100 + STORE_BYTES, kept.end
    assert [(p.at, p.end, p.data is None) for p in pieces] == [
        (0, 100, False),
        (100, hole, True),
        (hole, end, False),
    ]


async def test_nothing_new_makes_no_commands() -> None:
    log = exec_log(Dict())
    writer, kept = log.writer("blue", "x", "stdout"), Kept(100, 100)
    assert writer.commands(kept) == []
    kept.add(0, b"x" * 150)
    assert writer.commands(kept) != []
    assert writer.stored == 150
    assert writer.commands(kept) == []


async def test_everything_that_is_stored_has_an_end() -> None:
    store = Dict()
    log = exec_log(store, kept_s=77)
    writer, kept = log.writer("blue", "x", "stdout"), Kept(100, 100)
    kept.add(0, b"x" * 150)
    await log.store(writer.commands(kept))
    await log.store_ends("blue", "x", {"stdout": 150}, Order())
    assert set(store.lives) == set(store.keys)
    assert set(store.lives.values()) == {77}
    assert len(store.keys) == 3


async def test_streams_execs_and_rooms_are_apart() -> None:
    log, kept = exec_log(Dict()), {}
    places = [("blue", "x", "stdout"), ("blue", "x", "stderr"), ("blue", "y", "stdout")]
    places.append(("red", "x", "stdout"))
    for number, place in enumerate(places):
        kept[place] = Kept(100, 100)
        kept[place].add(0, b"%d" % number * 200)
        await log.store(log.writer(*place).commands(kept[place]))
    for number, place in enumerate(places):
        pieces = await log.read(*place, (0, 200))
        assert b"".join(piece.data for piece in pieces) == b"%d" % number * 200
    assert await log.stored_ends("blue", "x") == {"stdout": 200, "stderr": 200}


async def test_what_is_not_there_is_a_hole() -> None:
    log = exec_log(Dict())
    assert await log.read("blue", "x", "stdout", (5, 9)) == [Piece(5, 9, None)]
    assert await log.stored_ends("blue", "x") == {}
    assert await log.ends("blue", "x") is None


@given(st.dictionaries(st.sampled_from(["stdout", "stderr", "pty"]), st.integers(0, 2**53 - 1)))
def test_ends_are_given_back(ends) -> None:
    async def main():
        log = exec_log(Dict())
        await log.store_ends("blue", "x", ends, Order())
        assert (await log.ends("blue", "x"))[0] == ends

    asyncio.run(main())
