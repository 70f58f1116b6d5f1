"""Stand-ins for what is around a room: its log, its listeners, its tasks."""

import asyncio

from protocol import names
from protocol.codec import encode_json
from protocol.errors import Unavailable, UnknownRoom
from protocol.model import Participant
from server.roomlog import Delivery, Entry, Running, Snapshot
from tests.unit.server.frames import fields_of
from tests.unit.server.viewer import Viewer


class Log:
    """A room log in memory with the scripts' rules; a snapshot may be held back."""

    def __init__(self, epoch="e1"):
        self.epoch, self.offset, self.entries, self.running = epoch, 0, [], {}
        self.deleted = self.away = False
        self.reads = 0
        self.held = None  # with `hold`: futures of snapshots that were read and not answered

    def append(self, **body):
        """Store an event; returns what the subscription will say of it."""
        self.offset += 1
        entry = Entry(self.offset, 1000 + self.offset, encode_json({**body, "room": "blue"}))
        self.entries.append(entry)
        if body["type"] == "exec.started":
            self.running[body["exec"]] = Running(entry, "s1")
        elif body["type"] == "exec.exited":
            del self.running[body["exec"]]
        return Delivery(self.epoch, entry)

    def say(self, text="hi"):
        return self.append(type="message", id=f"m_{self.offset}", text=text)

    def replaced(self, epoch, offset=0):
        """The log was lost, cut short or made again."""
        self.epoch, self.offset, self.entries, self.running = epoch, offset, [], {}

    def hold(self):
        self.held = []

    async def answer(self, index=0):
        """Let a snapshot that was read before arrive now."""
        self.held.pop(index).set_result(None)

    async def snapshot(self, _room, since):
        self.reads += 1
        found = self._snapshot(since)
        if self.held is None:
            await asyncio.sleep(0)
        else:
            answered = asyncio.get_running_loop().create_future()
            self.held.append(answered)
            await answered
        if self.away:
            raise Unavailable("away")
        if found is None:
            raise UnknownRoom("gone")
        return found

    def _snapshot(self, since):
        if self.deleted:
            return None
        epoch, offset = since or ("", 0)
        oldest = self.entries[0].offset if self.entries else self.offset + 1
        resumed = epoch == self.epoch and oldest - 1 <= offset <= self.offset
        resumed = resumed and self.offset - offset <= names.RESUME_EVENTS
        newest = [entry for entry in self.entries if entry.offset > offset]
        entries = newest if resumed else self.entries[-names.HISTORY_PAGE_DEFAULT :]
        running = dict(self.running)
        return Snapshot(self.epoch, self.offset, oldest, resumed, entries, running, "p_ada")


class Tasks:
    """Keeps its tasks, so that a failure in one is a failure of the test."""

    def __init__(self):
        self.all = []

    def create_task(self, coro):
        self.all.append(asyncio.create_task(coro))
        return self.all[-1]

    def check(self):
        for task in self.all:
            if task.done() and not task.cancelled():
                task.result()


class Listener:
    """A session that notes what it is sent."""

    def __init__(self, name="ada", session=0):
        self.participant = Participant(id=f"p_{name}", name=name, kind="human")
        self.session = session
        self.frames = []
        self.left = []
        self.told = []
        self.sinces = []

    def send(self, frame):
        self.frames.append(fields_of(frame))

    def send_output(self, source, start, end, frame):
        self.send(frame)

    def tell_gap(self, source):
        self.told.append((len(self.frames), source))

    def left_room(self, room):
        self.left.append(room)

    def offsets(self):
        return [frame["offset"] for frame in self.frames if "offset" in frame and "ts" in frame]

    def types(self):
        return [frame["type"] for frame in self.frames]


class Client:
    """What a client knows after frames; it fails where they break the contract.

    `sinces` are the positions it gave with its joins, in their order.
    """

    def __init__(self, sinces=()):
        self.sinces = list(sinces)
        self.joined = False
        self.position = None
        self.viewers = {}
        self.started, self.exited = {}, {}

    def take(self, frame):
        match frame["type"]:
            case "joined":
                self._joined(frame)
            case "exec.output" | "exec.gap":
                assert self.joined
                assert frame["exec"] in self.started, "output before its start"
                assert frame["exec"] not in self.exited, "output after its end"
                self.viewers.setdefault(frame["exec"], Viewer()).take(frame)
            case "left":
                self.joined = False
            case _ if "offset" in frame:
                assert self.joined
                assert frame["offset"] == self.position + 1, f"after {self.position}: {frame}"
                self.position = frame["offset"]
                self._exec(frame)

    def _joined(self, frame):
        """It starts again from where it said it was, or from the page."""
        since = self.sinces.pop(0)
        self.joined = True
        if frame["resumed"]:
            assert frame["events"] == []
            self.position = since
            for known in (self.started, self.exited):
                for name in [name for name, offset in known.items() if offset > since]:
                    del known[name]
        else:
            self.position = frame["offset"]
            self.started, self.exited = {}, {}
            for event in frame["events"]:
                self._exec(event)
            for running in frame["execs"]:
                self._exec(running["started"])

    def _exec(self, event):
        if event["type"] == "exec.started":
            self.started[event["exec"]] = event["offset"]
        elif event["type"] == "exec.exited":
            assert event["exec"] in self.started
            self.exited[event["exec"]] = event["offset"]
