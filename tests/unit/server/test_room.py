"""A room: every event once, in order; holes filled; presence by participant; ends told."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Unavailable, UnknownRoom
from server import room as module
from server.room import Room, exec_event
from server.wire import Outgoing
from tests.unit.server.rooms import Listener, Log, Tasks
from tests.unit.server.virtual import settle, virtual


async def ready_room(log=None):
    room = Room("blue", log or Log(), Tasks())
    await room.ready()
    return room


def add(room, *listeners):
    """Members that have joined and are live."""
    for listener in listeners:
        member = room.attach(listener, output=True)
        member.held, member.position = None, room.offset
        room.enter(listener)
    for listener in listeners:
        listener.frames.clear()
    return listeners[0]


class Feed:
    """A running exec, as delivery sees it."""

    def __init__(self, listener):
        self.sources = ["out", "err"]
        self.seen = []
        self._listener = listener

    def started(self):
        self.seen.append(("started", len(self._listener.frames)))

    def exited(self):
        self.seen.append(("exited", len(self._listener.frames)))


# Delivery


@given(st.lists(st.integers(0, 5), max_size=30), st.data())
def test_every_event_comes_once_in_order_whatever_the_subscription_loses(losses, data) -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada = add(room, Listener())
        recent = []
        for loss in losses:
            recent.append(log.say())
            if loss:  # else it is lost on its way
                room.receive(recent[-1])
            if loss == 5:  # and again, late
                room.receive(data.draw(st.sampled_from(recent)))
            if data.draw(st.booleans()):
                await settle(1)
        room.receive(log.say())
        await settle()
        assert ada.offsets() == list(range(1, len(losses) + 2))
        assert room.offset == log.offset
        room._tasks.check()

    virtual(main())


def test_what_comes_twice_costs_nothing() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada = add(room, Listener())
        delivery = log.say()
        room.receive(delivery)
        room.receive(delivery)
        await settle()
        assert ada.offsets() == [1]
        assert log.reads == 1

    virtual(main())


def test_what_comes_before_the_room_is_ready_is_not_lost() -> None:
    async def main():
        log = Log()
        log.hold()
        room = Room("blue", log, Tasks())
        opening = asyncio.create_task(room.ready())
        await settle()
        early = [log.say(), log.say()]
        ada = Listener()
        member = room.attach(ada, output=True)
        for delivery in early:
            room.receive(delivery)
        await log.answer()
        await opening
        assert [entry.offset for entry in member.held] == [1, 2]

    virtual(main())


def test_a_room_that_cannot_be_read_says_so_and_can_be_tried_again() -> None:
    async def main():
        log = Log()
        log.away = True
        room = Room("blue", log, Tasks())
        with pytest.raises(Unavailable):
            await room.ready()
        log.away = False
        await room.ready()
        log.deleted = True
        other = Room("blue", log, Tasks())
        with pytest.raises(UnknownRoom):
            await other.ready()

    virtual(main())


def test_a_hole_is_filled_also_when_redis_is_away_for_a_while() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada = add(room, Listener())
        log.say()
        log.away = True
        room.receive(log.say())
        await asyncio.sleep(5)
        assert ada.offsets() == []
        log.away = False
        room.receive(log.say())
        await asyncio.sleep(5)
        assert ada.offsets() == [1, 2, 3]

    virtual(main())


def test_another_epoch_sends_everyone_away_to_join_again() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada, ben = Listener("ada"), Listener("ben")
        add(room, ada, ben)
        log.replaced("e2", offset=7)
        room.receive(log.say())
        await settle()
        for who in (ada, ben):
            (left,) = [frame for frame in who.frames if frame["type"] == "left"]
            assert (left["code"], left["rejoin"]) == ("room_error", True)
            assert who.left == ["blue"]
            assert who.offsets() == []
        assert room.members == {}
        assert room.participants() == []
        assert (room.epoch, room.offset) == ("e2", 8)

    virtual(main())


def test_a_late_word_of_an_older_epoch_is_dropped() -> None:
    async def main():
        log = Log("old")
        late = [log.say(), log.say()]
        log.replaced("new", offset=0)
        room = await ready_room(log)
        ada = add(room, Listener())
        reads = log.reads
        for delivery in late:
            room.receive(delivery)
        await asyncio.sleep(60)
        assert log.reads <= reads + 2, "it reads again and again"
        room.receive(log.say())
        assert ada.offsets() == [1]
        assert ada.left == []

    virtual(main())


def test_who_missed_too_much_joins_again() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada = add(room, Listener())
        for _ in range(1001):
            log.say()
        room.receive(log.say())
        await settle()
        assert ada.types() == ["left"]
        assert room.offset == 1002

    virtual(main())


def test_a_deleted_room_lets_everyone_go_for_good() -> None:
    async def main():
        room = await ready_room()
        ada, ben = Listener("ada"), Listener("ben")
        add(room, ada)
        room.attach(ben, output=True)  # still joining
        room.receive(None)
        for who in (ada, ben):
            (left,) = [frame for frame in who.frames if frame["type"] == "left"]
            assert (left["code"], left["rejoin"]) == ("deleted", False)
            assert who.left == ["blue"]
        assert room.deleted
        assert room.members == {}
        with pytest.raises(UnknownRoom):
            await room.ready()

    virtual(main())


def test_a_deletion_that_was_missed_is_found_when_catching_up() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada = add(room, Listener())
        log.deleted = True
        await room.sync()
        assert ada.frames[-1]["code"] == "deleted"

    virtual(main())


def test_an_execs_feed_is_told_after_the_members_and_its_gaps_before_its_end() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada = add(room, Listener())
        feed = room.execs["x"] = Feed(ada)
        room.receive(log.append(type="exec.started", exec="x"))
        room.receive(log.say())
        room.receive(log.append(type="exec.exited", exec="x"))
        assert feed.seen == [("started", 1), ("exited", 3)]
        assert ada.told == [(2, "out"), (2, "err")]

    virtual(main())


def test_a_joiner_that_takes_too_long_is_let_go(monkeypatch) -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada, ben = Listener("ada"), Listener("ben")
        add(room, ada)
        room.attach(ben, output=True)
        for _ in range(4):
            room.receive(log.say())
        assert ben.types() == ["left"]
        assert ben.frames[0]["rejoin"] is True
        assert ada.offsets() == [1, 2, 3, 4]
        assert list(room.members) == [ada]

    monkeypatch.setattr(module, "_HELD_MAX", 3)
    virtual(main())


def test_only_exec_events_are_looked_into() -> None:
    log = Log()
    assert exec_event(log.append(type="exec.started", exec="x").entry) == ("exec.started", "x")
    assert exec_event(log.say('{"type":"exec.started","exec":"y"}').entry) is None


# Presence


@given(st.lists(st.tuples(st.sampled_from(["ada", "ben"]), st.integers(0, 2)), max_size=30))
def test_a_participant_comes_with_its_first_session_and_goes_with_its_last(toggles) -> None:
    async def main():
        room = await ready_room()
        watcher = add(room, Listener("watcher"))
        sessions, inside = {}, {}
        for name, number in toggles:
            key = (name, number)
            before = any(who == name for who, _ in inside)
            listener = sessions.setdefault(key, Listener(name, number))
            if key in inside:
                room.detach(inside.pop(key))
            else:
                inside[key] = add(room, listener)
            after = any(who == name for who, _ in inside)
            told = [(frame["type"], frame["participant"]["name"]) for frame in watcher.frames]
            watcher.frames.clear()
            change = {
                (False, True): [("participant.joined", name)],
                (True, False): [("participant.left", name)],
            }
            assert told == change.get((before, after), [])
            present = [who.name for who in room.participants()]
            assert sorted(present) == sorted({"watcher", *(who for who, _ in inside)})

    virtual(main())


def test_who_joins_again_is_counted_once_and_who_was_let_go_meanwhile_not_at_all() -> None:
    async def main():
        log = Log()
        room = await ready_room(log)
        ada, ben = Listener("ada"), Listener("ben")
        add(room, ada, ben)
        room.attach(ben, output=True)  # joins again
        assert [who.name for who in room.participants()] == ["ada", "ben"]
        log.replaced("e2")
        room.receive(log.say())
        await settle()
        assert room.members == {}
        add(room, ada)
        add(room, ben)
        ada.frames.clear()
        room.detach(ben)
        assert ada.types() == ["participant.left"]

    virtual(main())


def test_nobody_hears_of_a_session_that_never_entered() -> None:
    async def main():
        room = await ready_room()
        ada = add(room, Listener("ada"))
        ben = Listener("ben")
        room.attach(ben, output=True)
        assert [who.name for who in room.participants()] == ["ada"]
        room.detach(ben)
        room.detach(ben)  # and again
        assert ada.frames == []

    virtual(main())


# Broadcasts


def test_ephemeral_frames_go_to_who_has_joined_and_output_to_who_wants_it() -> None:
    async def main():
        room = await ready_room()
        ada, ben, bot, late = (Listener(name) for name in ("ada", "ben", "bot", "late"))
        add(room, ada, ben, bot)
        room.members[bot].output = False
        room.attach(late, output=True)
        room.broadcast(Outgoing({"type": "typing"}), besides=ada)
        frame = Outgoing({"type": "exec.output"})
        room.broadcast_output(None, 0, 1, frame)
        assert ada.types() == ["exec.output"]
        assert ben.types() == ["typing", "exec.output"]
        assert bot.types() == ["typing"]
        assert late.types() == []

    virtual(main())
