"""The Python client for bots against the real server."""

import asyncio

import pytest

from protocol.client import Disconnected, connect
from protocol.errors import DuetError, KeyConflict, UnknownRoom, UnknownSandbox
from tests.integration.server.harness import JSON


@pytest.fixture(params=["json", "msgpack"])
def encoding(request):
    return request.param


@pytest.fixture
async def client(server, encoding):
    async with asyncio.timeout(120), connect(server.url, name="Bot", codec=encoding) as client:
        yield client


async def test_it_chats(client, room) -> None:
    joined = await client.join(room)
    ack = await joined.say("hello", key="k")
    with pytest.raises(KeyConflict):
        await joined.say("other", key="k")
    event = await anext(joined.events(idle_s=20))
    assert (event.type, event.text, event.offset) == ("message", "hello", ack.offset)
    assert event.by == client.participant.model_copy(update={"role": None})
    await joined.edit(ack.id, "hej")
    await joined.react(ack.id, "👋")
    page = await joined.history(limit=1, after=ack.offset - 1)
    assert page.events[0].text == "hej"
    await joined.typing(on=True)
    await client.ping()
    assert joined.position.offset >= ack.offset


async def test_it_runs_commands_and_hears_every_byte(client, room) -> None:
    joined = await client.join(room)
    run = await joined.exec(r"printf 'a\377b'; echo err >&2; exit 4")
    pieces = [piece async for piece in run]
    assert b"".join(p.data for p in pieces if p.stream == "stdout") == b"a\xffb"
    assert b"".join(p.data for p in pieces if p.stream == "stderr") == b"err\n"
    result = await run.wait()
    assert (result.ok, result.reason, result.exit_code) == (False, "command_failed", 4)
    assert run.started.by.id == client.participant.id


async def test_it_reads_again_what_it_was_not_sent(client, room, monkeypatch) -> None:
    """Eight megabytes of output, four more than come live; of each stream 1 MiB is kept."""
    joined = await client.join(room)
    run = await joined.exec("head -c 8000000 /dev/zero | tr '\\0' x")
    got, at = 0, 0
    async for piece in run:
        assert piece.at >= at
        assert set(piece.data) == {ord("x")}
        got, at = got + len(piece.data), piece.at + len(piece.data)
    assert at == (await run.wait()).bytes["stdout"] == 8_000_000
    assert got + run.lost_bytes == 8_000_000
    assert got >= 1024 * 1024


async def test_it_talks_to_a_command_and_stops_another(client, room) -> None:
    joined = await client.join(room)
    first = await joined.exec(["cat"], stdin=True)
    second = await joined.exec("echo on; sleep 98")
    assert (await anext(aiter(second))).data == b"on\n"
    await first.input("over here\n", eof=True)
    assert b"".join([piece.data async for piece in first]) == b"over here\n"
    assert (await first.wait()).ok
    await second.cancel()
    assert (await second.wait()).reason == "cancelled"


async def test_it_follows_what_others_run(server, client, room) -> None:
    joined = await client.join(room)
    async with server.client(JSON, "Ada") as ada:
        await ada.join(room)
        running = await ada.run(room, "echo one; read x; echo two", stdin=True)
        async for event in joined.events(idle_s=60):
            if event.type == "exec.started":
                break
        assert event.exec == running
        run = joined.follow(event.exec)
        await ada.input(running, "\n")
        assert b"".join([piece.data async for piece in run]) == b"one\ntwo\n"
        assert (await run.wait()).ok


async def test_errors_have_their_classes(client, room) -> None:
    with pytest.raises(UnknownRoom):
        await client.join("no-such-room")
    joined = await client.join(room)
    await joined.leave()
    with pytest.raises(DuetError) as caught:
        await joined.say("hm")
    assert caught.value.code == "not_joined"
    assert caught.value.message


async def test_it_comes_back_as_the_same_one_where_it_was(server, client, encoding, room) -> None:
    """What reconnecting will do by itself, by hand."""
    joined = await client.join(room)
    await joined.say("seen")
    await anext(joined.events(idle_s=20))
    since = joined.position
    async with connect(server.url, token=client.token, codec=encoding) as again:
        assert again.participant.id == client.participant.id
        await joined.say("missed")
        there = await again.join(room, since=since)
        assert there.joined.resumed
        assert (await anext(there.events(idle_s=20))).text == "missed"


async def test_a_stopping_server_says_to_come_back(start, encoding) -> None:
    server = start()
    async with connect(server.url, name="Bot", codec=encoding) as client:
        joined = await client.join(await server.new_room())
        assert await asyncio.to_thread(server.stop) == 0
        with pytest.raises(Disconnected) as caught:
            await anext(joined.events(idle_s=20))
        assert caught.value.reconnect
        assert caught.value.close_code in (4000, 1001)


async def test_it_leases_sandboxes(client, encoding) -> None:
    name = f"leased-{encoding}"
    record = await client.start_sandbox(name, instance_type="standard-1", sleep_after="5m")
    assert (record.id, record.status) == (name, "requested")
    run = await client.execute_command(name, "echo kept > file; cat", stdin=True)
    await run.input("typed", eof=True)
    assert b"".join([piece.data async for piece in run]) == b"typed"
    assert (await run.wait()).ok
    assert name in [one.id for one in await client.list_sandboxes()]
    killed = await client.kill_sandbox(name)
    assert (killed.status, killed.workspace_saved) == ("stopped", True)
    await client.start_sandbox(name)
    run = await client.execute_command(name, ["cat", "file"])
    assert b"".join([piece.data async for piece in run]) == b"kept\n"
    await client.destroy(name)
    with pytest.raises(UnknownSandbox):
        await client.execute_command(name, "ls")
