"""Commands in a room's sandbox beyond the main story: bytes, streams, input, ends."""

import asyncio
import base64

import pytest

from tests.integration.server.harness import JSON, SANDBOX_S
from tests.integration.server.rules import data_of


@pytest.fixture(scope="module")
def warm(server):
    """A room of this module whose sandbox is up already."""
    return asyncio.run(_warm(server))


async def _warm(server):
    room = await server.new_room()
    await server.http("POST", f"/api/rooms/{room}/sandbox/exec", {"cmd": "true"})
    return room


@pytest.fixture
async def ada(server, codec, warm):
    async with server.client(codec, "Ada") as ada:
        await ada.join(warm)
        yield ada


async def test_bytes_arrive_as_they_were_printed(server, ada, warm) -> None:
    printed = bytes(range(256)) * 3
    escaped = "".join(f"\\{byte:03o}" for byte in printed)
    async with server.client(JSON, "Ben") as ben:
        await ben.join(warm)
        done = await ada.run(warm, f"printf '{escaped}'")
        for client in (ada, ben):
            end = await client.exited(done)
            assert client.output(done) == printed
            assert end["bytes"]["stdout"] == len(printed)
            assert "\ufffd" in end["stdout"]


async def test_a_character_in_two_pieces_is_whole_or_its_bytes(ada, warm) -> None:
    """The runner sees the halves apart: the second is printed after input."""
    done = await ada.run(warm, r"printf 'a\303'; read x; printf '\251z'", stdin=True)
    await ada.printed(done, b"a")
    await ada.printed(done, b"a\xc3")
    await ada.input(done, "\n")
    await ada.exited(done)
    assert ada.output(done) == "aéz".encode()


async def test_streams_have_their_own_positions(ada, warm) -> None:
    done = await ada.run(warm, "echo out; echo err >&2; echo out2; echo err2 >&2")
    end = await ada.exited(done)
    assert ada.output(done) == b"out\nout2\n"
    assert ada.output(done, "stderr") == b"err\nerr2\n"
    assert end["bytes"] == {"stdout": 9, "stderr": 9}
    frames = ada.of("exec.output", exec=done)
    seen = 0
    for frame in frames:
        assert frame["pos"] == seen
        seen += frame["size"]


async def test_argv_env_and_cwd(ada, warm) -> None:
    argv = ["printf", "%s|", "a b", "$HOME", "é", ""]
    end = await ada.exited((await ada.ok("exec", room=warm, argv=argv))["exec"])
    assert end["stdout"] == "a b|$HOME|é||"
    env = {"DUET_X": "1 2"}
    done = await ada.run(warm, 'echo "$DUET_X"; pwd', env=env, cwd="/tmp")
    assert (await ada.exited(done))["stdout"] == "1 2\n/tmp\n"
    started = ada.of("exec.started", exec=done)[0]
    assert started["cwd"] == "/tmp"


async def test_what_cannot_start_is_told_in_the_end(ada, warm) -> None:
    absent = await ada.exited((await ada.ok("exec", room=warm, argv=["no-such-program"]))["exec"])
    assert (absent["ok"], absent["reason"]) == (False, "command_failed")
    nowhere = await ada.exited(await ada.run(warm, "true", cwd="/no/such/place"))
    assert nowhere["ok"] is False
    assert nowhere["message"]


async def test_stdin_is_empty_unless_asked_for(ada, warm) -> None:
    end = await ada.exited(await ada.run(warm, "cat; echo end"))
    assert end["stdout"] == "end\n"
    run = await ada.run(warm, "echo on; exec sleep 98")
    await ada.printed(run, b"on\n")
    reply = await ada.ask("exec.input", exec=run, data="x")
    assert reply["type"] == "ack" or reply["code"] == "invalid"
    await ada.ok("exec.cancel", exec=run)
    await ada.exited(run)


async def test_input_goes_in_as_text_base64_and_bytes(ada, codec, warm) -> None:
    done = await ada.run(warm, "od -An -tx1", stdin=True)
    await ada.input(done, "é\0")
    encoded = base64.b64encode(b"\xff\x01").decode()
    await ada.ok("exec.input", exec=done, base64=encoded)
    if codec != JSON:
        await ada.ok("exec.input", exec=done, data=b"\xfe")
    await ada.ok("exec.input", exec=done, eof=True)
    end = await ada.exited(done)
    expected = "c3 a9 00 ff 01" + (" fe" if codec != JSON else "")
    assert end["stdout"].strip() == expected


async def test_a_terminal_has_a_size_that_can_change(ada, warm) -> None:
    done = await ada.run(
        warm, "stty size; read x; stty size; test -t 1 && echo tty", pty={"cols": 91, "rows": 23}
    )
    started = await ada.until(lambda f: f["type"] == "exec.started" and f["exec"] == done)
    assert started["pty"] == {"cols": 91, "rows": 23}
    await ada.until(lambda _: b"23 91" in ada.output(done, "pty"))
    await ada.ok("exec.resize", exec=done, cols=100, rows=40)
    await ada.input(done, "\r")
    end = await ada.exited(done)
    assert end["ok"] is True
    shown = ada.output(done, "pty")
    assert b"40 100" in shown
    assert b"tty" in shown
    assert end["bytes"]["pty"] == len(shown)


async def test_a_signal_is_not_a_cancel(ada, warm) -> None:
    done = await ada.run(warm, "echo on; exec sleep 98")
    await ada.printed(done, b"on\n")
    await ada.ok("exec.signal", exec=done, signal="INT")
    end = await ada.exited(done)
    assert (end["reason"], end["signal"]) == ("command_failed", "INT")
    done = await ada.run(warm, "echo on; exec sleep 98")
    await ada.printed(done, b"on\n")
    await ada.ok("exec.signal", exec=done, signal="KILL")
    assert (await ada.exited(done))["reason"] == "cancelled"


async def test_a_timeout_keeps_what_was_printed_and_kills_everything(ada, warm) -> None:
    done = await ada.run(warm, "echo kept; setsid sleep 76543 & sleep 76543", timeoutMs=300)
    end = await ada.exited(done)
    assert (end["ok"], end["reason"], end["retryable"]) == (False, "timeout", True)
    assert end["stdout"] == "kept\n"
    look = r"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -c 'sleep 7654[3]'"
    assert (await ada.exited(await ada.run(warm, look)))["stdout"] == "0\n"


async def test_long_output_is_cut_in_the_event_and_kept_to_be_read(ada, warm) -> None:
    done = await ada.run(warm, "seq 1 200000")
    end = await ada.exited(done)
    whole = "".join(f"{number}\n" for number in range(1, 200001)).encode()
    assert end["bytes"]["stdout"] == len(whole)
    assert end["truncated"]["stdout"] is True
    assert end["stdout"].encode() == whole[:1024] + whole[-3 * 1024 :]
    begin = len(ada.frames)
    head = await ada.ok("exec.read", exec=done, at=0, limit=65536)
    pieces = [f for f in ada.frames[begin:] if f["type"] == "exec.output" and "ref" in f]
    assert {piece["ref"] for piece in pieces} == {head["ref"]}
    assert b"".join(map(data_of, pieces)) == whole[:65536]
    assert pieces[0]["at"] == 0
    begin = len(ada.frames)
    at = len(whole) - 1000
    tail = await ada.ok("exec.read", exec=done, at=at, stream="stdout")
    pieces = [f for f in ada.frames[begin:] if f["type"] == "exec.output"]
    assert b"".join(map(data_of, pieces)) == whole[-1000:]
    assert tail["end"] == len(whole)


async def test_a_flood_is_cut_live_and_says_so(ada, warm) -> None:
    """Three times the live burst: the rest is gaps, and the numbers add up."""
    size = 12 * 1024 * 1024
    done = await ada.run(warm, f"head -c {size} /dev/zero | tr '\\0' x")
    end = await ada.exited(done)
    assert end["bytes"]["stdout"] == size
    seen = sum(frame["size"] for frame in ada.of("exec.output", exec=done))
    gaps = sum(frame["to"] - frame["from"] for frame in ada.of("exec.gap", exec=done))
    assert seen + gaps == size
    assert gaps > 0
    begin = len(ada.frames)
    middle = await ada.ok("exec.read", exec=done, at=5 * 1024 * 1024, limit=1000)
    answers = [f["type"] for f in ada.frames[begin:] if f.get("ref") == middle["ref"]]
    assert "exec.gap" in answers, "the middle is not kept"


async def test_many_at_once(ada, warm) -> None:
    runs = [await ada.run(warm, f"echo {number}; sleep 0.2") for number in range(20)]
    ends = [await ada.exited(run, SANDBOX_S) for run in runs]
    assert [end["stdout"] for end in ends] == [f"{number}\n" for number in range(20)]


async def test_a_cancel_while_the_sandbox_starts(server, codec) -> None:
    room = await server.new_room()
    async with server.client(codec, "Ada") as ada:
        await ada.join(room)
        run = await ada.run(room, "sleep 98")
        await ada.ok("exec.cancel", exec=run)
        end = await ada.exited(run)
        assert (end["ok"], end["reason"]) == (False, "cancelled")


async def test_an_exec_of_another_room_is_not_for_us(server, codec, ada, warm) -> None:
    run = await ada.run(warm, "sleep 98")
    async with server.client(codec, "Eve") as eve:
        for type_, fields in [
            ("exec.cancel", {}),
            ("exec.input", {"data": "x"}),
            ("exec.signal", {"signal": "INT"}),
            ("exec.read", {"at": 0}),
        ]:
            refused = await eve.refused(type_, exec=run, **fields)
            assert refused["code"] in ("not_joined", "unknown_exec")
    await ada.ok("exec.cancel", exec=run)
    await ada.exited(run)


@pytest.mark.parametrize("exec_id", ["nonsense", "no.such", "x" * 128])
async def test_an_unknown_exec(ada, exec_id) -> None:
    refused = await ada.refused("exec.cancel", exec=exec_id)
    assert refused["code"] in ("unknown_exec", "not_joined")
    assert (await ada.refused("exec.read", exec=exec_id, at=0))["code"] in (
        "unknown_exec",
        "not_joined",
    )


async def test_the_streams_come_in_the_order_they_were_printed(pair, room) -> None:
    ada, _ = pair
    command = "for i in 1 2 3 4; do echo out$i; sleep 0.01; echo err$i >&2; sleep 0.01; done"
    exec_id = await ada.run(room, command)
    await ada.exited(exec_id)
    live = [f for f in ada.of("exec.output", exec=exec_id) if "ref" not in f]
    assert [f["pos"] for f in live] == sorted(f["pos"] for f in live)
    said = b"".join(data_of(f) for f in live).split()
    assert said == [word for i in "1234" for word in (f"out{i}".encode(), f"err{i}".encode())]
