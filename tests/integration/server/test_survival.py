"""Commands outlive their server: killed or stopped, and started again on the same data folder."""

import asyncio
import re
import signal

import pytest

from protocol.client import connect
from tests.integration.server.harness import JSON, SANDBOX_S, owner

LINES = 400
# A numbered stream: any missing or doubled byte shows.
COUNTING = f"for i in $(seq 1 {LINES}); do echo line $i; sleep 0.01; done; echo done >&2; exit 4"
EXPECTED = "".join(f"line {i}\n" for i in range(1, LINES + 1)).encode()


async def end(server, how: str) -> None:
    server.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    await asyncio.to_thread(server.process.wait, 12)


def assemble(wire, exec_id: str, have: bytes, *, gaps: bool = False) -> bytes:
    """The stream as a client has it: overlap skipped, a hole is a failure, so is a gap."""
    data = bytearray(have)
    for frame in wire.frames:
        if not gaps and frame["type"] == "exec.gap" and frame["exec"] == exec_id:
            raise AssertionError(f"a gap: {frame}")
        if (
            frame["type"] == "exec.output"
            and frame["exec"] == exec_id
            and frame["stream"] == "stdout"
        ):
            piece = frame["data"].encode()
            assert frame["at"] <= len(data), frame
            data += piece[len(data) - frame["at"] :]
    return bytes(data)


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_no_byte_is_missing_or_doubled_and_the_end_comes_once(start, how) -> None:
    server = start()
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        joined = await ada.join(room)
        await ada.exited(await ada.run(room, "true"))
        exec_id = await ada.run(room, COUNTING)
        await ada.printed(exec_id, b"line 40\n")
        await end(server, how)
        await ada.until_closed()
        have = assemble(ada, exec_id, b"")
        last = max(frame.get("offset", 0) for frame in ada.frames if "by" in frame)
        token = ada.welcome["token"]
    again = start()
    async with again.client(JSON, None, token=token) as ada:
        since = {"epoch": joined["epoch"], "offset": last}
        back = await ada.join(room, since=since)
        assert back["epoch"] == joined["epoch"]
        assert back["resumed"]
        exited = await ada.exited(exec_id, limit_s=SANDBOX_S)
        assert assemble(ada, exec_id, have) == EXPECTED
        assert (exited["reason"], exited["exitCode"]) == ("command_failed", 4)
        assert exited["bytes"] == {"stdout": len(EXPECTED), "stderr": 5}
        await ada.settle()
        assert len(ada.of("exec.exited", exec=exec_id)) == 1
        history = (await ada.ok("history", room=room, limit=200))["events"]
        ends = [e for e in history if e["type"] == "exec.exited" and e["exec"] == exec_id]
        assert len(ends) == 1
        ack = await ada.ok("exec.read", exec=exec_id, at=0)
        assert (ack["at"], ack["end"]) == (len(EXPECTED), len(EXPECTED))


async def test_a_command_that_ends_while_no_server_is_there_tells_its_own_end(start) -> None:
    server = start()
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        await ada.exited(await ada.run(room, "true"))
        exec_id = await ada.run(room, "echo begun; sleep 1; echo over; exit 9")
        await ada.printed(exec_id, b"begun\n")
        await end(server, "killed")
    await asyncio.sleep(2)  # the command's own time, with no server to tell of its end
    again = start()
    async with again.client(JSON, "Ben") as ben:
        await ben.join(room)
        page = await ben.until(lambda _: True)
        assert page
        history = (await ben.ok("history", room=room, limit=200))["events"]
        exited = next(
            (e for e in history if e["type"] == "exec.exited" and e["exec"] == exec_id), None
        )
        exited = exited or await ben.exited(exec_id)
        assert (exited["exitCode"], exited["stdout"]) == (9, "begun\nover\n")


async def test_input_cancel_and_timeout_work_on_what_was_taken_up(start) -> None:
    server = start()
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        await ada.exited(await ada.run(room, "true"))
        reading = await ada.run(room, "read x; echo got $x", stdin=True)
        sleeping = await ada.run(room, "echo s; sleep 300")
        await ada.printed(sleeping, b"s\n")
        short = await ada.run(room, "echo t; sleep 300", timeoutMs=4000)
        await ada.printed(short, b"t\n")
        await end(server, "killed")
    again = start()
    async with again.client(JSON, "Ben") as ben:
        joined = await ben.join(room)
        assert {reading, sleeping} <= {running["started"]["exec"] for running in joined["execs"]}
        await ben.input(reading, "it\n")
        await ben.printed(reading, b"got it\n")
        await ben.ok("exec.cancel", exec=sleeping)
        assert (await ben.exited(sleeping))["reason"] == "cancelled"
        history = (await ben.ok("history", room=room, limit=200))["events"]
        ends = [e for e in history if e["type"] == "exec.exited" and e["exec"] == short]
        exited = ends[0] if ends else await ben.exited(short)
        assert (exited["reason"], exited["stdout"]) == ("timeout", "t\n")


async def test_a_sandbox_that_went_away_meanwhile_is_told_so(start) -> None:
    server = start()
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        exec_id = await ada.run(room, "echo begun; sleep 300")
        await ada.printed(exec_id, b"begun\n")
        await end(server, "killed")
    remove = await asyncio.create_subprocess_shell(
        f"docker rm -f $(docker ps -q --filter label=duet.owner={owner(server)})",
        stdout=asyncio.subprocess.DEVNULL,
    )
    await remove.wait()
    again = start()
    async with again.client(JSON, "Ben") as ben:
        joined = await ben.join(room)
        assert joined["execs"] == []
        (exited,) = [
            e for e in joined["events"] if e["type"] == "exec.exited" and e["exec"] == exec_id
        ]
        assert (exited["ok"], exited["reason"]) == (False, "sandbox_terminated")
        assert exited["stdout"] == "begun\n"
        assert re.search("[A-Za-z]", exited["message"])
        assert (await ben.exited(await ben.run(room, "true")))["ok"]


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_command_without_a_room_is_no_different(start, how) -> None:
    server = start()
    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="lab", image="debian", instanceType="standard-1")
        await ada.until(lambda f: f["type"] == "sandbox" and f["status"] == "running", 0, SANDBOX_S)
        exec_id = (await ada.ok("exec", sandbox="lab", command=COUNTING, stdin=True))["exec"]
        await ada.printed(exec_id, b"line 40\n")
        await end(server, how)
        await ada.until_closed()
        have = assemble(ada, exec_id, b"")
        token = ada.welcome["token"]
    again = start()
    async with again.client(JSON, None, token=token) as ada, again.client(JSON, "Ben") as ben:
        await ada.ok("exec.read", exec=exec_id, at=len(have))  # which answers what the gap tells
        exited = await ada.exited(exec_id, limit_s=SANDBOX_S)
        assert assemble(ada, exec_id, have, gaps=True) == EXPECTED
        assert (exited["reason"], exited["exitCode"]) == ("command_failed", 4)
        assert exited["bytes"] == {"stdout": len(EXPECTED), "stderr": 5}
        assert len(ada.of("exec.exited", exec=exec_id)) == 1
        late = await ben.ok("exec.read", exec=exec_id, at=0)
        assert (late["at"], late["end"]) == (len(EXPECTED), len(EXPECTED))
        assert late["exited"]["exitCode"] == 4
        async with connect(again.url, name="Bot") as bot:
            run = await bot.follow_command(exec_id)
            found = [piece async for piece in run]
            assert b"".join(p.data for p in found if p.stream == "stdout") == EXPECTED
            assert (await run.wait()).exit_code == 4
        assert not ben.of("exec.exited", exec=exec_id)


async def test_a_command_without_a_room_holds_its_lease_and_takes_input_and_a_cancel(start) -> None:
    server = start()
    async with server.client(JSON, "Ada") as ada:
        for name in ("lab", "den"):
            await ada.ok("sandbox.start", id=name, image="debian", sleepAfter="2s")
        reading, sleeping = [
            (await ada.ok("exec", sandbox=name, command=command, stdin=True))["exec"]
            for name, command in (
                ("lab", "echo r; read x; echo got $x"),
                ("den", "echo s; sleep 300"),
            )
        ]
        await ada.printed(reading, b"r\n")
        await ada.printed(sleeping, b"s\n")
        await end(server, "killed")
    again = start()
    async with again.client(JSON, "Ben") as ben:
        await asyncio.sleep(4)  # twice the lease, in which nobody asks
        await ben.ok("exec.read", exec=reading, at=0)
        await ben.ok("exec.read", exec=sleeping, at=0)
        states = {one["id"]: one for one in (await ben.ok("sandbox.list"))["sandboxes"]}
        assert {one["status"] for one in states.values()} == {"running"}
        assert not any("expectedStopAt" in one for one in states.values())
        await ben.input(reading, "it\n")
        assert (await ben.exited(reading))["stdout"] == "r\ngot it\n"
        await ben.ok("exec.cancel", exec=sleeping)
        assert (await ben.exited(sleeping))["reason"] == "cancelled"


async def test_an_end_without_a_room_that_nobody_saw_is_told_to_who_asks(start) -> None:
    server = start()
    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="lab", image="debian")
        over = (await ada.ok("exec", sandbox="lab", command="echo a; sleep 1; exit 9"))["exec"]
        lost = (await ada.ok("exec", sandbox="lab", command="echo b; sleep 300"))["exec"]
        await ada.printed(over, b"a\n")
        await ada.printed(lost, b"b\n")
        await end(server, "killed")
    await asyncio.sleep(1.5)  # the command's own time, with no server to tell of its end
    again = start()
    async with again.client(JSON, "Ben") as ben:
        assert (await ended(ben, over))["exitCode"] == 9
        await ben.ok("exec.read", exec=lost, at=0)
        await end(again, "killed")
    remove = await asyncio.create_subprocess_shell(
        f"docker rm -f $(docker ps -q --filter label=duet.owner={owner(server)})",
        stdout=asyncio.subprocess.DEVNULL,
    )
    await remove.wait()
    third = start()
    async with third.client(JSON, "Cleo") as cleo:
        assert (await ended(cleo, over))["exitCode"] == 9
        exited = await ended(cleo, lost)
        assert (exited["ok"], exited["reason"]) == (False, "sandbox_terminated")
        assert exited["stdout"] == "b\n"


async def test_what_a_command_without_a_room_left_running_is_ended_by_its_cancel(start) -> None:
    server = start()

    async def left(wire) -> str:
        look = "pgrep -fx 'sleep 9[57]' | wc -l"
        exec_id = (await wire.ok("exec", sandbox="lab", command=look))["exec"]
        return (await wire.exited(exec_id))["stdout"]

    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="lab", instanceType="standard-1")
        leaving = [
            (await ada.ok("exec", sandbox="lab", command=f"setsid sleep {n} > /dev/null &"))["exec"]
            for n in (95, 97)
        ]
        for exec_id in leaving:
            assert (await ada.exited(exec_id))["ok"]
        assert await left(ada) == "2\n"
        await ada.ok("exec.cancel", exec=leaving[0])
        assert await left(ada) == "1\n"
        await end(server, "killed")
    again = start()
    async with again.client(JSON, "Ben") as ben:
        await ben.ok("exec.cancel", exec=leaving[1])
        assert await left(ben) == "0\n"
        assert (await ben.refused("exec.cancel", exec=leaving[1]))["code"] == "unknown_exec"
        nobody = "@nowhere.0123456789abcdef"
        assert (await ben.refused("exec.cancel", exec=nobody))["code"] == "unknown_exec"


async def ended(wire, exec_id: str) -> dict:
    """The end of a command without a room: of one that ended, with the answer to a read."""
    ack = await wire.ok("exec.read", exec=exec_id, at=0)
    return ack.get("exited") or await wire.exited(exec_id)
