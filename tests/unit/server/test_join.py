"""Joining while everything goes on: no event lost or repeated, output whole and in its place."""

import asyncio
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import names
from protocol.codec import JSON
from protocol.errors import Unavailable, UnknownRoom
from sandbox.results import ExecResult
from server import join as join_module
from server import run as run_module
from server.execlog import ExecLog
from server.join import JoinRequest, after, join
from server.room import Room
from server.roomlog import Entry
from server.run import KeepLimits, Run
from tests.unit.server.frames import data_of
from tests.unit.server.rooms import Client, Listener, Log, Tasks
from tests.unit.server.streams import Dict
from tests.unit.server.virtual import settle, virtual

LIMITS = KeepLimits(head_bytes=600, tail_bytes=400, live_burst_bytes=2000, live_bytes_per_s=1000)
FINE = ExecResult(None, "", False, 0, None, 1)


class World:
    """One room, its log and its execs; a subscription that delivers when it is told to."""

    def __init__(self):
        self.roomlog = Log()
        self.execlog = ExecLog(
            Dict(), head_bytes=LIMITS.head_bytes, tail_bytes=LIMITS.tail_bytes, kept_s=60
        )
        self.tasks = Tasks()
        self.room = Room("blue", self.roomlog, self.tasks)
        self.published, self.runs, self.printed, self.ending = [], {}, {}, []
        self.listeners, self.joins = [], []

    def sandbox_of_room(self, _room):
        return None

    def agent_participants(self):
        return []

    def say(self, _number):
        self.published.append(self.roomlog.say())

    def deliver(self, _number):
        if self.published:
            self.room.receive(self.published.pop(0))

    def exec(self, number):
        name = f"blue.{number}"
        if name not in self.runs:
            run = Run("blue", {"room": "blue", "exec": name}, self.room, self.execlog, LIMITS)
            self.runs[name] = self.room.execs[name] = run
            self.printed[name] = b""
            self.published.append(self.roomlog.append(type="exec.started", exec=name))

    def print(self, number):
        for name, run in self.runs.items():
            data = b"0123456789" * (number + 1)
            before = self.printed[name]
            if name not in self.ending and len(before) + len(data) <= LIMITS.head_bytes:
                run.output("stdout", len(before), data)
                self.printed[name] += data

    def end(self, number):
        name = f"blue.{number}"
        if name in self.runs and name not in self.ending:
            self.ending.append(name)
            self.tasks.create_task(self._end(name))

    async def _end(self, name):
        fields = await self.runs[name].finish(FINE)
        self.published.append(self.roomlog.append(type="exec.exited", exec=name, **fields))

    def join(self, number):
        """A new session, or one that was here before and comes back from where it was."""
        if number == len(self.listeners):
            self.listeners.append(Listener(f"n{number}"))
            self.joins.append(None)
            self._join(number, self.listeners[-1])
        elif self.joins[number].done() and self.listeners[number] not in self.room.members:
            self._join(number, self.listeners[number])

    def again(self, number):
        """Join a joined room again."""
        if self.joins[number].done() and self.listeners[number] in self.room.members:
            self._join(number, self.listeners[number])

    def _join(self, number, listener):
        client = Client(listener.sinces)
        for frame in listener.frames:
            client.take(frame)
        listener.sinces.append(client.position)
        since = None if client.position is None else (self.roomlog.epoch, client.position)
        request = JoinRequest("r", since, True)
        self.joins[number] = self.tasks.create_task(join(self.room, listener, request, self))

    def leave(self, number):
        if self.joins[number].done():
            self.room.detach(self.listeners[number])

    async def answer(self, number):
        if self.roomlog.held:
            await self.roomlog.answer(number % len(self.roomlog.held))

    async def finish(self):
        """Everything under way comes to its end."""
        for name in self.runs:
            self.end(int(name.rpartition(".")[2]))
        for _ in range(4):
            await self.catch_up()
        assert not self.published
        self.tasks.check()

    async def catch_up(self):
        await asyncio.sleep(0.05)
        while self.published or self.roomlog.held:
            self.deliver(0)
            if self.roomlog.held:
                await self.roomlog.answer()
            await settle()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "say",
                "exec",
                "print",
                "print",
                "end",
                "deliver",
                "deliver",
                "catch_up",
                "join",
                "again",
                "leave",
                "leave",
                "answer",
                "answer",
                "wait",
                "settle",
            ]
        ),
        st.integers(0, 1),
    ),
    max_size=60,
)
"""`catch_up`: the subscription and every read come up to now."""


@settings(max_examples=300)
@given(STEPS)
def test_everyone_sees_everything_once_in_order_whatever_comes_when(steps) -> None:
    async def main():
        clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
        with mock.patch.object(run_module, "time", clock):
            world = World()
            await world.room.ready()
            for number in range(3):
                world.join(number)
                await settle()
            world.roomlog.hold()
            for step, number in steps:
                if step == "wait":
                    await asyncio.sleep((0.001, 0.1)[number])
                elif step == "catch_up":
                    await world.catch_up()
                elif step == "settle":
                    await settle(number)
                elif step == "answer":
                    await world.answer(number)
                else:
                    getattr(world, step)(number)
            await world.finish()
            for listener in world.listeners:
                _check(world, listener)

    virtual(main())


def _check(world, listener):
    client = Client(listener.sinces)
    for frame in listener.frames:
        client.take(frame)
    assert "left" not in listener.types()
    if listener in world.room.members:
        assert client.position == world.roomlog.offset
        assert set(client.started) == set(client.exited) == set(world.runs)
        for name, viewer in client.viewers.items():
            viewer.complete({"stdout": world.printed[name]})
    for frame in listener.frames:
        if frame["type"] == "joined":
            assert "participants" in frame
            assert listener.participant.id in [who["id"] for who in frame["participants"]]


@given(st.integers(0, 20), st.lists(st.integers(0, 30), max_size=20))
def test_what_was_held_follows_once_and_ascending(position, offsets) -> None:
    held = [Entry(offset, 0, b"{}") for offset in offsets]
    found = [entry.offset for entry in after(position, held)]
    assert found == sorted(set(found))
    assert all(offset > position for offset in found)
    if offsets == sorted(offsets):
        assert found == sorted({offset for offset in offsets if offset > position})


def joining(world, listener, *, since=None, output=True):
    return join(world.room, listener, JoinRequest("r", since, output), world)


def test_a_fresh_join_gets_the_newest_page_and_who_is_there() -> None:
    async def main():
        world = World()
        for number in range(60):
            world.roomlog.say(f"{number}")
        await world.room.ready()
        ada, ben = Listener("ada"), Listener("ben")
        await joining(world, ada)
        await joining(world, ben)
        (joined,) = ben.frames
        assert (joined["ref"], joined["epoch"], joined["offset"]) == ("r", "e1", 60)
        assert (joined["oldest"], joined["resumed"], joined["role"]) == (1, False, "member")
        assert [event["offset"] for event in joined["events"]] == list(range(11, 61))
        there = [(who["name"], who["role"]) for who in joined["participants"]]
        assert there == [("ada", "owner"), ("ben", "member")]
        assert ada.frames[0]["role"] == "owner"
        assert ada.types() == ["joined", "participant.joined"]

    virtual(main())


def test_a_return_gets_what_it_missed_as_ordinary_frames() -> None:
    async def main():
        world = World()
        for _ in range(5):
            world.roomlog.say()
        await world.room.ready()
        ada = Listener("ada")
        await joining(world, ada, since=("e1", 2))
        assert ada.types() == ["joined", "message", "message", "message"]
        assert ada.frames[0]["resumed"] is True
        assert ada.frames[0]["events"] == []
        assert ada.offsets() == [3, 4, 5]
        world.room.receive(world.roomlog.say())
        assert ada.offsets() == [3, 4, 5, 6]

    virtual(main())


@pytest.mark.parametrize("since", [("other", 2), ("e1", 99)])
def test_a_place_that_the_log_does_not_have_is_not_resumed(since) -> None:
    async def main():
        world = World()
        for _ in range(5):
            world.roomlog.say()
        await world.room.ready()
        ada = Listener("ada")
        await joining(world, ada, since=since)
        assert ada.types() == ["joined"]
        assert len(ada.frames[0]["events"]) == 5

    virtual(main())


def test_a_command_that_starts_during_a_join_is_shown_from_its_start() -> None:
    async def main():
        world = World()
        await world.room.ready()
        world.roomlog.hold()
        ada = Listener("ada")
        task = asyncio.create_task(joining(world, ada))
        await settle()
        world.exec(1)
        world.deliver(0)
        world.print(1)
        await world.roomlog.answer()
        await task
        assert ada.types() == ["joined", "exec.started", "exec.output"]
        assert ada.frames[2]["data"] == "0123456789" * 2

    virtual(main())


def test_a_return_gets_the_output_it_missed_before_its_end() -> None:
    async def main():
        world = World()
        await world.room.ready()
        world.exec(1)
        world.deliver(0)
        world.print(1)
        world.end(1)
        await asyncio.sleep(1)
        world.deliver(0)
        world.room.execs.clear()  # it ended a while ago
        ada, bot = Listener("ada"), Listener("bot")
        await joining(world, ada, since=("e1", 0))
        assert ada.types() == ["joined", "exec.started", "exec.output", "exec.exited"]
        assert ada.frames[2]["data"] == "0123456789" * 2
        await joining(world, bot, since=("e1", 0), output=False)
        assert bot.types() == ["joined", "exec.started", "exec.exited"]

    virtual(main())


def test_missed_output_is_sent_within_a_budget_and_the_rest_told() -> None:
    async def main():
        world = World()
        await world.room.ready()
        for number in range(3):
            world.exec(number)
            world.deliver(0)
        world.print(1)
        for number in range(3):
            world.end(number)
        await asyncio.sleep(1)
        world.room.execs.clear()
        ada = Listener("ada")
        with mock.patch("server.join._REPLAY_OUTPUT_BYTES", 45):
            await joining(world, ada, since=("e1", 3))
        output = [f for f in ada.frames if f["type"] in ("exec.output", "exec.gap")]
        assert [f["type"] for f in output] == ["exec.output", "exec.output", "exec.gap"]
        assert (output[2]["from"], output[2]["to"], output[2]["kept"]) == (0, 20, True)

    virtual(main())


def test_who_wants_no_output_gets_none_of_a_running_command() -> None:
    async def main():
        world = World()
        await world.room.ready()
        world.exec(1)
        world.deliver(0)
        world.print(1)
        bot = Listener("bot")
        await joining(world, bot, output=False)
        assert bot.types() == ["joined"]
        (running,) = bot.frames[0]["execs"]
        assert running["started"]["exec"] == "blue.1"
        assert running["streams"] == {"stdout": {"from": 0, "to": 20}}

    virtual(main())


def test_a_join_that_fails_leaves_no_trace() -> None:
    async def main():
        world = World()
        await world.room.ready()
        ada, ben = Listener("ada"), Listener("ben")
        await joining(world, ada)
        ada.frames.clear()
        world.roomlog.away = True
        with pytest.raises(Unavailable):
            await joining(world, ben)
        assert list(world.room.members) == [ada]
        assert ada.frames == []
        with pytest.raises(Unavailable):  # one that was inside is out then, and the others hear it
            await joining(world, ada)
        assert world.room.members == {}
        assert world.room.participants() == []
        world.roomlog.away, world.roomlog.deleted = False, True
        with pytest.raises(UnknownRoom):
            await joining(world, ben)
        assert world.room.members == {}

    virtual(main())


def test_a_join_that_is_cancelled_leaves_no_trace() -> None:
    async def main():
        world = World()
        await world.room.ready()
        world.roomlog.hold()
        ada = Listener("ada")
        task = asyncio.create_task(joining(world, ada))
        await settle()
        assert list(world.room.members) == [ada]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.room.members == {}
        assert ada.frames == []

    virtual(main())


def test_a_room_that_lets_go_during_a_join_says_so() -> None:
    async def main():
        world = World()
        await world.room.ready()
        world.roomlog.hold()
        ada = Listener("ada")
        task = asyncio.create_task(joining(world, ada))
        await settle()
        world.room.receive(None)
        await world.roomlog.answer()
        with pytest.raises(Unavailable):
            await task
        assert ada.types() == ["left"]
        assert world.room.participants() == []

    virtual(main())


def test_a_page_of_long_events_fits_its_frame_and_ends_with_the_newest() -> None:
    async def main():
        world = World()
        for _ in range(50):
            world.roomlog.say("x" * names.TEXT_CHARS)
        await world.room.ready()
        ada = Listener("ada")
        await joining(world, ada)
        (joined,) = ada.frames
        assert len(JSON.encode(joined)) <= names.SERVER_FRAME_BYTES
        assert joined["events"][-1]["offset"] == 50
        assert len(joined["events"]) > 5

    virtual(main())


@pytest.mark.parametrize("char", ["x", "\U0001f389", "\x01"])
def test_a_full_and_busy_room_fits_its_frame(char) -> None:
    """As many commands as may run, as long as they may be, and a crowd of long names."""
    name = "\U0001f389" * names.NAME_CHARS
    by = {"id": "p_0123456789abcdef", "name": name, "kind": "human"}
    started = {
        "by": by,
        "command": char * (names.COMMAND_BYTES // len(char.encode())),
        "cwd": char * 4096,
        "key": char * names.KEY_CHARS,
    }

    async def main():
        world = World()
        await world.room.ready()
        for number in range(700):
            someone = Listener(f"{number:016}")
            someone.participant = someone.participant.model_copy(update={"name": name})
            world.room.attach(someone, output=True)
            world.room.enter(someone)
        wanted = [f"blue.{number:016}" for number in range(128)]
        for one in wanted:
            world.roomlog.append(type="exec.started", exec=one, **started)
        world.room.sync()
        await settle()
        ada = Listener("ada")
        await joining(world, ada)
        joined = ada.frames[0]
        assert len(JSON.encode(joined)) <= names.SERVER_FRAME_BYTES
        told = {one["started"]["exec"]: one["started"] for one in joined["execs"]}
        assert set(told) == set(wanted)
        assert all(one["command"].endswith("…") and one["by"] == by for one in told.values())
        assert len(joined["participants"]) > 100
        assert ada.participant.id in [who["id"] for who in joined["participants"]]

    virtual(main())


def test_many_commands_that_printed_much_are_shown_from_their_last_bytes(monkeypatch) -> None:
    """What a join is sent at once is bounded, and what follows has no hole."""
    monkeypatch.setattr(join_module, "_REPLAY_RUNNING_BYTES", 1000)

    async def main():
        clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
        monkeypatch.setattr(run_module, "time", clock)
        world = World()
        for number in range(5):
            world.exec(number)
        await world.room.ready()
        for run in world.runs.values():
            run.started()
        world.print(19)  # 200 bytes of each: they fit
        whole, cut = Listener("whole"), Listener("cut")
        await joining(world, whole)
        world.print(9)
        await asyncio.sleep(0.1)  # in virtual time: it has gone out
        await joining(world, cut)
        world.print(0)
        await world.finish()
        for listener, first, before in ((whole, 0, 200), (cut, 100, 300)):
            joined, *rest = listener.frames
            for one in joined["execs"]:
                assert one["streams"] == {"stdout": {"from": first, "to": before}}
            ends = [at for at, frame in enumerate(rest) if frame["type"] == "exec.exited"]
            assert len(ends) == 5
            sent = [f for f in rest if f["type"] == "exec.output" and f["at"] < before]
            assert sum(frame["size"] for frame in sent) == 5 * (before - first) <= 1000
            for name, printed in world.printed.items():
                have = {}
                for frame in rest:
                    if frame["type"] == "exec.output" and frame["exec"] == name:
                        have |= dict(enumerate(data_of(frame), frame["at"]))
                assert have == dict(enumerate(printed[first:], first))

    virtual(main())


def test_what_fits_is_told_whole() -> None:
    async def main():
        world = World()
        cwd, command = "/workspace/" + "x" * 1000, "echo " + "y" * 1000
        for number in range(20):
            fields = {"command": command, "cwd": cwd, "key": f"k{number}"}
            world.roomlog.append(type="exec.started", exec=f"blue.{number}", **fields)
        await world.room.ready()
        ada = Listener("ada")
        await joining(world, ada)
        for number, one in enumerate(ada.frames[0]["execs"]):
            started = one["started"]
            assert (started["command"], started["cwd"]) == (command, cwd)
            assert started["key"] == f"k{number}"

    virtual(main())
