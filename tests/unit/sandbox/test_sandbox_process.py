"""One exec against a host that only writes down what it is asked for."""

import asyncio
from binascii import a2b_base64

import pytest

from sandbox.errors import Detached, InvalidSpec, LinkBroken
from sandbox.frames import Output
from sandbox.process import CREDIT_BYTES, INPUT_WINDOW_BYTES, Process
from sandbox.spec import ExecSpec
from sandbox.survivors import Survivor

EXIT = {
    "t": "exit", "x": "e1", "why": None, "ms": 1, "bytes": {}, "code": 0, "sig": None, "oom": False,
}  # fmt: skip


class Host:
    def __init__(self):
        self.sent, self.flows, self.over, self.forgotten, self.raised = [], [], [], [], 0
        self.abandoned = asyncio.Event()

    def send(self, fields):
        self.sent.append(fields)

    def dirty(self, process):
        self.flows.append(process.flow_message())

    def ended(self, process):
        self.over.append(process.exec)

    def forget(self, process):
        self.forgotten.append(process.exec)

    def raise_cpu(self):
        self.raised += 1

    def abandon(self, message):
        self.abandoned.set()


class Sink:
    def __init__(self, error=None):
        self.got, self.error = [], error

    def output(self, stream, at, data):
        if self.error:
            raise self.error
        self.got.append((stream, at, data))


@pytest.fixture
async def host():
    return Host()


def make(host, sink=None, **fields):
    process = Process(host, ExecSpec("e1", "cat", **fields), sink or Sink(), lambda: 0.0)
    process.launch()
    return process


async def test_output_goes_on_once_and_in_order(host):
    sink = Sink()
    process = make(host, sink)
    process.on_output(Output("e1", "stdout", 0, b"abc"))
    process.on_output(Output("e1", "stdout", 1, b"bcd"))  # a replay overlaps
    process.on_output(Output("e1", "stdout", 0, b"ab"))
    process.on_output(Output("e1", "stderr", 0, b"!"))
    assert sink.got == [("stdout", 0, b"abc"), ("stdout", 3, b"d"), ("stderr", 0, b"!")]


@pytest.mark.parametrize(
    "frame",
    [
        Output("e1", "stdout", 1, b"a"),
        Output("e1", "stdout", 0, bytes(CREDIT_BYTES + 1)),
        Output("e1", "pty", 0, b"a"),
    ],
)
async def test_what_was_not_granted_breaks_the_link(host, frame):
    process = make(host)
    with pytest.raises(LinkBroken):
        process.on_output(frame)


async def test_credit_is_joined_but_never_starves_the_command(host):
    process = make(host)
    process.on_output(Output("e1", "stdout", 0, bytes(1000)))
    process.grant("stdout", CREDIT_BYTES + 1000)
    assert host.flows == []  # small, and plenty left
    process.on_output(Output("e1", "stdout", 1000, bytes(CREDIT_BYTES - 1000)))
    process.grant("stdout", CREDIT_BYTES + 1001)
    assert host.flows[-1]["g"]["stdout"] == CREDIT_BYTES + 1001
    process.ack("stdout", CREDIT_BYTES)
    assert host.flows[-1]["a"]["stdout"] == CREDIT_BYTES


async def test_what_did_not_come_cannot_be_acknowledged(host):
    process = make(host)
    process.ack("stdout", 10**9)
    assert process.flow_message()["a"]["stdout"] == 0


async def test_one_result_and_the_first_counts(host):
    process = make(host)
    process.on_control(EXIT)
    process.fail("sandbox_terminated", "too late")
    result = await process.wait()
    assert result.ok
    assert (host.over, host.forgotten) == (["e1"], [])


async def test_an_end_is_forgotten_only_once_it_is_stored(host):
    process = make(host)
    process.confirm()
    assert host.forgotten == []
    process.on_control(EXIT)
    process.confirm()
    assert host.forgotten == ["e1"]


async def test_wait_may_be_cancelled_and_awaited_again(host):
    process = make(host)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await process.wait()
    process.fail("sandbox_terminated", "gone")
    assert (await process.wait()).reason == "sandbox_terminated"


async def test_a_sink_that_fails_ends_its_command_only(host):
    process = make(host, Sink(RuntimeError("disk full")))
    process.on_output(Output("e1", "stdout", 0, b"a"))
    result = await process.wait()
    assert result.reason == "internal_error"
    assert "disk full" not in result.message
    assert {"t": "cancel", "x": "e1", "grace": 0.0} in host.sent


async def test_input_waits_for_room_and_goes_on(host):
    process = make(host, stdin=True)
    data = bytes(range(256)) * 2048
    task = asyncio.create_task(process.write(data, eof=True))
    taken = 0
    while not task.done():
        await asyncio.sleep(0)
        pieces = [a2b_base64(m["d"]) for m in host.sent if m["t"] == "in"]
        assert sum(map(len, pieces)) - taken <= INPUT_WINDOW_BYTES
        taken = sum(map(len, pieces))
        process.on_control({"t": "in", "x": "e1", "at": taken, "closed": False})
    inputs = [m for m in host.sent if m["t"] == "in"]
    assert b"".join(a2b_base64(m["d"]) for m in inputs) == data
    assert [m["eof"] for m in inputs] == [False] * (len(inputs) - 1) + [True]


async def test_input_for_a_command_that_reads_no_more_does_not_hang(host):
    process = make(host, stdin=True)
    task = asyncio.create_task(process.write(bytes(INPUT_WINDOW_BYTES * 2)))
    await asyncio.sleep(0)
    assert not task.done()
    process.on_control({"t": "in", "x": "e1", "at": 0, "closed": True})
    await task
    process.on_control(EXIT)
    await process.write(b"late", eof=True)


async def test_signals_and_sizes(host):
    process = make(host, pty=(80, 24))
    await process.signal("INT")
    await process.resize(100, 30)
    assert host.sent[-2:] == [
        {"t": "sig", "x": "e1", "sig": 2},
        {"t": "size", "x": "e1", "c": 100, "r": 30},
    ]
    await process.signal("KILL")
    assert host.sent[-1] == {"t": "cancel", "x": "e1", "grace": 0.0}
    with pytest.raises(InvalidSpec):
        await process.signal("NOPE")
    with pytest.raises(InvalidSpec):
        await process.resize(0, 0)


async def test_a_kill_that_is_not_confirmed_gets_more_cpu_and_then_takes_the_sandbox(
    host, monkeypatch
):
    monkeypatch.setattr("sandbox.process.RAISE_AFTER_S", 0.0)
    monkeypatch.setattr("sandbox.process.KILL_AFTER_S", 0.001)
    process = make(host)
    await process.signal("KILL")
    await asyncio.wait_for(host.abandoned.wait(), 5)
    assert host.raised == 1


async def test_a_confirmed_kill_is_left_alone(host, monkeypatch):
    monkeypatch.setattr("sandbox.process.RAISE_AFTER_S", 0.0)
    monkeypatch.setattr("sandbox.process.KILL_AFTER_S", 0.0)
    process = make(host)
    await process.signal("KILL")
    process.on_control({"t": "killed", "x": "e1"})
    for _ in range(5):
        await asyncio.sleep(0)
    assert (host.raised, host.abandoned.is_set()) == (0, False)


SURVIVOR = Survivor(
    exec="e1",
    printed={"stdout": 100, "stderr": 0},
    granted={"stdout": 400_000, "stderr": CREDIT_BYTES},
    terminal=False,
    takes_input=True,
    written=10,
    timeout_ms=60_000,
    limit_bytes=10**6,
    age_ms=2000,
    done=False,
)


async def test_one_that_survived_goes_on_where_it_is_stored(host):
    sink = Sink()
    process = Process.survived(host, SURVIVOR, sink, lambda: 0.0, {"stdout": 60, "stderr": 9})
    process.claim()
    assert host.sent[0] == {"t": "claim", "x": "e1", "have": {"stdout": 60, "stderr": 0}}
    assert host.sent[1]["a"] == {"stdout": 60, "stderr": 0}
    assert host.sent[1]["g"]["stdout"] == 400_000
    process.on_output(Output("e1", "stdout", 40, b"a" * 60))
    assert sink.got == [("stdout", 60, b"a" * 40)]
    process.fail("sandbox_terminated", "gone")
    assert (await process.wait()).duration_ms == 2000


async def test_one_that_was_let_go_has_no_end(host):
    process = make(host)
    process.detach()
    with pytest.raises(Detached):
        await process.wait()
    process.fail("sandbox_terminated", "not told any more")
    with pytest.raises(Detached):
        await process.wait()


async def test_what_the_runner_does_not_know_is_launched_once_and_never_twice(host):
    process = make(host)
    process.resumed(known=False)
    assert [m["t"] for m in host.sent].count("run") == 2  # the first was lost on its way
    process.on_control({"t": "started", "x": "e1", "pid": 5})
    process.resumed(known=False)
    assert [m["t"] for m in host.sent].count("run") == 2
    assert (await process.wait()).reason == "sandbox_terminated"


async def test_what_is_not_begun_in_time_gets_cpu_and_is_then_withdrawn(host, monkeypatch):
    monkeypatch.setattr("sandbox.process.SPAWN_RAISE_S", (0.0, 0.01))
    monkeypatch.setattr("sandbox.process.SPAWN_S", 0.03)
    result = await asyncio.wait_for(make(host).wait(), 5)
    assert (result.reason, result.retryable) == ("sandbox_unavailable", True)
    assert "too busy" in result.message
    assert host.raised == 2
    assert [message["t"] for message in host.sent] == ["run", "cancel"]
