"""A terminal that several people share."""

import base64
import hashlib

from tests.integration.server.harness import JSON, SANDBOX_S


async def terminal(
    wire, room: str, command: str = "bash --norc -i", cols: int = 80, rows: int = 24
) -> str:
    reply = await wire.ok("exec", room=room, command=command, pty={"cols": cols, "rows": rows})
    return reply["exec"]


async def seen(wire, exec_id: str, text: bytes) -> None:
    await wire.until(lambda _: text in wire.output(exec_id, "pty"), limit_s=SANDBOX_S)


async def typed(wire, exec_id: str, text: str) -> None:
    await wire.ok("exec.input", exec=exec_id, data=text)


async def test_two_people_type_and_see_one_terminal(pair, room) -> None:
    ada, ben = pair
    exec_id = await terminal(ada, room)
    started = await ben.until(lambda f: f["type"] == "exec.started" and f["exec"] == exec_id)
    assert started["pty"] == {"cols": 80, "rows": 24}
    await typed(ada, exec_id, "echo a$((1+1))a\n")
    await seen(ben, exec_id, b"a2a")
    await typed(ben, exec_id, "echo b$((2+2))b\n")
    await seen(ada, exec_id, b"b4b")
    await typed(ada, exec_id, "exit 5\n")
    for wire in pair:
        exited = await wire.exited(exec_id)
        assert (exited["exitCode"], exited["bytes"]["stdout"]) == (5, 0)
        assert exited["bytes"]["pty"] == len(wire.output(exec_id, "pty"))


async def test_the_openers_last_size_wins(pair, room) -> None:
    ada, ben = pair
    exec_id = await terminal(ada, room)
    await ada.ok("exec.resize", exec=exec_id, cols=101, rows=37)
    resized = await ben.until("exec.resized")
    assert (resized["exec"], resized["cols"], resized["rows"]) == (exec_id, 101, 37)
    for cols, rows in ((40, 10), (120, 50), (102, 38)):
        await ada.ok("exec.resize", exec=exec_id, cols=cols, rows=rows)
    assert (await ben.refused("exec.resize", exec=exec_id, cols=40, rows=10))["code"] == "forbidden"
    assert (await ada.refused("exec.resize", exec=exec_id, cols=0, rows=10))["code"] == "invalid"
    await typed(ada, exec_id, "stty size; exit\n")
    await seen(ben, exec_id, b"38 102")
    plain = await ada.run(room, "sleep 95")
    assert (await ada.refused("exec.resize", exec=plain, cols=80, rows=24))["code"] == "invalid"
    await ada.ok("exec.cancel", exec=plain)


async def test_who_comes_late_gets_the_end_and_a_redraw(server, pair, room) -> None:
    ada, _ = pair
    # Draws when its size changes, as full-screen programs do.
    script = (
        "trap 'echo drawn $(stty size)' WINCH; head -c 700000 /dev/zero | tr '\\0' x; "
        "echo; echo ready; while :; do sleep 0.05; done"
    )
    exec_id = await terminal(ada, room, script, rows=30)
    await seen(ada, exec_id, b"ready")
    async with server.client(JSON, "Cleo") as cleo:
        joined = await cleo.join(room)
        (running,) = joined["execs"]
        span = running["streams"]["pty"]
        assert span["to"] - span["from"] == 256 * 1024
        await seen(cleo, exec_id, b"ready")
        await seen(cleo, exec_id, b"drawn 30 80")
    await ada.ok("exec.cancel", exec=exec_id)


async def test_questions_to_the_terminal_reach_no_viewer(pair, room) -> None:
    ada, ben = pair
    command = r"printf 'a\033[6nb\033[cc\033]11;?\007d\033[31me\n'"
    exec_id = await terminal(ada, room, command)
    exited = await ben.exited(exec_id)
    assert ben.output(exec_id, "pty") == b"a\0\0\0\0b\0\0\0c" + b"\0" * 7 + b"d\x1b[31me\r\n"
    assert exited["bytes"]["pty"] == len(ben.output(exec_id, "pty"))


async def test_a_long_paste_goes_through(pair, room) -> None:
    ada, _ = pair
    exec_id = await terminal(ada, room, "stty raw -echo; echo go; head -c 88000 | md5sum; echo end")
    await seen(ada, exec_id, b"go")
    paste = ("0123456789abcdef" * 5500)[:88_000]
    data = base64.b64encode(paste.encode()).decode()
    await ada.ok("exec.input", exec=exec_id, base64=data)
    await seen(ada, exec_id, b"end")
    assert hashlib.md5(paste.encode()).hexdigest().encode() in ada.output(exec_id, "pty")


async def test_a_command_that_reads_nothing_holds_nobody_up(pair, room) -> None:
    ada, _ = pair
    exec_id = await ada.run(room, "echo on; sleep 92", stdin=True)
    await ada.printed(exec_id, b"on\n")
    refused = None
    for _ in range(40):
        reply = await ada.ask("exec.input", exec=exec_id, data="x" * 100_000)
        if reply["type"] == "error":
            refused = reply
            break
    assert refused is not None
    assert (refused["code"], refused["retryable"]) == ("rate_limited", True)
    await ada.ok("say", room=room, text="still here")
    await ada.ok("exec.cancel", exec=exec_id)
    assert (await ada.exited(exec_id))["reason"] == "cancelled"
