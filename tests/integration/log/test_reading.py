"""Pages and snapshots of a real log: bounds, order, what was trimmed, where a return resumes."""

import asyncio
import json

import pytest

from protocol import names
from protocol.errors import UnknownMessage
from server.roomlog import RoomLog
from tests.integration.log.appends import change, exited, message, started


async def say(log, count, size=1):
    return [await log.append("blue", message("x" * size)) for _ in range(count)]


async def offsets(log, **asked):
    asked = {"before": None, "after": None, "limit": 50} | asked
    entries, more = await log.page("blue", **asked)
    return [entry.offset for entry in entries], more


@pytest.fixture
async def ten(log, room):
    return await say(log, 10)


@pytest.mark.parametrize(
    ("asked", "found", "more"),
    [
        ({"limit": 50}, range(1, 11), False),
        ({"limit": 3}, range(8, 11), True),
        ({"limit": 10}, range(1, 11), False),
        ({"before": 8, "limit": 3}, range(5, 8), True),
        ({"before": 4, "limit": 3}, range(1, 4), False),
        ({"before": 1}, [], False),
        ({"before": 0}, [], False),
        ({"before": 99, "limit": 2}, range(9, 11), True),
        ({"before": 2**53 - 1, "limit": 2}, range(9, 11), True),
        ({"after": 0, "limit": 3}, range(1, 4), True),
        ({"after": 7, "limit": 3}, range(8, 11), False),
        ({"after": 6, "limit": 3}, range(7, 10), True),
        ({"after": 10}, [], False),
        ({"after": 99}, [], False),
        ({"after": 2**53 - 1}, [], False),
    ],
)
async def test_a_page_is_ascending_and_says_whether_there_is_more(
    log, ten, asked, found, more
) -> None:
    assert await offsets(log, **asked) == (list(found), more)


async def test_an_empty_room_has_an_empty_page_and_snapshot(log, room) -> None:
    assert await offsets(log) == ([], False)
    snapshot = await log.snapshot(room, None)
    assert (snapshot.offset, snapshot.oldest, snapshot.resumed) == (0, 1, False)
    assert (list(snapshot.entries), dict(snapshot.running), snapshot.owner) == ([], {}, "p_owner")
    assert (await log.snapshot(room, (snapshot.epoch, 0))).resumed


async def test_long_events_make_short_pages_that_lead_on(log, room) -> None:
    await say(log, 30, size=names.TEXT_CHARS)
    seen, before = [], None
    while True:
        entries, more = await log.page(room, before=before, after=None, limit=200)
        assert sum(len(entry.body) for entry in entries) < names.SERVER_FRAME_BYTES
        seen = [entry.offset for entry in entries] + seen
        before = seen[0]
        if not more:
            break
    assert seen == list(range(1, 31))
    forward, after = [], 0
    while True:
        entries, more = await log.page(room, before=None, after=after, limit=200)
        forward += [entry.offset for entry in entries]
        after = forward[-1]
        if not more:
            break
    assert forward == seen


async def test_an_old_log_is_trimmed_and_says_where_it_begins(store, room) -> None:
    log = RoomLog(store, history_events=100)
    first = (await say(log, 1))[0]
    for _ in range(12):
        await say(log, 100)
    snapshot = await log.snapshot(room, None)
    assert snapshot.offset == 1201
    assert 1201 - 300 < snapshot.oldest <= 1201 - 99
    assert await offsets(log, after=0, limit=1) == ([snapshot.oldest], True)
    assert await offsets(log, before=snapshot.oldest) == ([], False)
    epoch = snapshot.epoch
    assert not (await log.snapshot(room, (epoch, snapshot.oldest - 2))).resumed
    back = await log.snapshot(room, (epoch, snapshot.oldest - 1))
    assert back.resumed
    assert [entry.offset for entry in back.entries] == list(range(snapshot.oldest, 1202))
    ids = await store.call("HLEN", "duet:{blue}:ids")
    assert ids < 500, "what was trimmed still has an index"
    assert await store.call("HEXISTS", "duet:{blue}:ids", first.answer) == 0


async def test_a_trimmed_message_cannot_be_changed(store, room) -> None:
    log = RoomLog(store, history_events=100)
    (first,) = await say(log, 1)
    await say(log, 400)
    with pytest.raises(UnknownMessage):
        await log.append(room, change("react", first.answer, emoji="+1", on=True))


@pytest.mark.parametrize("behind", [0, 1, 999, 1000])
async def test_a_return_within_the_limit_gets_exactly_what_it_missed(log, room, behind) -> None:
    await _fill(log, 1005)
    snapshot = await log.snapshot(room, None)
    back = await log.snapshot(room, (snapshot.epoch, 1005 - behind))
    assert back.resumed
    assert [entry.offset for entry in back.entries] == list(range(1006 - behind, 1006))


@pytest.mark.parametrize("since", [(None, 4), (None, 1006), ("other", 1005), ("", 0)])
async def test_a_place_beyond_the_limit_or_the_log_gets_the_newest_page(log, room, since) -> None:
    await _fill(log, 1005)
    snapshot = await log.snapshot(room, None)
    epoch = snapshot.epoch if since[0] is None else since[0]
    back = await log.snapshot(room, (epoch, since[1]))
    assert not back.resumed
    assert [entry.offset for entry in back.entries] == list(range(956, 1006))


async def _fill(log, count):
    """Many events quickly: the appends of one script call each, sent together."""
    await asyncio.gather(*(log.append("blue", message("x")) for _ in range(count)))


async def test_a_snapshot_of_long_events_ends_with_the_newest(log, room) -> None:
    await say(log, 50, size=names.TEXT_CHARS)
    snapshot = await log.snapshot(room, None)
    found = [entry.offset for entry in snapshot.entries]
    assert found == list(range(found[0], 51))
    assert sum(len(entry.body) for entry in snapshot.entries) < names.SERVER_FRAME_BYTES


async def test_a_snapshot_knows_what_runs(log, room) -> None:
    await log.append(room, started("blue.1"))
    await log.append(room, started("blue.2"))
    await log.append(room, exited("blue.1"))
    snapshot = await log.snapshot(room, None)
    (running,) = snapshot.running.values()
    assert json.loads(running.started.json())["offset"] == 2
    assert running.started.event()["exec"] == "blue.2"
