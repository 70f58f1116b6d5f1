"""What a start may ask for, what it gets where it asks for nothing, and what it is refused."""

import asyncio
import time

import pytest

from tests.integration.server.harness import JSON, SANDBOX_S, owner


async def state(wire, name: str, *statuses: str, begin: int = 0) -> dict:
    return await wire.until(
        lambda f: f["type"] == "sandbox" and f["id"] == name and f["status"] in statuses,
        begin,
        limit_s=SANDBOX_S,
    )


async def docker(*words: str) -> list[str]:
    """The lines that the engine's own client prints."""
    process = await asyncio.create_subprocess_exec("docker", *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    return printed.decode().splitlines()


async def containers(server, name: str) -> list[str]:
    return await docker("ps", "-aq", "--filter", f"name=^duet-{owner(server)}-{name}$")


async def test_who_asks_for_nothing_gets_what_the_contract_says(server) -> None:
    async with server.client(JSON, "Ada") as ada:
        record = (await ada.ok("sandbox.start", id="plain"))["sandbox"]
        assert record == {
            "id": "plain",
            "status": "requested",
            "workspaceSaved": False,
            "image": "workspace",
            "instanceType": "lite",
        }
        running = await state(ada, "plain", "running")
        stops_in_s = running["expectedStopAt"] / 1000 - time.time()
        assert 590 < stops_in_s <= 600
        told = [f["status"] for f in ada.of("sandbox", id="plain")]
        assert told[-2:] == ["starting", "running"]
        (container,) = await containers(server, "plain")
        (network,) = await docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", container)
        assert network == "duet-sandboxes"
        await ada.ok("sandbox.destroy", id="plain")


async def test_all_that_may_be_asked_for(server) -> None:
    wanted = {
        "id": "special",
        "image": "debian",
        "instanceType": "basic",
        "sleepAfter": 90,
        "keepAlive": True,
        "startupCommand": "echo begun > mark",
        "startupTimeoutMs": 20_000,
        "network": "none",
    }
    async with server.client(JSON, "Ada") as ada:
        record = (await ada.ok("sandbox.start", **wanted))["sandbox"]
        assert (record["image"], record["instanceType"]) == ("debian", "basic")
        running = await state(ada, "special", "running")
        assert "expectedStopAt" not in running
        run = (await ada.ok("exec", sandbox="special", command="cat mark; ls /sys/class/net"))[
            "exec"
        ]
        assert (await ada.exited(run))["stdout"] == "begun\nlo\n"
        begin = len(ada.frames)
        again = (await ada.ok("sandbox.start", **{**wanted, "keepAlive": False}))["sandbox"]
        assert 80 < again["expectedStopAt"] / 1000 - time.time() <= 90
        assert (await state(ada, "special", "running", begin=begin))["expectedStopAt"]
        await ada.ok("sandbox.destroy", id="special")


async def test_many_starts_at_once_make_one_container(server) -> None:
    async with server.client(JSON, "Ada") as ada:
        answers = await asyncio.gather(
            *(server.http("POST", "/api/sandboxes", {"id": " TWIN\n"}) for _ in range(5)),
            *(ada.ok("sandbox.start", id="twin") for _ in range(5)),
        )
        records = [one["sandbox"] if isinstance(one, dict) else one[1] for one in answers]
        assert {record["id"] for record in records} == {"twin"}
        await state(ada, "twin", "running")
        assert len(await containers(server, "twin")) == 1
        gone = await asyncio.gather(
            *(server.http("DELETE", "/api/sandboxes/Twin?purge=true") for _ in range(3)),
        )
        assert {status for status, _ in gone} <= {200, 404}
        assert await containers(server, "twin") == []


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"sleepAfter": "9" * 5000}, "sleepAfter", "168h"),
        ({"sleepAfter": 0}, "sleepAfter", "168h"),
        ({"sleepAfter": -5}, "sleepAfter", "168h"),
        ({"sleepAfter": 10**12}, "sleepAfter", "168h"),
        ({"sleepAfter": 1.5}, "sleepAfter", "168h"),
        ({"sleepAfter": True}, "sleepAfter", "168h"),
        ({"sleepAfter": None}, "sleepAfter", "168h"),
        ({"sleepAfter": ["10m"]}, "sleepAfter", "168h"),
        ({"image": 5}, "image", "string"),
        ({"image": ""}, "image", "workspace, debian"),
        ({"image": "../workspace"}, "image", "workspace, debian"),
        ({"instanceType": None}, "instanceType", "string"),
        ({"instanceType": "LITE"}, "instanceType", "lite, basic"),
        ({"network": "container:other"}, "network", "bridge, none"),
        ({"startupTimeoutMs": 0}, "startupTimeoutMs", "1"),
        ({"startupTimeoutMs": 600_001}, "startupTimeoutMs", "600000"),
        ({"startupCommand": ""}, "startupCommand", ""),
        ({"keepAlive": "yes"}, "keepAlive", "boolean"),
    ],
)
async def test_whatever_is_wrong_is_named_with_what_is_allowed(
    server, fields, field, allowed
) -> None:
    status, body = await server.http("POST", "/api/sandboxes", {"id": "never", **fields})
    assert (status, body["error"]) == (400, "invalid request"), body
    assert list(body["details"]) == [field]
    assert allowed in " ".join(body["details"][field]), body
    _, listed = await server.http("GET", "/api/sandboxes")
    assert "never" not in [one["id"] for one in listed["sandboxes"]]


async def test_one_too_many_is_refused_and_nobody_s_is_ended(start) -> None:
    server = start(DUET_MAX_SANDBOXES="1", DUET_SANDBOX_POOL="0")
    room = await server.new_room()
    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="first", image="debian")
        await state(ada, "first", "running")
        run = (await ada.ok("exec", sandbox="first", command="echo on; read x", stdin=True))["exec"]
        await ada.printed(run, b"on\n")
        refused = await ada.refused("sandbox.start", id="second")
        assert refused["code"] == "limit"
        assert "1 sandboxes run already" in refused["message"]
        status, body = await server.http("POST", "/api/sandboxes", {"id": "second"})
        assert (status, "Stop one" in body["error"]) == (429, True)
        await ada.join(room)
        exited = await ada.exited(await ada.run(room, "true"))
        assert (exited["reason"], exited["retryable"]) == ("sandbox_unavailable", True)
        assert "as many as this server allows" in exited["message"]
        await ada.input(run, "\n")
        assert (await ada.exited(run))["ok"]
        await ada.ok("sandbox.kill", id="first")
        assert (await ada.exited(await ada.run(room, "true")))["ok"]


async def test_saved_workspaces_are_listed_with_what_they_take_on_disk(server) -> None:
    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="heavy", image="debian")
        await state(ada, "heavy", "running")
        command = "head -c 5M /dev/urandom > data; truncate -s 3G holes; sync"
        await ada.exited((await ada.ok("exec", sandbox="heavy", command=command))["exec"])
        killed = (await ada.ok("sandbox.kill", id="heavy"))["sandbox"]
        assert abs(killed["savedAt"] / 1000 - time.time()) < 60
        async with asyncio.timeout(SANDBOX_S):
            while True:
                listed = (await ada.ok("sandbox.list"))["sandboxes"]
                (record,) = [one for one in listed if one["id"] == "heavy"]
                if "workspaceBytes" in record:
                    break
                await asyncio.sleep(0.1)  # it is measured by the way, and nobody is told
        assert 5 * 1024**2 <= record["workspaceBytes"] < 7 * 1024**2
        assert record["savedAt"] == killed["savedAt"]
        begin = len(ada.frames)
        await ada.ok("sandbox.start", id="heavy")
        assert "savedAt" not in await state(ada, "heavy", "running", begin=begin)
        gone = (await ada.ok("sandbox.destroy", id="heavy"))["sandbox"]
        assert (gone["status"], "workspaceBytes" in gone) == ("stopped", False)


async def test_the_oldest_saved_workspace_goes_where_all_take_too_much_and_it_is_said(
    start,
) -> None:
    server = start(DUET_SAVED_MAX_BYTES=str(12 * 1024**2), DUET_SANDBOX_POOL="0")
    async with server.client(JSON, "Ada") as ada:
        for name in ("old", "new"):
            await ada.ok("sandbox.start", id=name, image="debian", instanceType="standard-1")
            await state(ada, name, "running")
            command = "head -c 8M /dev/urandom > data; sync"
            await ada.exited((await ada.ok("exec", sandbox=name, command=command))["exec"])
            await ada.ok("sandbox.kill", id=name)
        told = await ada.until(
            lambda f: f["type"] == "sandbox" and f["id"] == "old" and "lastError" in f,
            limit_s=SANDBOX_S,
        )
        assert (told["status"], told["workspaceSaved"]) == ("stopped", False)
        assert "may take 12 MiB, and it was the oldest" in told["lastError"]
        assert "may take 12 MiB" in server.log()
        listed = (await ada.ok("sandbox.list"))["sandboxes"]
        assert [one["id"] for one in listed] == ["new"]
        assert await containers(server, "old") == []


async def test_a_saved_workspace_goes_at_its_age_and_it_is_said(start) -> None:
    server = start(DUET_SAVED_MAX_AGE_S="3", DUET_SANDBOX_POOL="0")
    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="brief", image="debian")
        await state(ada, "brief", "running")
        assert (await ada.ok("sandbox.kill", id="brief"))["sandbox"]["workspaceSaved"]
        told = await ada.until(
            lambda f: f["type"] == "sandbox" and f["id"] == "brief" and "lastError" in f,
            limit_s=SANDBOX_S,
        )
        assert told["workspaceSaved"] is False
        assert "kept for 3 seconds" in told["lastError"]


async def test_what_runs_without_a_room_and_what_it_left_are_listed(server) -> None:
    path = "/api/sandboxes/busy/execs"
    assert (await server.http("GET", path))[0] == 404
    assert (await server.http("GET", "/api/sandboxes/sandbox-x/execs"))[0] == 400
    async with server.client(JSON, "Ada") as ada:
        await ada.ok("sandbox.start", id="busy", image="debian")
        run = {"sandbox": "busy", "command": "setsid sleep 89 > /dev/null & echo left"}
        over = (await ada.ok("exec", **run))["exec"]
        assert (await ada.exited(over))["stdout"] == "left\n"
        going = (await ada.ok("exec", sandbox="busy", command="echo on; sleep 88"))["exec"]
        await ada.printed(going, b"on\n")
        async with asyncio.timeout(SANDBOX_S):
            while True:  # until what was left has become the program that it is to be
                status, body = await server.http("GET", "/api/sandboxes/BUSY/execs")
                assert status == 200
                if [child["command"] for child in body["children"]] == ["sleep 89"]:
                    break
        (listed,) = body["execs"]
        assert (listed["exec"], listed["running"]) == (going, True)
        assert listed["started"]["command"] == "echo on; sleep 88"
        (child,) = body["children"]
        assert child["exec"] == over
        await ada.ok("exec.cancel", exec=over)
        await ada.ok("exec.cancel", exec=going)
        await ada.exited(going)
        assert (await server.http("GET", path))[1] == {"execs": [], "children": []}
        await ada.ok("sandbox.destroy", id="busy")


async def test_a_new_room_s_first_command_takes_a_spare_and_no_used_one(start) -> None:
    server = start()

    async def spares() -> dict[str, str]:
        """Image by container, of those that wait: one per image, unless a setting says more."""
        async with asyncio.timeout(SANDBOX_S):
            while True:
                wait = ("--filter", f"name=^duet-{owner(server)}.spare-", "--no-trunc")
                lines = await docker("ps", *wait, "--format", "{{.ID}} {{.Image}}")
                found = dict(line.split() for line in lines)
                if sorted(found.values()) == ["duet/debian:1", "duet/workspace:1"]:
                    return found
                await asyncio.sleep(0.1)  # the engine tells only who asks

    async def id_of(room: str) -> str:
        name = f"duet-{owner(server)}-sandbox-{room}"
        return (await docker("inspect", "-f", "{{.Id}}", name))[0]

    first, second = [await server.new_room() for _ in range(2)]
    async with server.client(JSON, "Ada") as ada:

        async def run(room: str) -> str:
            """The container of a room that was new until now."""
            await ada.join(room)
            exited = await ada.exited(await ada.run(room, "ls -A; touch mine"))
            assert (exited["ok"], exited["stdout"]) == (True, "")
            return await id_of(room)

        there = await spares()  # made in the order of images, so this one's runner is up
        used = await run(first)
        assert there[used] == "duet/workspace:1"
        assert (await server.http("DELETE", f"/api/rooms/{first}"))[0] == 200
        assert used not in await spares()
        assert await run(second) != used


async def test_the_strict_profile_holds_rooms_and_others_alike(start) -> None:
    server = start(DUET_SANDBOX_PROFILE="strict", DUET_ROOM_IMAGE="debian")
    room = await server.new_room()
    look = "id -u; grep CapBnd /proc/self/status; touch /etc/x; ls; touch kept"
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        await ada.ok("sandbox.start", id="own", image="debian", instanceType="standard-1")
        for where in ({"room": room}, {"sandbox": "own"}):
            exited = await ada.exited((await ada.ok("exec", **where, command=look))["exec"])
            assert exited["stdout"].split() == ["1000", "CapBnd:", "0" * 16]
            assert "Read-only" in exited["stderr"]
        for name in (f"sandbox-{room}", "own"):
            assert (await ada.ok("sandbox.kill", id=name))["sandbox"]["workspaceSaved"]
        assert (await ada.exited(await ada.run(room, "ls")))["stdout"] == "kept\n"
        await ada.ok("sandbox.destroy", id="own")
    assert (await server.http("DELETE", f"/api/rooms/{room}"))[0] == 200
    mine = f"label=duet.owner={owner(server)}"
    assert await docker("ps", "-aq", "--filter", mine) == []
    assert await docker("volume", "ls", "-q", "--filter", mine) == []
