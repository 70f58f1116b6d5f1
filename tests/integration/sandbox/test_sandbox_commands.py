"""Commands in one warm sandbox on the real engine: output, input, ends, and what is left of them."""

import asyncio
import hashlib
import time

import pytest

from tests.integration.sandbox.houses import alive

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_command_prints_and_succeeds(box):
    result, sink = await box.run("echo out; echo err >&2")
    assert result.ok
    assert (result.exit_code, result.signal) == (0, None)
    assert (sink.stdout, sink.of("stderr")) == (b"out\n", b"err\n")
    assert result.bytes == {"stdout": 4, "stderr": 4}


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        ("exit 3", 3, None),
        ("exit 137", 137, None),
        ("exit 143", 143, None),
        ("kill -9 $$", None, "KILL"),
        ("kill -SEGV $$", None, "SEGV"),
        ("no-such-program", 127, None),
        ("echo Killed; echo Out of memory >&2; exit 1", 1, None),
    ],
)
async def test_a_failure_is_told_by_its_status(box, command, code, signal):
    result, _ = await box.run(command)
    assert result.reason == "command_failed"
    assert not result.retryable
    assert (result.exit_code, result.signal) == (code, signal)


async def test_files_stay_between_commands(box):
    await box.text("echo kept > note; mkdir -p sub")
    assert await box.text("cat /workspace/note") == "kept\n"
    result, sink = await box.run("pwd; echo $PWD", cwd="/workspace/sub")
    assert result.ok
    assert sink.stdout == b"/workspace/sub\n" * 2


async def test_argv_is_run_as_it_stands(box):
    result, sink = await box.run(argv=("printf", "%s|", "$HOME", "a b", "", "*"))
    assert result.ok
    assert sink.stdout == b"$HOME|a b||*|"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"argv": ("no-such-program",)}, 127),
        ({"argv": ("/workspace",)}, 126),
        ({"command": "true", "cwd": "/nowhere"}, 127),
        ({"command": "true", "cwd": "/etc/passwd"}, 126),
        ({"command": "true", "cwd": "/proc/self/fd/7"}, None),
    ],
)
async def test_what_cannot_be_started_says_why(box, fields, code):
    result, _ = await box.run(**fields)
    assert result.reason == "command_failed"
    assert "could not be started" in result.message
    assert code is None or result.exit_code == code
    assert await box.text("pwd") == "/workspace\n"


async def test_the_environment_is_the_command_s_alone(box):
    result, sink = await box.run('echo "$TOKEN $LC_CTYPE $HOME $TERM"', env={"TOKEN": "s3cret"})
    assert result.ok
    assert sink.stdout == b"s3cret C.UTF-8 /root dumb\n"
    assert "s3cret" not in str(await box.inspect())
    assert "s3cret" not in await box.text("env; tr '\\0' '\\n' < /proc/1/cmdline")


async def test_bytes_arrive_as_they_were_printed(box):
    wanted = bytes(range(256)) * 300
    octal = "".join(f"\\{n:03o}" for n in range(256))
    result, sink = await box.run(f"for i in $(seq 300); do printf '{octal}'; done")
    assert result.ok
    assert sink.stdout == wanted


async def test_a_big_output_is_whole(box):
    """Every line numbered, both streams at once, far beyond any buffer."""
    result, sink = await box.run("seq 1 1500000 & seq 1 1500000 >&2; wait")
    wanted = "".join(f"{n}\n" for n in range(1, 1_500_001)).encode()
    assert result.ok
    for stream in ("stdout", "stderr"):
        assert hashlib.sha256(sink.of(stream)).digest() == hashlib.sha256(wanted).digest()
        assert result.bytes[stream] == len(wanted)


async def test_the_end_waits_for_the_last_byte(box):
    for _ in range(30):
        result, sink = await box.run("head -c 60000 /dev/zero; exit 4")
        assert result.exit_code == 4
        assert len(sink.stdout) == 60_000


async def test_nothing_is_sent_beyond_what_was_granted(box):
    process, sink = await box.begin("yes")
    sink.process = None  # from here on nobody grants
    await sink.until(b"y\n")
    assert await box.text("echo others go on") == "others go on\n"
    assert sink.size["stdout"] <= 3 * 256 * 1024
    sink.process = process
    sink.consume("stdout")
    await sink.beyond("stdout", 10_000_000)
    await process.cancel()
    assert (await process.wait()).reason == "cancelled"


async def test_commands_run_at_the_same_time(box):
    async def one(n):
        result, sink = await box.run(f"echo {n}; sleep 0.5; echo {n}")
        assert result.ok
        assert sink.stdout == f"{n}\n{n}\n".encode()

    await box.text("true")
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for n in range(20):
            group.create_task(one(n))
    assert time.monotonic() - began < 5  # one after another they take ten


async def test_stdin_is_empty_unless_asked_for(box):
    assert await box.text("cat; readlink /proc/self/fd/0") == "/dev/null\n"


async def test_stdin_goes_through_whole_and_ends(box):
    process, sink = await box.begin("cat", stdin=True)
    await process.write(b"one\n")
    await sink.until(b"one\n")
    data = bytes(range(256)) * 4000
    await process.write(data, eof=True)
    result = await asyncio.wait_for(process.wait(), 20)
    assert result.ok
    assert sink.stdout == b"one\n" + data


async def test_a_command_that_does_not_read_slows_only_its_writer(box):
    process, _ = await box.begin("sleep 60", stdin=True)
    writer = asyncio.create_task(process.write(bytes(2_000_000)))
    assert await box.text("echo fine") == "fine\n"
    assert not writer.done()
    await process.cancel()
    await asyncio.wait_for(writer, 10)
    assert (await process.wait()).reason == "cancelled"


async def test_a_terminal(box):
    process, sink = await box.begin("tty; stty size; read x; stty size; echo got $x", pty=(80, 24))
    await sink.until(b"24 80")
    await process.resize(100, 30)
    await process.write(b"hello\n")
    result = await asyncio.wait_for(process.wait(), 10)
    assert result.ok
    text = sink.of("pty").replace(b"\r\n", b"\n")
    assert text.startswith(b"/dev/pts/")
    assert text.endswith(b"30 100\ngot hello\n")


async def test_a_terminal_takes_control_characters(box):
    process, sink = await box.begin(
        "trap 'echo caught; exit 5' INT; echo up; sleep 60", pty=(80, 24)
    )
    await sink.until(b"up")
    await process.write(b"\x03")
    result = await asyncio.wait_for(process.wait(), 10)
    assert result.exit_code == 5
    assert b"caught" in sink.of("pty")
    process, sink = await box.begin("cat; echo end", pty=(80, 24))
    await process.write(b"line\n", eof=True)
    assert (await asyncio.wait_for(process.wait(), 10)).ok
    assert sink.of("pty").endswith(b"end\r\n")


async def test_a_big_paste_goes_through_a_terminal(box):
    process, sink = await box.begin(
        "stty -echo -icanon; echo up; head -c 88000 | md5sum", pty=(80, 24)
    )
    await sink.until(b"up")
    paste = (b"x" * 79 + b"\n") * 1100
    await process.write(paste)
    assert (await asyncio.wait_for(process.wait(), 20)).ok
    assert hashlib.md5(paste).hexdigest().encode() in sink.of("pty")


async def test_signals_reach_the_group(box):
    process, sink = await box.begin("trap 'echo caught' USR1; echo up; sleep 60 & wait; sleep 60")
    await sink.until(b"up")
    await process.signal("USR1")
    await sink.until(b"caught")
    await process.signal("TERM")
    result = await asyncio.wait_for(process.wait(), 10)
    assert (result.reason, result.signal) == ("command_failed", "TERM")


async def test_a_cancelled_command_does_not_go_on(box):
    process, _ = await box.begin("sleep 1 && touch PROOF; sleep 1; touch PROOF")
    await process.cancel()
    result = await asyncio.wait_for(process.wait(), 5)
    assert result.reason == "cancelled"
    assert await box.text("sleep 2.5; ls PROOF 2>&1 || true") == (
        "ls: cannot access 'PROOF': No such file or directory\n"
    )


ESCAPES = {
    "background": "sleep {n} & wait",
    "setsid": "setsid sleep {n} & wait",
    "clean environment": "env -i setsid sleep {n} & wait",
    "double fork": "(setsid bash -c '(sleep {n} &) &' &); sleep {n}",
    "nohup": "nohup setsid nohup sleep {n} >/dev/null 2>&1 & disown; sleep {n}",
    "deaf": "trap '' TERM INT HUP; setsid bash -c 'trap \"\" TERM; while :; do sleep {n}; done' & wait",
    "daemon": "python3 -c 'import os,time; os.fork() and time.sleep({n}); os.setsid(); os.fork() and os._exit(0); time.sleep({n})'",
    "stopped": "sleep {n} & kill -STOP $!; wait",
    "other user": "setsid su -s /bin/bash nobody -c 'sleep {n}' & wait",
}


@pytest.mark.parametrize("how", ESCAPES)
async def test_a_timeout_ends_everything_it_started(box, how):
    number = 7_000_000 + list(ESCAPES).index(how)
    result, _ = await box.run(ESCAPES[how].format(n=number), timeout_ms=400)
    assert result.reason == "timeout"
    assert result.retryable
    assert 400 <= result.duration_ms < 8000
    assert await alive(box, number) == []


async def test_a_forking_tree_is_ended(box):
    """It forks while it is being killed."""
    command = (
        "python3 -c 'import os,time\n"
        "for _ in range(30):\n"
        "  if not os.fork():\n"
        "    while True:\n"
        "      time.sleep(0.002)\n"
        "      if os.fork(): os._exit(0)\n"
        "time.sleep(8000000)'"
    )
    result, _ = await box.run(command, timeout_ms=500)
    assert result.reason == "timeout"
    assert await box.text("pgrep -c -f 8000000 || true") == "1\n"  # the shell that looks


async def test_a_pool_under_a_timeout_leaves_a_sandbox_that_works(box):
    command = "python3 -c 'from multiprocessing import Pool; import time; Pool(64).map(time.sleep, [60]*64)'"
    for _ in range(2):
        result, _ = await box.run(command, timeout_ms=1500)
        assert result.reason == "timeout"
    assert "20" in await box.text("date")


async def test_other_commands_survive_a_kill(box):
    other, sink = await box.begin("echo up; sleep 1.5; echo still here")
    await sink.until(b"up")
    result, _ = await box.run("sleep 100", timeout_ms=100)
    assert result.reason == "timeout"
    assert (await other.wait()).ok
    assert sink.stdout.endswith(b"still here\n")


async def test_what_was_printed_before_a_timeout_is_kept(box):
    result, sink = await box.run("echo before; sleep 100", timeout_ms=300)
    assert result.reason == "timeout"
    assert sink.stdout == b"before\n"


async def test_a_command_may_end_well_in_its_grace(box):
    process, sink = await box.begin("trap 'echo bye; exit 0' TERM; echo up; sleep 100 & wait")
    await sink.until(b"up")
    await process.cancel()
    result = await asyncio.wait_for(process.wait(), 5)
    assert (result.reason, result.ok) == ("cancelled", False)
    assert sink.stdout.endswith(b"bye\n")


async def test_kill_is_a_cancel_at_once(box):
    process, sink = await box.begin("trap 'echo no' TERM; echo up; sleep 100 & wait; sleep 100")
    await sink.until(b"up")
    await process.signal("KILL")
    result = await asyncio.wait_for(process.wait(), 5)
    assert (result.reason, result.signal) == ("cancelled", "KILL")
    assert b"no" not in sink.stdout


async def test_an_output_limit_ends_the_command(box):
    result, sink = await box.run("yes", output_limit_bytes=1_000_000)
    assert result.reason == "output_limit"
    assert len(sink.stdout) == 1_000_000
    result, sink = await box.run("head -c 1000 /dev/zero", output_limit_bytes=1000)
    assert result.ok


async def test_a_background_child_lives_on_and_holds_nothing_up(box):
    process, sink = await box.begin(
        "bash -c 'while :; do echo noise; sleep 0.05; done; : 7100000' & echo started $!"
    )
    result = await asyncio.wait_for(process.wait(), 5)
    assert result.ok
    assert result.duration_ms < 1000
    size = len(sink.stdout)
    assert await box.text("sleep 0.3; pgrep -c -f 7100000") == "1\n"
    assert len(sink.stdout) == size
    await box.text("pkill -f 'noise.*[7]100000' || true")


async def test_a_flooding_child_cannot_hold_the_end_back(box):
    process, _ = await box.begin("yes & echo $! > pid; sleep 0.2")
    assert (await asyncio.wait_for(process.wait(), 5)).ok
    assert (
        await box.text("kill -0 $(cat pid) && kill $(cat pid) && echo was there") == "was there\n"
    )


async def test_more_commands_than_there_are_tags(box):
    async def one():
        for _ in range(70):
            result, _ = await box.run(argv=("true",))
            assert result.ok

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(one())


async def test_commands_cannot_reach_the_runner(box):
    for attempt in (
        "echo x > /proc/1/fd/1",
        "cat /proc/1/environ",
        "readlink /proc/1/fd/3",
        "cat < /proc/1/fd/4",
        "dd if=/proc/1/mem bs=1 count=1",
    ):
        result, _ = await box.run(attempt)
        assert result.reason == "command_failed", attempt
    await box.text("kill -TERM 1; kill -INT 1; kill -9 1; true")
    result, _ = await box.run("kill -9 -1")
    assert result.reason in ("command_failed", None)
    assert await box.text("echo alive") == "alive\n"
