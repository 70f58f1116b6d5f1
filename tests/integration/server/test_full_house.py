"""A hundred and fifty rooms whose commands print, all seen live, and one room more."""

import asyncio
import subprocess
from collections import Counter

from tests.integration.server.harness import JSON, MSGPACK, owner

ROOMS = 150
AT_ONCE = 5  # starts, and ends: each is mostly the engine's work
LIMIT_S = 240.0
TICKS = "while :; do echo tick; sleep 1; done"


class Ticks:
    """How much each exec's output that a session saw has grown; looks at each frame once."""

    def __init__(self, wire) -> None:
        self.wire = wire
        self.seen: Counter[str] = Counter()
        self._at = 0

    def count(self) -> "Counter[str]":
        for frame in self.wire.frames[self._at :]:
            if frame["type"] == "exec.output":
                self.seen[frame["exec"]] += frame["size"] // len("tick\n")
            assert frame["type"] != "exec.gap", frame
        self._at = len(self.wire.frames)
        return self.seen

    async def beyond(self, before: "Counter[str]", execs, more: int) -> None:
        """Wait until each has printed `more` since."""
        await self.wire.until(
            lambda _: all(self.count()[one] >= before[one] + more for one in execs),
            max(0, len(self.wire.frames) - 1),
            limit_s=60,
        )


def containers(server) -> list[str]:
    """What the engine has of that server, running or not."""
    label = f"label=duet.owner={owner(server)}"
    command = ["docker", "ps", "-aq", "--filter", label]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


async def bounded(works) -> list:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(work):
        async with turn:
            return await work

    return await asyncio.gather(*map(one, works))


async def test_a_command_in_one_room_more(start) -> None:
    server = start(
        DUET_SANDBOX_POOL="0", DUET_ROOM_IMAGE="debian", DUET_ROOM_INSTANCE_TYPE="standard-1"
    )
    rooms = await bounded(server.new_room() for _ in range(ROOMS + 1))
    halves = rooms[:75], rooms[75:ROOMS]
    async with (
        asyncio.timeout(LIMIT_S),
        server.client(JSON, "Ada") as ada,
        server.client(MSGPACK, "Ben") as ben,
        server.client(JSON, "Vic") as vic,  # who only looks, with Val
        server.client(MSGPACK, "Val") as val,
    ):
        for wire, half in ((ada, halves[0]), (ben, halves[1]), (vic, halves[0]), (val, halves[1])):
            for room in half:
                await wire.join(room)

        async def begin(wire, room: str) -> str:
            exec_id = await wire.run(room, TICKS)
            await wire.until(
                lambda f: f["type"] == "exec.output" and f["exec"] == exec_id, limit_s=60
            )
            return exec_id

        who = {room: wire for wire, half in ((ada, halves[0]), (ben, halves[1])) for room in half}
        execs = await bounded(begin(wire, room) for room, wire in who.items())
        for viewer, some in ((Ticks(vic), execs[:75]), (Ticks(val), execs[75:])):
            await viewer.beyond(viewer.count().copy(), some, 2)

        await ada.join(rooms[-1])
        exited = await ada.exited(await ada.run(rooms[-1], "echo works"))
        assert (exited["ok"], exited["stdout"]) == (True, "works\n")
        listed = (await ada.ok("sandbox.list"))["sandboxes"]
        assert [one["status"] for one in listed] == ["running"] * (ROOMS + 1)

        async def end(wire, exec_id: str) -> str:
            await wire.ok("exec.cancel", exec=exec_id)
            return (await wire.exited(exec_id))["reason"]

        ends = await bounded(end(wire, one) for wire, one in zip(who.values(), execs, strict=True))
        assert set(ends) == {"cancelled"}
        assert not vic.of("exec.gap", "bye", "error")
    gone = await bounded(server.http("DELETE", f"/api/rooms/{room}") for room in rooms)
    assert {status for status, _ in gone} <= {200, 204}
    assert containers(server) == []
    assert "Traceback" not in server.log()
