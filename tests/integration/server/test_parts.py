"""Parts that are absent, go away and come back: the engine and Redis; and how the server stops."""

import asyncio
import json
import subprocess
import time

import pytest

from tests.integration.server.harness import DUET, JSON, SANDBOX_S, Server
from tests.integration.server.parts import EngineDoor, Valkey, children, kill, named


@pytest.fixture
def valkey(tmp_path_factory):
    valkey = Valkey(tmp_path_factory.mktemp("v"))
    yield valkey
    valkey.kill()


@pytest.fixture
async def door(tmp_path_factory):
    door = EngineDoor(tmp_path_factory.mktemp("e") / "d.sock")
    yield door
    await door.close()


async def ended(client, room, command="echo here"):
    return await client.exited(await client.run(room, command), SANDBOX_S)


async def again_until(action, wanted, limit_s=SANDBOX_S):
    """Ask again, as a person would, until the answer is `wanted`."""
    deadline = time.monotonic() + limit_s
    while not wanted(answer := await action()):
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.1)
    return answer


async def test_without_an_engine_chat_works_and_exec_says_so_until_it_is_there(
    start, codec, door
) -> None:
    server = start(DUET_DOCKER_HOST=door.url)
    room = await server.new_room()
    path = f"/api/rooms/{room}/sandbox/exec"
    async with server.client(codec, "Ada") as ada:
        await ada.join(room)
        await ada.ok("say", room=room, text="hello anyway")
        end = await ended(ada, room)
        assert (end["ok"], end["reason"]) == (False, "sandbox_unavailable")
        assert end["retryable"] is True
        assert end["message"]
        status, answer = await server.http("POST", path, {"cmd": "ls"})
        assert status == 503
        assert answer["error"]
        assert (await server.http("GET", "/ready"))[0] == 503
        assert (await server.http("GET", "/health"))[0] == 200
        await door.open()
        end = await again_until(lambda: ended(ada, room), lambda end: end["ok"])
        assert end["stdout"] == "here\n"
        assert (await server.http("GET", "/ready"))[0] == 200


@pytest.mark.parametrize(("runc", "old"), [("1.1.5+ds1", True), ("1.1.14", False), (None, False)])
async def test_an_old_runc_is_warned_of_once(start, tmp_path, runc, old) -> None:
    said = {"ApiVersion": "1.41", "Components": [{"Name": "runc", "Version": runc}] if runc else []}
    asked = asyncio.Event()

    async def answer(reader, writer):
        """An engine that says what it is, and refuses all else."""
        line = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        body, status = b'{"message": "no"}', b"500 No"
        if line == b"/version":
            body, status = json.dumps(said).encode(), b"200 OK"
            asked.set()
        kind = b"\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
        writer.write(b"HTTP/1.1 " + status + kind + str(len(body)).encode() + b"\r\n\r\n" + body)
        writer.close()

    engine = await asyncio.start_unix_server(answer, tmp_path / "e.sock")
    async with engine:
        url = f"unix://{tmp_path}/e.sock"
        server = await asyncio.to_thread(start, DUET_DOCKER_HOST=url)
        await asyncio.wait_for(asked.wait(), SANDBOX_S)
        room = await server.new_room()
        await again_until(lambda: server.http("GET", f"/api/rooms/{room}"), lambda got: got)
        await asyncio.to_thread(server.stop)
    warned = [line for line in server.log().splitlines() if "runc" in line]
    assert len(warned) == old
    assert all(runc in line and "1.1.12" in line for line in warned)


async def test_an_engine_that_goes_away_ends_commands_and_comes_back(start, codec, door) -> None:
    await door.open()
    server = start(DUET_DOCKER_HOST=door.url)
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada:
        await ada.join(room)
        assert (await ended(ada, room, "echo kept > file; echo here"))["ok"]
        running = await ada.run(room, "echo on; sleep 98")
        await ada.printed(running, b"on\n")
        await door.close()
        end = await ada.exited(running, SANDBOX_S)
        assert end["ok"] is False
        assert end["reason"] in ("sandbox_terminated", "sandbox_unavailable")
        end = await ended(ada, room)
        assert (end["ok"], end["reason"]) == (False, "sandbox_unavailable")
        await ada.ok("say", room=room, text="we can still talk")
        await door.open()
        end = await again_until(lambda: ended(ada, room, "cat file"), lambda end: end["ok"])
        assert end["stdout"] == "kept\n"


async def test_a_cleanup_without_an_engine_clears_what_it_can_and_says_so(start, door) -> None:
    await door.open()
    server = start(DUET_DOCKER_HOST=door.url)
    room = await server.new_room()
    async with server.client() as ada:
        await ada.join(room)
        await ada.ok("say", room=room, text="to be forgotten")
        assert (await ended(ada, room, "echo kept > file; echo here"))["ok"]
        await door.close()
        status, answer = await server.http("POST", f"/api/rooms/{room}/cleanup")
        assert (status, answer["cleaned"], len(answer["errors"])) == (207, True, 1)
        assert "sandbox" in answer["errors"][0]
        await ada.until("room.cleared")
        page = await ada.ok("history", room=room)
        assert not [event for event in page["events"] if event["type"] == "message"]
        status, ready = await server.http("GET", "/ready")
        assert (status, ready["ready"], ready["parts"]["history"]) == (503, False, {"ok": True})
        assert ready["parts"]["engine"]["ok"] is False
        assert ready["parts"]["engine"]["message"]
        await door.open()
        status, _ = await again_until(
            lambda: server.http("POST", f"/api/rooms/{room}/cleanup"), lambda got: got[0] == 200
        )
        end = await again_until(lambda: ended(ada, room, "ls"), lambda end: end["ok"])
        assert end["stdout"] == "", "the workspace is a new one"


def test_without_redis_the_start_fails_in_one_line(tmp_path) -> None:
    server = Server(tmp_path / "data", DUET_REDIS_URL="redis://127.0.0.1:1/0")
    code = server.process.wait(30)
    assert code == 1
    (line,) = server.log().strip().splitlines()
    assert "127.0.0.1:1" in line
    assert "Redis" in line


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:1", "redis://:secret@127.0.0.1:1"])
def test_a_wrong_redis_url_is_one_line_without_the_password(tmp_path, url) -> None:
    server = Server(tmp_path / "data", DUET_REDIS_URL=url)
    assert server.process.wait(30) == 1
    assert len(server.log().strip().splitlines()) == 1
    assert "secret" not in server.log()


async def test_redis_that_stops_answering_is_a_retryable_error_and_recovers(
    start, codec, valkey
) -> None:
    server = start(DUET_REDIS_URL=valkey.url)
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada, server.client(JSON, "Ben") as ben:
        joined = await ada.join(room)
        await ben.join(room)
        await ada.ok("say", room=room, text="before")
        valkey.freeze()
        try:
            began = time.monotonic()
            refused = await ada.refused("say", room=room, text="during", key="d")
            assert (refused["code"], refused["retryable"]) == ("unavailable", True)
            assert time.monotonic() - began < 15
            status, answer = await server.http("POST", "/api/rooms", {})
            assert (status, bool(answer["error"])) == (503, True)
            assert (await server.http("GET", "/health"))[0] == 200
            await ada.settle()
        finally:
            valkey.thaw()
        await again_until(
            lambda: ada.ask("say", room=room, text="during", key="d"),
            lambda reply: reply["type"] == "ack",
        )
        await ben.until(lambda f: f.get("text") == "during")
        said = await ada.ok("say", room=room, text="after")
        await ben.event(said["offset"], room)
        texts = [f["text"] for f in ben.of("message")]
        assert texts == ["before", "during", "after"], "said once, in order, nothing lost"
        again = await ada.join(room)
        assert again["epoch"] == joined["epoch"]


async def test_redis_that_is_gone_and_back_with_its_data(start, codec, valkey) -> None:
    server = start(DUET_REDIS_URL=valkey.url)
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada:
        await ada.join(room)
        await ada.ok("say", room=room, text="before")
        valkey.kill()
        refused = await ada.refused("say", room=room, text="during")
        assert (refused["code"], refused["retryable"]) == ("unavailable", True)
        for type_, fields in (
            ("history", {}),
            ("exec", {"command": "touch ran"}),
            ("react", {"id": "m_1", "emoji": "x", "on": True}),
        ):
            refused = await ada.refused(type_, room=room, **fields)
            assert (refused["code"], refused["retryable"]) == ("unavailable", True), type_
        for method, path in (("GET", ""), ("POST", "/sandbox/exec"), ("POST", "/cleanup")):
            body = {"cmd": "touch ran"} if method == "POST" else None
            status, answer = await server.http(method, f"/api/rooms/{room}{path}", body)
            assert (status, bool(answer["error"])) == (503, True), path
        status, ready = await server.http("GET", "/ready")
        assert (status, ready["parts"]["history"]["ok"]) == (503, False)
        await ada.settle()
        valkey.start()

        async def say():
            """As a client does: `left` with `rejoin`, then join and say it again."""
            reply = await ada.ask("say", room=room, text="after", key="a")
            if reply.get("code") == "not_joined":
                assert ada.of("left")[-1]["rejoin"] is True
                await ada.ask("join", room=room)
            return reply

        said = await again_until(say, lambda reply: reply["type"] == "ack")
        joined = await again_until(
            lambda: ada.ask("join", room=room), lambda reply: reply["type"] == "joined"
        )
        kept = [event["text"] for event in joined["events"] if event["type"] == "message"]
        assert kept == ["before", "after"]
        assert said["offset"] == joined["offset"]
        path = f"/api/rooms/{room}/sandbox/exec"
        status, answer = await server.http("POST", path, {"cmd": "ls"})
        assert (status, answer["result"]["stdout"]) == (200, ""), "what was refused did not run"

        def ends(got):
            """The ends of refused commands that were stored after all; None while one is missing."""
            of = lambda kind: {e["exec"]: e for e in got[1]["events"] if e["type"] == kind}  # noqa: E731
            started, exited = of("exec.started"), of("exec.exited")
            if set(started) != set(exited):
                return None
            return [exited[one] for one, e in started.items() if e["command"] != "ls"]

        messages = f"/api/rooms/{room}/messages"
        got = await again_until(
            lambda: server.http("GET", messages), lambda got: ends(got) is not None
        )
        assert all(end["reason"] == "sandbox_unavailable" for end in ends(got))
    assert "Traceback" not in server.log(), server.log()


async def test_redis_back_without_its_data(start, codec, valkey) -> None:
    """The room is gone with it: members are told, nothing hangs, new rooms work."""
    server = start(DUET_REDIS_URL=valkey.url)
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada:
        first = await ada.join(room)
        valkey.kill()
        for file in valkey.folder.rglob("*"):
            if file.is_file():
                file.unlink()
        valkey.start()

        async def join():
            return await ada.ask("join", room=room)

        reply = await again_until(
            join, lambda r: r["type"] == "joined" or r["code"] != "unavailable"
        )
        assert reply.get("code") == "unknown_room" or reply["epoch"] != first["epoch"]
        fresh = await again_until(
            lambda: server.http("POST", "/api/rooms", {}), lambda answer: answer[0] == 201
        )
        await ada.join(fresh[1]["id"])
        said = await ada.ok("say", room=fresh[1]["id"], text="hi")
        await ada.event(said["offset"], fresh[1]["id"])
    assert "Traceback" not in server.log(), server.log()


async def test_the_embedded_valkey_is_started_again_and_keeps_everything(start, codec) -> None:
    server = start()
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada:
        joined = await ada.join(room)
        said = await ada.ok("say", room=room, text="before")
        kill(named(children(server.process.pid), "valkey"))
        after = await again_until(
            lambda: ada.ask("say", room=room, text="after", key="a"), lambda r: r["type"] == "ack"
        )
        assert after["offset"] == said["offset"] + 1
        await ada.event(after["offset"], room)
        again = await ada.join(room)
        assert again["epoch"] == joined["epoch"]
    assert "Traceback" not in server.log(), server.log()


async def test_sigterm_says_bye_and_exits_in_ten_seconds(start, codec) -> None:
    server = start()
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada, server.client(JSON, "Ben") as ben:
        await ada.join(room)
        await ben.join(room)
        running = await ada.run(room, "echo on; trap '' TERM; sleep 98")
        await ada.printed(running, b"on\n")
        code = await asyncio.to_thread(server.stop)
        assert code == 0
        for client in (ada, ben):
            closed = await client.until_closed()
            (bye,) = client.of("bye")
            assert closed in (4000, 1001)
            assert (bye["code"], bye["reconnect"]) == (closed, True)
            assert bye["reason"]
    assert "Traceback" not in server.log(), server.log()


async def test_sigterm_does_not_wait_for_clients_that_do_not_read(start) -> None:
    server = start()
    async with server.client(JSON) as ada:
        ada.socket.transport.pause_reading()
        silent = await asyncio.open_connection("127.0.0.1", server.port)
        half = await asyncio.open_connection("127.0.0.1", server.port)
        half[1].write(b"GET / HTTP/1.1\r\nHo")
        assert await asyncio.to_thread(server.stop) == 0
        for _, writer in (silent, half):
            writer.close()
        ada.socket.transport.abort()


def test_one_server_per_data_folder(start, tmp_path) -> None:
    first = start()
    second = Server(tmp_path / "data")
    assert second.process.wait(30) == 1
    (line,) = second.log().strip().splitlines()
    assert str(tmp_path / "data") in line
    assert first.process.poll() is None


def test_a_taken_port_is_one_line(start, tmp_path) -> None:
    first = start()
    taken = subprocess.run(
        [*DUET, "serve", "--port", str(first.port), "--data-dir", tmp_path / "other"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert taken.returncode == 1
    (line,) = (taken.stdout + taken.stderr).strip().splitlines()
    assert str(first.port) in line
