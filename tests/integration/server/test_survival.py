"""Commands outlive their server: killed or stopped, and started again on the same data folder."""

import asyncio
import re
import signal

import pytest

from tests.integration.server.harness import JSON, SANDBOX_S, owner

LINES = 400
# A numbered stream: any missing or doubled byte shows.
COUNTING = f"for i in $(seq 1 {LINES}); do echo line $i; sleep 0.01; done; echo done >&2; exit 4"
EXPECTED = "".join(f"line {i}\n" for i in range(1, LINES + 1)).encode()


async def end(server, how: str) -> None:
    server.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    await asyncio.to_thread(server.process.wait, 12)


def assemble(wire, exec_id: str, have: bytes) -> bytes:
    """The stream as a client has it: overlap skipped, a hole is a failure."""
    data = bytearray(have)
    for frame in wire.frames:
        if frame["type"] == "exec.gap" and frame["exec"] == exec_id:
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
