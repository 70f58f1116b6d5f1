"""Appends to a real Valkey: dense offsets, keys, what is refused, what is deleted."""

import asyncio

import pytest

from protocol.errors import (
    Conflict,
    DuetError,
    Forbidden,
    KeyConflict,
    Unavailable,
    UnknownExec,
    UnknownMessage,
    UnknownRoom,
)
from server.roomlog import INDEX, Append, RoomLog
from tests.integration.log.appends import ADA, BEN, change, exited, message, started


async def stored(log, room="blue"):
    entries, more = await log.page(room, before=None, after=0, limit=200)
    assert not more
    return [entry.event() for entry in entries]


async def test_concurrent_appends_get_dense_offsets_and_times_that_never_go_back(
    node, room
) -> None:
    logs = [RoomLog(node.store(), history_events=10_000) for _ in range(4)]
    said = await asyncio.gather(
        *(logs[number % 4].append(room, message(f"{number}")) for number in range(200))
    )
    assert sorted(one.offset for one in said) == list(range(1, 201))
    assert len({one.epoch for one in said}) == 1
    events = await stored(logs[0])
    assert [event["offset"] for event in events] == list(range(1, 201))
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    by_offset = {one.offset: one for one in said}
    assert all(by_offset[event["offset"]].ts == event["ts"] for event in events)


async def test_a_clock_that_goes_back_does_not_take_the_room_with_it(log, room, store) -> None:
    first = await log.append(room, message("a"))
    ahead = first.ts + 3_600_000
    await store.call("HSET", "duet:{blue}:meta", "ts", ahead)
    done = [await log.append(room, message("b")) for _ in range(2)]
    assert [one.ts for one in done] == [ahead, ahead]
    assert [event["ts"] for event in await stored(log)] == [first.ts, ahead, ahead]


async def test_what_is_appended_is_read_back_as_it_was(log, room) -> None:
    text = 'é€\U0001f600 "quoted" \\ \u2028 {} <run>ls</run>'
    append = message(text)
    done = await log.append(room, append)
    (event,) = await stored(log)
    assert event == {**append.body, "offset": 1, "ts": done.ts}


async def test_a_key_gives_the_first_answer_and_stores_nothing_again(log, room) -> None:
    first = await log.append(room, message("hi", key="k"))
    again = await asyncio.gather(*(log.append(room, message("hi", key="k")) for _ in range(20)))
    assert set(again) == {first}
    assert first.answer == (await stored(log))[0]["id"]
    assert len(await stored(log)) == 1
    other = await log.append(room, message("hi", by=BEN, key="k"))
    assert other.offset == 2


async def test_twenty_at_once_with_one_key_are_one(log, room) -> None:
    done = await asyncio.gather(*(log.append(room, message("hi", key="k")) for _ in range(20)))
    assert len(set(done)) == 1
    assert len(await stored(log)) == 1


async def test_a_key_with_other_content_is_a_conflict(log, room) -> None:
    await log.append(room, message("hi", key="k"))
    for append in (message("ho", key="k"), Append({"type": "x", "by": ADA}, key="k")):
        with pytest.raises(KeyConflict):
            await log.append(room, append)
    assert len(await stored(log)) == 1


async def test_a_refused_append_does_not_use_up_its_key(log, room) -> None:
    with pytest.raises(UnknownMessage):
        await log.append(room, change("edit", "m_none", text="x"))
    refused = Append(
        {"type": "message.edited", "by": ADA, "id": "m"}, key="k", op="edit", subject="m"
    )
    with pytest.raises(UnknownMessage):
        await log.append(room, refused)
    assert (await log.append(room, message("hi", key="k"))).offset == 1


async def test_keys_have_an_end(log, room, store) -> None:
    await log.append(room, message("hi", key="k"))
    await log.append(room, message("ho"))
    left = {
        key.decode(): await store.call("PTTL", key)
        for key in await store.call("KEYS", "duet:{blue}:*")
        if b":key:" in key or b":once:" in key
    }
    assert len(left) == 2
    for key, ms in left.items():
        life_ms = 24 * 60 * 60 * 1000 if ":key:" in key else 10 * 60 * 1000
        assert life_ms - 60_000 < ms <= life_ms


async def test_a_command_ends_once(log, room) -> None:
    with pytest.raises(UnknownExec):
        await log.append(room, exited("blue.1"))
    await log.append(room, started("blue.1"))
    running = await log.running(room)
    assert running["blue.1"].server == "s1"
    assert running["blue.1"].started.event()["exec"] == "blue.1"
    first = await log.append(room, exited("blue.1"))
    assert await log.running(room) == {}
    assert await log.append(room, exited("blue.1", message="another end")) == first
    assert [event["type"] for event in await stored(log)] == ["exec.started", "exec.exited"]


async def test_ends_at_once_are_one(log, room) -> None:
    await log.append(room, started("blue.1"))
    ends = await asyncio.gather(*(log.append(room, exited("blue.1")) for _ in range(20)))
    assert len(set(ends)) == 1
    assert len(await stored(log)) == 2


async def test_a_deleted_room_is_never_made_again_by_an_append(log, room, store) -> None:
    await log.append(room, started("blue.1"))
    await log.append(room, message("hi", key="k"))
    await log.delete(room)
    for append in (message("late"), exited("blue.1"), message("hi", key="k"), started("blue.2")):
        with pytest.raises(UnknownRoom):
            await log.append(room, append)
    for read in (
        log.snapshot(room, None),
        log.page(room, before=None, after=None, limit=5),
        log.room(room),
        log.delete(room),
    ):
        with pytest.raises(UnknownRoom):
            await read
    assert await log.rooms() == []
    kept = [key for key in await store.call("KEYS", "*") if b":key:" not in key]
    assert [key for key in kept if b":once:" not in key and b":exited:" not in key] == []


async def test_a_room_made_again_is_another_and_takes_no_old_end(log, room) -> None:
    await log.append(room, started("blue.1"))
    before = await log.snapshot(room, None)
    await log.delete(room)
    await log.create(room, "Blue", "", "p_owner")
    after = await log.snapshot(room, (before.epoch, before.offset))
    assert after.epoch != before.epoch
    assert (after.offset, after.resumed, after.running) == (0, False, {})
    with pytest.raises(UnknownExec):
        await log.append(room, exited("blue.1"))
    assert (await log.append(room, message("new"))).epoch == after.epoch
    with pytest.raises(Unavailable) as stale:
        await log.append(room, message("old"), epoch=before.epoch)
    assert stale.value.retryable
    assert len(await stored(log)) == 1


async def test_a_key_of_a_room_that_is_gone_answers_for_nothing_in_the_next(log, room) -> None:
    await log.append(room, message("hi", key="k"))
    await log.append(room, message("two"))
    await log.delete(room)
    await log.create(room, "Blue", "", "p_owner")
    new = await log.append(room, message("other words", key="k"))
    assert new.offset == 1
    assert await log.append(room, message("other words", key="k")) == new
    assert [event["text"] for event in await stored(log)] == ["other words"]


async def test_an_id_is_taken_once(log, room, store) -> None:
    facts = await log.room(room)
    for owner in ("p_other", "p_owner"):
        with pytest.raises(Conflict):
            await log.create(room, "Other", "", owner)
    assert await log.room(room) == facts
    made = await asyncio.gather(
        *(log.create("red", f"{number}", "", "p") for number in range(10)), return_exceptions=True
    )
    assert sum(isinstance(one, int) for one in made) == 1
    assert await store.call("SCARD", INDEX) == 2


async def test_rooms_are_listed_newest_first_with_their_facts(log, room) -> None:
    await log.create("red", "Red", "About red", "p")
    await log.append("red", message("hi", room="red"))
    listed = await log.rooms()
    assert {one["id"] for one in listed} == {"blue", "red"}
    red = next(one for one in listed if one["id"] == "red")
    assert (red["name"], red["description"], red["offset"]) == ("Red", "About red", 1)
    assert red == await log.room("red")
    assert [-one["createdTs"] for one in listed] == sorted(-one["createdTs"] for one in listed)
    body = {"type": "room.updated", "room": "red", "by": ADA, "name": "New", "description": "é"}
    await log.append("red", Append(body, op="update", subject="New", value="é"))
    assert (await log.room("red"))["name"] == "New"
    assert (await log.room("red"))["description"] == "é"


async def test_only_its_author_changes_a_message_and_everyone_may_react(log, room) -> None:
    said = await log.append(room, message("hi"))
    for op in ("edit", "delete"):
        with pytest.raises(Forbidden):
            await log.append(room, change(op, said.answer, by=BEN, text="mine"))
        with pytest.raises(UnknownMessage):
            await log.append(room, change(op, "m_none", text="x"))
    with pytest.raises(UnknownMessage):
        await log.append(room, change("react", "m_none", emoji="+1", on=True))
    await log.append(room, change("react", said.answer, by=BEN, emoji="+1", on=True))
    await log.append(room, change("edit", said.answer, text="ho"))
    await log.append(room, change("delete", said.answer))
    for op in ("edit", "delete", "react"):
        with pytest.raises(UnknownMessage):
            await log.append(room, change(op, said.answer, text="late"))
    kinds = ["message", "message.reacted", "message.edited", "message.deleted"]
    assert [event["type"] for event in await stored(log)] == kinds


async def test_a_message_read_back_stands_as_it_is_now(log, room) -> None:
    edited, deleted, plain = [await log.append(room, message(text)) for text in "abc"]
    at = await log.append(room, change("edit", edited.answer, text="first"))
    at = await log.append(room, change("edit", edited.answer, text="a, but better"))
    await log.append(room, change("edit", deleted.answer, text="secret"))
    await log.append(room, change("delete", deleted.answer))
    snapshot = await log.snapshot(room, None)
    resumed = await log.snapshot(room, (snapshot.epoch, 0))
    assert resumed.resumed
    reads = [
        await stored(log),
        [entry.event() for entry in snapshot.entries],
        [entry.event() for entry in resumed.entries],
    ]
    for events in reads:
        by_id = {event["id"]: event for event in events if event["type"] == "message"}
        assert by_id[edited.answer]["text"] == "a, but better"
        assert by_id[edited.answer]["editedTs"] == at.ts
        assert by_id[deleted.answer]["deleted"] is True
        assert "text" not in by_id[deleted.answer]
        assert by_id[plain.answer]["text"] == "c"
        assert "editedTs" not in by_id[plain.answer]
        assert "secret" not in str(events)
        assert [event["offset"] for event in events] == list(range(1, 8))


async def test_clearing_goes_on_with_epoch_and_offsets(log, room, store) -> None:
    said = await log.append(room, message("hi"))
    await log.append(room, started("blue.1"))
    body = {"type": "room.cleared", "room": "blue", "by": ADA}
    await log.append(room, change("edit", said.answer, text="ho"))
    cleared = await log.append(room, Append(body, op="clear"))
    assert await store.call("EXISTS", "duet:{blue}:ids", "duet:{blue}:now") == 0
    assert (cleared.epoch, cleared.offset) == (said.epoch, 4)
    assert [event["type"] for event in await stored(log)] == ["room.cleared"]
    with pytest.raises(UnknownMessage):
        await log.append(room, change("edit", said.answer, text="x"))
    snapshot = await log.snapshot(room, (said.epoch, 1))
    assert (snapshot.oldest, snapshot.offset, snapshot.resumed) == (4, 4, False)
    assert set(snapshot.running) == {"blue.1"}
    assert (await log.append(room, exited("blue.1"))).offset == 5
    assert (await log.snapshot(room, (said.epoch, 3))).resumed


async def test_every_refusal_is_an_error_of_the_contract(log, room) -> None:
    with pytest.raises(DuetError) as refused:
        await log.append("nowhere", message("hi"))
    assert refused.value.code == "unknown_room"
    assert "nowhere" in refused.value.message
