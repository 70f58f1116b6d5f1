"""The lease of a room's sandbox: held by what runs, not by who looks."""

import asyncio

from server.frontdoor import IDLE_S
from tests.integration.server.harness import JSON, SANDBOX_S


async def stopped(wire, begin: int) -> dict:
    return await wire.until(
        lambda f: f["type"] == "sandbox" and f["status"] == "stopped", begin, limit_s=SANDBOX_S
    )


async def test_an_open_page_does_not_keep_a_sandbox_awake_and_it_is_found_as_it_was(start) -> None:
    server = start(DUET_ROOM_SLEEP_AFTER="2s")
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        await ada.exited(await ada.run(room, "echo kept > file"))
        begin = len(ada.frames)

        async def look() -> None:
            """What a page does while its person is away."""
            while True:
                await ada.ok("ping")
                await ada.ok("history", room=room)
                await ada.send("typing", room=room, on=True)
                await asyncio.sleep(0.2)

        looking = asyncio.create_task(look())
        try:
            record = await stopped(ada, begin)
        finally:
            looking.cancel()
        assert record["workspaceSaved"]
        assert "expectedStopAt" not in record
        again = await ada.run(room, "cat file")
        await ada.exited(again)
        assert ada.output(again) == b"kept\n"


async def test_a_silent_command_outlives_every_idle_setting(start) -> None:
    """The lease, the silence of a session, and what a request's body may wait, all of them."""
    server = start(DUET_ROOM_SLEEP_AFTER="1s", DUET_SILENT_S="2")
    room = await server.new_room()
    command, limit_ms = f"sleep {IDLE_S + 1:g}; exit 3", 60_000
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        exec_id = await ada.run(room, command, timeoutMs=limit_ms)
        path, body = f"/api/rooms/{room}/sandbox/exec", {"cmd": command, "timeoutMs": limit_ms}
        status, answer = await server.http("POST", path, body)
        assert (status, answer["result"]["exitCode"]) == (200, 3)
        exited = await ada.exited(exec_id)
        assert (exited["reason"], exited["exitCode"]) == ("command_failed", 3)
        await stopped(ada, len(ada.frames) - 1)


async def test_what_a_command_left_running_is_listed_and_ended_by_its_cancel(
    server, pair, room
) -> None:
    ada, _ = pair
    # It has become what it is called before the command ends.
    begun = "until pgrep -fx 'sleep 93' > /dev/null; do sleep 0.01; done; echo started"
    exec_id = await ada.run(room, f"setsid sleep 93 > /dev/null & {begun}")
    assert (await ada.exited(exec_id))["ok"]
    status, body = await server.http("GET", f"/api/rooms/{room}/execs")
    assert status == 200
    (child,) = [c for c in body["children"] if c["exec"] == exec_id]
    assert "sleep 93" in child["command"]
    await ada.ok("exec.cancel", exec=exec_id)
    look = await ada.run(room, "pgrep -fx 'sleep 93'")
    exited = await ada.exited(look)
    assert (exited["exitCode"], exited["stdout"]) == (1, "")
