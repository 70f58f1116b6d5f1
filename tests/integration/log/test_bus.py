"""The subscription on a real Valkey: the log's order, confirmed, renewed, without hole or repeat."""

import asyncio
import contextlib

import pytest

from protocol.errors import DuetError, Unavailable
from server.bus import Bus
from server.room import Room
from server.roomlog import RoomLog, parse_delivery
from server.store import Store
from tests.integration.log.appends import message
from tests.integration.log.test_accidents import killed, watched
from tests.unit.server.rooms import Listener, Tasks

OWN_VALKEY = True


@contextlib.asynccontextmanager
async def background(work):
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Heard:
    """What a bus hands on, and a way to wait for it."""

    def __init__(self, store):
        self.payloads, self.renewed = [], []
        self._more = asyncio.Event()
        self.bus = Bus(store, on_payload=self._payload, on_renewed=self._renewed)

    def _payload(self, room, payload):
        self.payloads.append((room, parse_delivery(payload)))
        self._more.set()

    def _renewed(self, room):
        self.renewed.append(room)
        self._more.set()

    async def until(self, condition):
        async with asyncio.timeout(15):
            while not condition():
                self._more.clear()
                await self._more.wait()


async def test_deliveries_come_in_the_logs_order(node, log, room) -> None:
    heard = Heard(node.store())
    async with background(heard.bus.run()):
        await heard.bus.subscribe(room)
        logs = [RoomLog(node.store(), history_events=10_000) for _ in range(3)]
        await asyncio.gather(
            *(logs[number % 3].append(room, message(f"{number}")) for number in range(150))
        )
        await heard.until(lambda: len(heard.payloads) == 150)
        deliveries = [delivery for _, delivery in heard.payloads]
        assert [delivery.entry.offset for delivery in deliveries] == list(range(1, 151))
        entries, _ = await log.page(room, before=None, after=0, limit=200)
        assert [delivery.entry for delivery in deliveries] == entries
        assert {delivery.epoch for delivery in deliveries} == {(await log.room(room))["epoch"]}


async def test_once_subscribed_nothing_is_missed(node, log, room) -> None:
    heard = Heard(node.store())
    async with background(heard.bus.run()):
        for number in range(20):
            name = f"room-{number}"
            await log.create(name, "", "", "p")
            await heard.bus.subscribe(name)
            await log.append(name, message("hi", room=name))
        await heard.until(lambda: len(heard.payloads) == 20)
        assert [name for name, _ in heard.payloads] == [f"room-{n}" for n in range(20)]


async def test_a_repeated_key_is_told_once_and_a_deletion_as_none(node, log, room) -> None:
    heard = Heard(node.store())
    async with background(heard.bus.run()):
        await heard.bus.subscribe(room)
        for _ in range(3):
            await log.append(room, message("hi", key="k"))
        await log.delete(room)
        await heard.until(lambda: len(heard.payloads) >= 2)
        assert heard.payloads[1] == (room, None)
        assert len(heard.payloads) == 2


async def test_who_unsubscribed_hears_nothing_and_can_come_back(node, log, room) -> None:
    heard = Heard(node.store())
    async with background(heard.bus.run()):
        await heard.bus.subscribe(room)
        await heard.bus.unsubscribe(room)
        await log.append(room, message("unheard"))
        await heard.bus.subscribe(room)
        await log.append(room, message("heard"))
        await heard.until(lambda: heard.payloads)
        assert [delivery.entry.offset for _, delivery in heard.payloads] == [2]


async def test_without_redis_a_subscription_is_refused_in_time(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("server.bus.CALL_S", 0.2)
    heard = Heard(Store(f"unix://{tmp_path}/nobody"))
    async with background(heard.bus.run()):
        with pytest.raises(Unavailable):
            await heard.bus.subscribe("blue")


async def test_one_who_gives_up_does_not_cancel_another_who_waits(tmp_path) -> None:
    heard = Heard(Store(f"unix://{tmp_path}/nobody"))
    async with background(heard.bus.run()):
        waiting = asyncio.create_task(heard.bus.subscribe("blue"))
        await asyncio.sleep(0)
        await heard.bus.unsubscribe("blue")
        with pytest.raises(DuetError):
            await waiting


class Rooms:
    """Rooms on a bus, as the hub keeps them, with one listener in each."""

    def __init__(self, log, store, names):
        self.tasks = Tasks()
        self.rooms = {name: Room(name, log, self.tasks) for name in names}
        self.listeners = {name: Listener(name) for name in names}
        self.bus = Bus(store, on_payload=self._payload, on_renewed=self._renewed)
        self._more = asyncio.Event()

    def _payload(self, name, data):
        self.rooms[name].receive(parse_delivery(data))
        self._more.set()

    def _renewed(self, name):
        self.rooms[name].sync().add_done_callback(lambda _: self._more.set())

    async def open(self):
        for name, room in self.rooms.items():
            await self.bus.subscribe(name)
            await room.ready()
            room.attach(self.listeners[name], output=True).held = None

    async def until(self, offset):
        async with asyncio.timeout(15):
            while any(room.offset < offset for room in self.rooms.values()):
                self._more.clear()
                await self._more.wait()


async def test_rooms_catch_up_after_a_restart_without_hole_or_repeat(node, log) -> None:
    names = ("blue", "red")
    for name in names:
        await log.create(name, name, "", "p")
    rooms = Rooms(log, node.store(), names)
    async with watched(node), background(rooms.bus.run()):
        await rooms.open()
        for number in range(3):
            for name in names:
                await log.append(name, message(f"{number}", room=name))
            await rooms.until(3 * number + 1)
            await killed(node)
            for name in names:  # the subscription may not be back for these
                await log.append(name, message("missed", room=name))
                await log.append(name, message("missed too", room=name))
            await rooms.until(3 * number + 3)
    for listener in rooms.listeners.values():
        assert listener.offsets() == list(range(1, 10))
        assert listener.left == []
    rooms.tasks.check()
