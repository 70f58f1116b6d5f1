"""How commands end, as it is told on the wire: by state, in time, once, and with what was printed."""

import asyncio
import time

import pytest

from tests.integration.server.harness import JSON, SANDBOX_S, owner
from tests.integration.server.rules import data_of

TOLD_S = 5.0
"""Every end and every state is told this soon after it can be known."""


async def docker(*words: str) -> str:
    process = await asyncio.create_subprocess_exec("docker", *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode().strip()


def container(server, room: str) -> str:
    """The name of a room's container."""
    return f"duet-{owner(server)}-sandbox-{room}"


async def test_memory_that_ran_out_is_told_by_the_kernels_count(server) -> None:
    async with server.client(JSON, "Ada") as ada:

        async def run(command: str) -> str:
            return (await ada.ok("exec", sandbox="small", command=command))["exec"]

        await ada.ok("sandbox.start", id="small", image="debian", instanceType="lite")
        beside = await run("echo on; sleep 95")
        await ada.printed(beside, b"on\n")
        exited = await ada.exited(await run("exec python3 -c 'x = bytearray(10**9)'"))
        assert (exited["reason"], exited["retryable"]) == ("out_of_memory", False)
        await ada.ok("exec.cancel", exec=beside)
        exited = await ada.exited(beside)
        assert exited["reason"] == "cancelled"
        assert "ran out of memory" in exited["warnings"][0]
        for command in ("exit 137", "kill -9 $$", "echo Killed; echo Out of memory; exit 1"):
            exited = await ada.exited(await run(command))
            assert exited["reason"] == "command_failed", command
            assert "warnings" not in exited
        await ada.ok("sandbox.destroy", id="small")


async def test_what_prints_too_much_is_ended_with_its_two_ends_kept(start) -> None:
    limit = 3_000_000
    server = start(DUET_EXEC_OUTPUT_LIMIT_BYTES=str(limit))
    room = await server.new_room()
    whole = "".join(f"{n}\n" for n in range(1, 600_000)).encode()[:limit]
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        exec_id = await ada.run(room, "trap 'exit 0' TERM; seq 1 90000000; touch went-on")
        exited = await ada.exited(exec_id)
        assert (exited["ok"], exited["reason"]) == (False, "output_limit")
        assert exited["retryable"] is False
        assert exited["bytes"]["stdout"] == limit
        assert exited["truncated"]["stdout"] is True
        for at, size in ((0, 256 * 1024), (limit - 768 * 1024, 768 * 1024)):
            found = b""
            while len(found) < size:
                begin = len(ada.frames)
                await ada.ok("exec.read", exec=exec_id, at=at + len(found), limit=65_536)
                pieces = [f for f in ada.frames[begin:] if f["type"] == "exec.output"]
                found += b"".join(map(data_of, pieces))
            assert found[:size] == whole[at : at + size]
        assert (await ada.exited(await ada.run(room, "ls")))["stdout"] == ""
    path = f"/api/rooms/{room}/sandbox/exec"
    status, answer = await server.http("POST", path, {"cmd": "yes"})
    assert (status, answer["result"]["reason"]) == (200, "output_limit")
    assert len(answer["result"]["stdout"]) == 1024 * 1024


@pytest.mark.parametrize(
    ("harm", "saved"),
    [(("rm", "-f"), False), (("kill",), True), (("stop", "-t", "1"), True)],
    ids=["removed", "killed", "stopped"],
)
async def test_a_container_that_goes_is_told_in_time_and_the_next_command_works(
    server, room, harm, saved
) -> None:
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        runs = [
            await ada.run(room, "while :; do echo line; sleep 0.01; done"),
            await ada.run(room, "echo line; read x", stdin=True),
            await ada.run(room, "echo line; sleep 91", pty={"cols": 80, "rows": 24}),
        ]
        for exec_id, stream in zip(runs, ("stdout", "stdout", "pty"), strict=True):
            await ada.until(
                lambda _, e=exec_id, s=stream: b"line" in ada.output(e, s), limit_s=SANDBOX_S
            )
        begin = len(ada.frames)
        await docker(*harm, container(server, room))
        began = time.monotonic()
        for exec_id in runs:
            exited = await ada.exited(exec_id)
            assert (exited["ok"], exited["reason"]) == (False, "sandbox_terminated")
            assert exited["retryable"] is True
            assert "exitCode" not in exited
        told = await ada.until(
            lambda f: f["type"] == "sandbox" and f["status"] == "stopped", begin, limit_s=SANDBOX_S
        )
        assert time.monotonic() - began < TOLD_S
        assert told["workspaceSaved"] is saved
        assert (await ada.exited(await ada.run(room, "echo anew")))["stdout"] == "anew\n"
        assert all(len(ada.of("exec.exited", exec=exec_id)) == 1 for exec_id in runs)


async def test_a_command_at_once_after_the_container_was_removed(server, room) -> None:
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        old = await ada.run(room, "while :; do echo line; done")
        await ada.printed(old, b"line\n")
        await docker("rm", "-f", container(server, room))
        new = await ada.run(room, "echo anew")  # nobody has told the end of the old one yet
        exited = await ada.exited(new)
        if exited["ok"]:
            assert exited["stdout"] == "anew\n"
        else:
            assert exited["reason"] in ("sandbox_terminated", "sandbox_unavailable")
            assert exited["retryable"] is True
        assert (await ada.exited(old))["reason"] == "sandbox_terminated"
        assert (await ada.exited(await ada.run(room, "echo later")))["stdout"] == "later\n"


async def test_running_and_recent_commands_are_listed(server, room) -> None:
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        over = await ada.run(room, "exit 3")
        await ada.exited(over)
        going = await ada.run(room, "echo on; sleep 90")
        await ada.printed(going, b"on\n")
        status, body = await server.http("GET", f"/api/rooms/{room}/execs")
        assert status == 200
        found = {one["exec"]: one for one in body["execs"]}
        assert list(found) == [over, going] or set(found) == {over, going}
        assert [found[one]["running"] for one in (over, going)] == [False, True]
        assert found[over]["exited"]["exitCode"] == 3
        assert found[going]["started"]["command"] == "echo on; sleep 90"
        assert "exited" not in found[going]
        await ada.ok("exec.cancel", exec=going)
        await ada.exited(going)
        _, body = await server.http("GET", f"/api/rooms/{room}/execs")
        assert not any(one["running"] for one in body["execs"])


@pytest.mark.parametrize("place", ["room", "sandbox"])
async def test_a_commands_environment_is_written_nowhere(start, place) -> None:
    """In no log, no argv, no file of the server's, no event; also where the command fails."""
    secret, other = "hunter2-a91c", "hunter2-b07d"
    server = start(DUET_LOG_LEVEL="debug", DUET_SANDBOX_POOL="0")
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        if place == "room":
            await ada.join(room)
            where, name = {"room": room}, f"sandbox-{room}"
        else:
            where, name = {"sandbox": "lab"}, "lab"
            await ada.ok("sandbox.start", id="lab", image="debian")

        async def run(command: str, **fields: object) -> dict:
            return await ada.exited(
                (await ada.ok("exec", **where, command=command, **fields))["exec"]
            )

        env = {"TOKEN": secret}
        assert (await run("echo ${#TOKEN}", env=env, key="k"))["stdout"] == f"{len(secret)}\n"
        assert not (await run("exit 3", env=env))["ok"]
        assert not (await run("true", env=env, cwd="/nowhere"))["ok"]
        assert (await run("sleep 60", env=env, timeoutMs=300))["reason"] == "timeout"
        for wrong in ({other: "a\0b"}, {"": other}, {f"A={other}": "x"}, {"A": 5, "B": other}):
            reply = await ada.ask("exec", **where, command="true", env=wrong)
            assert reply["type"] == "error" or not (await ada.exited(reply["exec"]))["ok"]
        look = await run("cat /proc/1/cmdline; tr '\\0' '\\n' < /proc/1/environ; env")
        inspected = await docker("inspect", f"duet-{owner(server)}-{name}")
        processes = await docker("top", f"duet-{owner(server)}-{name}", "-eo", "pid,args")
        told = [frame for frame in ada.frames if frame["type"] != "error"]
    status, listed = await server.http("GET", f"/api/rooms/{room}/messages?limit=200")
    assert status == 200
    assert server.stop() == 0
    files = [path for path in server.data_dir.rglob("*") if path.is_file()]
    assert files
    stored = b"".join(path.read_bytes() for path in files).decode(errors="replace")
    for written in (server.log(), stored, str(listed), str(look), inspected, processes, str(told)):
        assert secret not in written
        assert other not in written
