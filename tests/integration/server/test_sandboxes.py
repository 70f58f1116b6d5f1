"""Sandboxes by id, over WebSocket and HTTP: leased, used, saved, found again, destroyed."""

import itertools

import pytest

from tests.integration.server.harness import JSON, MSGPACK, SANDBOX_S

NAMES = (f"lab-{n}" for n in itertools.count(1))


@pytest.fixture
async def ada(server, codec):
    async with server.client(codec, "Ada") as ada:
        yield ada


@pytest.fixture
async def lab(ada):
    """A running sandbox of its own for a test; destroyed when it ends."""
    name = next(NAMES)
    record = (await ada.ok("sandbox.start", id=name, instanceType="standard-1"))["sandbox"]
    assert (record["id"], record["status"]) == (name, "requested")
    await running(ada, name)
    yield name
    await ada.ask("sandbox.destroy", id=name)


async def running(wire, name: str) -> dict:
    return await state(wire, name, "running")


async def state(wire, name: str, status: str, begin: int = 0) -> dict:
    return await wire.until(
        lambda f: f["type"] == "sandbox" and f["id"] == name and f["status"] == status,
        begin,
        limit_s=SANDBOX_S,
    )


async def run(wire, name: str, command: str, **fields: object) -> str:
    return (await wire.ok("exec", sandbox=name, command=command, **fields))["exec"]


async def test_a_command_without_a_room(ada, lab) -> None:
    exec_id = await run(ada, lab, "echo hi; pwd; exit 3")
    exited = await ada.exited(exec_id)
    assert ada.output(exec_id) == b"hi\n/workspace\n"
    assert (exited["reason"], exited["exitCode"]) == ("command_failed", 3)
    for frame in ada.of("exec.started", "exec.output", "exec.exited", "sandbox"):
        assert "room" not in frame
        assert "offset" not in frame


async def test_only_who_asks_is_told(server, ada, lab) -> None:
    async with server.client(JSON, "Ben") as ben:
        exec_id = await run(ada, lab, "echo secret")
        await ada.exited(exec_id)
        await ben.settle()
        assert not ben.of("exec.started", "exec.output", "exec.exited", "sandbox")


async def test_input_cancel_and_read(ada, lab) -> None:
    exec_id = await run(ada, lab, "cat; sleep 97", stdin=True)
    await ada.ok("exec.input", exec=exec_id, data="all of it\n", eof=True)
    await ada.printed(exec_id, b"all of it\n")
    await ada.ok("exec.cancel", exec=exec_id)
    assert (await ada.exited(exec_id))["reason"] == "cancelled"
    ack = await ada.ok("exec.read", exec=exec_id, at=4)
    assert (ack["at"], ack["end"]) == (10, 10)


async def test_the_same_key_runs_once(ada, lab) -> None:
    first = await run(ada, lab, "echo once >> seen", key="k1")
    await ada.exited(first)
    assert await run(ada, lab, "echo once >> seen", key="k1") == first
    count = await run(ada, lab, "wc -l < seen")
    await ada.exited(count)
    assert ada.output(count) == b"1\n"
    refused = await ada.refused("exec", sandbox=lab, command="echo twice", key="k1")
    assert refused["code"] == "key_conflict"


async def test_saved_stopped_found_again_and_destroyed(ada, lab) -> None:
    await ada.exited(await run(ada, lab, "echo kept > file; chmod 000 file; ln -s file link"))
    killed = (await ada.ok("sandbox.kill", id=lab))["sandbox"]
    assert (killed["status"], killed["workspaceSaved"]) == ("stopped", True)
    assert (await ada.ok("sandbox.kill", id=lab))["sandbox"]["status"] == "stopped"
    refused = await run(ada, lab, "ls")
    exited = await ada.exited(refused)
    assert (exited["reason"], exited["retryable"]) == ("sandbox_unavailable", True)
    begin = len(ada.frames)
    await ada.ok("sandbox.start", id=lab)
    await state(ada, lab, "running", begin)
    found = await run(ada, lab, "stat -c '%a' file; readlink link; cat file")
    await ada.exited(found)
    assert ada.output(found) == b"0\nfile\nkept\n"
    await ada.ok("sandbox.destroy", id=lab)
    listed = (await ada.ok("sandbox.list"))["sandboxes"]
    assert lab not in [record["id"] for record in listed]
    assert (await ada.refused("exec", sandbox=lab, command="ls"))["code"] == "unknown_sandbox"


async def test_a_repeated_start_is_the_same_sandbox(ada, lab) -> None:
    record = (await ada.ok("sandbox.start", id=f"  {lab.upper()} "))["sandbox"]
    assert (record["id"], record["status"]) == (lab, "running")
    assert record["instanceType"] == "standard-1"


async def test_a_start_while_it_stops_is_requested_and_runs_after_it(server, ada, lab) -> None:
    await ada.exited(await run(ada, lab, "echo mine > file"))
    begin = len(ada.frames)
    async with server.client(JSON, "Ben") as ben:
        await ben.send("sandbox.kill", ref="k", id=lab)
        await state(ada, lab, "stopping", begin)
        record = (await ada.ok("sandbox.start", id=lab, instanceType="standard-1"))["sandbox"]
        assert record["status"] == "requested"
        await state(ada, lab, "running", begin)
    exec_id = await run(ada, lab, "cat file")
    assert (await ada.exited(exec_id))["stdout"] == "mine\n"
    told = [f["status"] for f in ada.frames[begin:] if f["type"] == "sandbox" and f["id"] == lab]
    assert "stopped" not in told


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"id": "x", "image": "nope"}, "image", "workspace"),
        ({"id": "x", "instanceType": "huge"}, "instanceType", "standard-4"),
        ({"id": "x", "sleepAfter": "soon"}, "sleepAfter", "10m"),
        ({"id": "x", "sleepAfter": "9999h"}, "sleepAfter", "168h"),
        ({"id": "x", "network": "host"}, "network", "none"),
        ({"id": "../x"}, "id", "a-z"),
        ({"id": "x" * 90}, "id", "80"),
    ],
)
async def test_a_bad_start_says_what_is_allowed(server, ada, fields, field, allowed) -> None:
    refused = await ada.refused("sandbox.start", **fields)
    assert refused["code"] == "invalid"
    assert allowed in refused["details"][field][0]
    status, body = await server.http("POST", "/api/sandboxes", fields)
    assert (status, body["error"]) == (400, "invalid request")
    assert allowed in body["details"][field][0]


async def test_ids_of_rooms_belong_to_rooms(server, ada, room) -> None:
    own = f"sandbox-{room}"
    assert (await ada.refused("sandbox.start", id=own))["code"] == "not_joined"
    await ada.join(room)
    await ada.ok("sandbox.start", id=own, instanceType="basic")
    exited = await ada.exited(await ada.run(room, "true"))
    assert exited["ok"]
    await ada.until(
        lambda f: f["type"] == "sandbox" and f.get("offset") and f["status"] == "running"
    )
    (record,) = [r for r in (await ada.ok("sandbox.list"))["sandboxes"] if r["id"] == own]
    assert record["instanceType"] == "basic"
    assert (await ada.refused("exec", sandbox=own, command="ls"))["code"] == "invalid"
    status, _ = await server.http("POST", "/api/sandboxes", {"id": "sandbox-nowhere"})
    assert status == 404


async def test_the_stop_that_is_expected_is_kept_true(ada, server, room) -> None:
    await ada.join(room)
    await ada.exited(await ada.run(room, "true"))
    first = await ada.until(lambda f: f["type"] == "sandbox" and "expectedStopAt" in f)
    exec_id = await ada.run(room, "echo on; sleep 94")
    await ada.printed(exec_id, b"on\n")
    begin = len(ada.frames)
    held = await ada.until(lambda f: f["type"] == "sandbox", begin)
    assert held["status"] == "running"
    assert "expectedStopAt" not in held
    await ada.ok("exec.cancel", exec=exec_id)
    again = await ada.until(lambda f: f["type"] == "sandbox" and "expectedStopAt" in f, begin)
    assert again["expectedStopAt"] > first["expectedStopAt"]


async def test_over_http(server) -> None:
    status, record = await server.http("POST", "/api/sandboxes", {"id": "web"})
    assert (status, record["id"]) == (200, "web")
    status, result = await server.http("POST", "/api/sandboxes/web/exec", {"command": "echo $HOME"})
    assert (status, result["ok"], result["stdout"]) == (200, True, "/root\n")
    status, result = await server.http(
        "POST", "/api/sandboxes/web/exec", {"command": "echo so far; sleep 96", "timeoutMs": 300}
    )
    assert (status, result["reason"], result["stdout"]) == (200, "timeout", "so far\n")
    status, listed = await server.http("GET", "/api/sandboxes")
    assert "web" in [record["id"] for record in listed["sandboxes"]]
    status, record = await server.http("DELETE", "/api/sandboxes/web")
    assert (status, record["status"], record["workspaceSaved"]) == (200, "stopped", True)
    status, body = await server.http("POST", "/api/sandboxes/web/exec", {"command": "ls"})
    assert (status, "start it first" in body["error"]) == (503, True)
    status, answer = await server.http("DELETE", "/api/sandboxes/web?purge=banana")
    assert (status, list(answer["details"])) == (400, ["purge"])
    status, _ = await server.http("DELETE", "/api/sandboxes/web?purge=true")
    assert status == 200
    status, _ = await server.http("DELETE", "/api/sandboxes/web")
    assert status == 404
    status, _ = await server.http("POST", "/api/sandboxes/web/exec", {"command": "ls"})
    assert status == 404


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"], indirect=True)
async def test_a_startup_command_that_fails_is_an_error_with_its_words(ada) -> None:
    name = next(NAMES)
    await ada.ok("sandbox.start", id=name, startupCommand="echo no such luck >&2; exit 7")
    failed = await state(ada, name, "error")
    assert "no such luck" in failed["lastError"]
    await ada.ok("sandbox.destroy", id=name)
