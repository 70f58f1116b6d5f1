"""A key that was answered is answered again, also where no further command may run."""

import aiohttp
import pytest

from tests.integration.server.harness import SANDBOX_S


@pytest.fixture
def server(start):
    return start(DUET_MAX_RUNNING_EXECS="1")


async def place(server, client, kind):
    """Where a command runs, as its request says it."""
    if kind == "room":
        room = await server.new_room()
        await client.join(room)
        return {"room": room}
    await client.ok("sandbox.start", id="lab")
    return {"sandbox": "lab"}


@pytest.mark.parametrize("kind", ["room", "sandbox"])
async def test_the_running_limit_does_not_hide_the_first_answer(server, kind) -> None:
    async with server.client() as ada, server.client(name="Ben") as ben:
        where = await place(server, ada, kind)
        command = {**where, "command": "echo on; sleep 300"}
        first = (await ada.ok("exec", **command, key="k"))["exec"]
        await ada.printed(first, b"on\n")
        for _ in range(2):
            assert (await ada.ok("exec", **command, key="k"))["exec"] == first
        other = await ada.refused("exec", **where, command="echo other", key="k")
        assert other["code"] == "key_conflict"
        for fields in ({}, {"key": "other"}):
            refused = await ada.refused("exec", **command, **fields)
            assert refused["code"] == "limit"
        if kind == "room":
            await ben.join(where["room"])
        # A key is its participant's.
        assert (await ben.refused("exec", **command, key="k"))["code"] == "limit"
        await ada.ok("exec.cancel", exec=first)
        await ada.exited(first, SANDBOX_S)
        assert len(ada.of("exec.started")) == 1
        # What was refused is not remembered.
        again = (await ada.ok("exec", **where, command="echo two", key="other"))["exec"]
        assert (await ada.exited(again, SANDBOX_S))["stdout"] == "two\n"
        assert (await ada.ok("exec", **command, key="k"))["exec"] == first


@pytest.mark.parametrize("kind", ["room", "sandbox"])
async def test_where_one_may_run_the_next_may_as_soon_as_the_end_is_told(server, kind) -> None:
    async with server.client() as ada:
        where = await place(server, ada, kind)
        for _ in range(60):
            exec_id = (await ada.ok("exec", **where, command="true"))["exec"]
            await ada.exited(exec_id, SANDBOX_S)


async def test_over_http_one_too_many_is_429_and_says_when_to_come_back(server) -> None:
    room = await server.new_room()
    path = f"/api/rooms/{room}/sandbox/exec"
    async with server.client() as ada:
        await ada.join(room)
        first = await ada.run(room, "echo on; sleep 300")
        await ada.printed(first, b"on\n")
        async with (
            aiohttp.ClientSession() as http,
            http.post(server.url + path, json={"cmd": "true"}) as refused,
        ):
            assert refused.status == 429
            assert int(refused.headers["Retry-After"]) >= 1
            assert (await refused.json())["error"]
        await ada.ok("exec.cancel", exec=first)
        await ada.exited(first)
        status, answer = await server.http("POST", path, {"cmd": "true"})
        assert (status, answer["result"]["ok"]) == (200, True)
