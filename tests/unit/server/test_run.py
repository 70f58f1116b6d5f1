"""A run: output waits for its start, is capped and told, and is whole for whoever joins when."""

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Unavailable, UnknownExec
from protocol.events import EVENTS
from sandbox.results import ExecResult
from server import run as module
from server.execframes import result_fields
from server.execlog import ExecLog
from server.output import CHARACTER_S, FRAME_BYTES, JOIN_S, Piece
from server.run import CREDIT_BYTES, KeepLimits, Run
from tests.unit.server.frames import data_of, fields_of
from tests.unit.server.streams import Dict
from tests.unit.server.viewer import Viewer
from tests.unit.server.virtual import settle, virtual

LIMITS = KeepLimits(head_bytes=300, tail_bytes=200, live_burst_bytes=900, live_bytes_per_s=500)
WIDE = KeepLimits(
    head_bytes=2**18, tail_bytes=2**19, live_burst_bytes=2**22, live_bytes_per_s=2**20
)
FINE = ExecResult(None, "", False, 0, None, 12)


class Place:
    """The room: hands what is broadcast to its viewers, like sessions that are never slow."""

    def __init__(self):
        self.frames = []
        self.times = []

    def broadcast(self, frame):
        raise AssertionError("a run has only output to send")

    def broadcast_output(self, source, start, end, frame):
        fields = fields_of(frame)
        at, size = ("from", fields.get("to")) if "from" in fields else ("at", None)
        assert fields[at] == start
        assert end == (size if size is not None else start + fields["size"])
        assert fields["stream"] == source.name
        self.frames.append(fields)
        self.times.append(asyncio.get_running_loop().time())


class Process:
    """The sandbox's side: what was granted and acknowledged."""

    def __init__(self):
        self.granted, self.acked = {}, {}

    def grant(self, stream, position):
        self.granted[stream] = position

    def ack(self, stream, position):
        self.acked[stream] = position


class Store(Dict):
    """Redis, which may be away."""

    away = False

    async def pipeline(self, commands):
        await asyncio.sleep(0.001)
        if self.away:
            raise Unavailable("away")
        return await super().pipeline(commands)

    async def call(self, *command):
        return (await self.pipeline([command]))[0]


@contextmanager
def running(limits=WIDE, store=None):
    """A run in virtual time, its process and its place."""
    loop = asyncio.get_running_loop()
    with mock.patch.object(module, "time", SimpleNamespace(monotonic=loop.time)):
        log = ExecLog(
            store or Store(),
            head_bytes=limits.head_bytes,
            tail_bytes=limits.tail_bytes,
            kept_s=60,
        )
        run = Run("blue", {"room": "blue", "exec": "blue.x"}, Place(), log, limits)
        run.process = Process()
        yield run


def shown(place, stream="stdout"):
    return b"".join(
        data_of(frame)
        for frame in place.frames
        if frame["type"] == "exec.output" and frame["stream"] == stream
    )


DATA = st.sampled_from([b"x", "é".encode(), b"\xe2", b"\x82", b"\xff", b"line\n"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("print"), st.sampled_from(["stdout", "stderr"]), DATA, st.just(1)),
        st.tuples(st.just("print"), st.just("stdout"), DATA, st.integers(1, 200)),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.02, 0.03, 0.1, 1.0])),
        st.tuples(st.just("start")),
        st.tuples(st.just("join")),
    ),
    max_size=40,
)


@given(STEPS)
def test_everyone_is_shown_or_told_every_byte_whenever_they_join(steps) -> None:
    async def main():
        with running(LIMITS) as run:
            printed, joins = {}, [(0, [], {})]
            started = False
            for step, *rest in steps:
                if step == "print":
                    _print(run, printed, rest, free=started)
                elif step == "wait":
                    await asyncio.sleep(rest[0])
                elif step == "start":
                    run.started()
                    started = True
                else:
                    kept = [fields_of(frame) for frame in run.kept_frames()]
                    joins.append((len(run.place.frames), kept, run.spans()))
                assert started or not run.place.frames
            run.started()
            await run.finish(FINE)
            for since, kept, spans in joins:
                _check_join(kept, spans)
                viewer = Viewer()
                for frame in [*kept, *run.place.frames[since:]]:
                    viewer.take(frame)
                viewer.complete(printed)
            _check_positions(run.place.frames)

    virtual(main())


def _print(run, printed, what, *, free):
    stream, data, times = what
    before = printed.get(stream, b"")
    if not free and len(before) + len(data) * times > CREDIT_BYTES:
        return  # the sandbox has no credit for more
    run.output(stream, len(before), data * times)
    printed[stream] = before + data * times


def _check_join(kept, spans):
    """What follows a join goes from `from` to `to`, stream by stream, and counts its bytes."""
    viewer = Viewer()
    for frame in kept:
        viewer.take(frame)
        if frame["type"] == "exec.output":
            assert frame["pos"] == sum(viewer.have.values()) - frame["size"]
    assert viewer.have == {name: span["to"] for name, span in spans.items() if span["to"]}
    assert all(0 <= span["from"] <= span["to"] for span in spans.values())


def _check_positions(frames):
    """`pos` counts every byte of all streams that came before, sent or not."""
    ends = {}
    for frame in frames:
        if frame["type"] == "exec.gap":
            continue
        before = sum(end for name, end in ends.items() if name != frame["stream"])
        assert frame["pos"] >= before + frame["at"]
        ends[frame["stream"]] = frame["at"] + frame["size"]


def test_what_is_sent_is_valid_on_the_wire() -> None:
    async def main():
        with running(LIMITS) as run:
            run.started()
            for at in range(0, 4000, 400):
                run.output("stdout", at, b"x" * 400)
                await asyncio.sleep(JOIN_S)
            run.output("stdout", 4000, b"\xff")
            await run.finish(FINE)
            for frame in run.place.frames:
                EVENTS.validate_python(frame)
            assert {frame["type"] for frame in run.place.frames} == {"exec.output", "exec.gap"}

    virtual(main())


def test_output_waits_for_its_start() -> None:
    async def main():
        with running() as run:
            run.output("stdout", 0, b"early")
            await asyncio.sleep(1)
            assert run.place.frames == []
            assert run.process.granted == {}
            assert run.kept_frames() == []
            run.started()
            assert shown(run.place) == b"early"
            assert run.process.granted == {"stdout": 5 + CREDIT_BYTES}
            run.started()  # told twice is told once
            assert shown(run.place) == b"early"

    virtual(main())


def test_each_chunk_brings_new_credit() -> None:
    async def main():
        with running() as run:
            run.started()
            run.output("stdout", 0, b"x" * 1000)
            run.output("stderr", 0, b"y" * 10)
            assert run.process.granted == {
                "stdout": 1000 + CREDIT_BYTES,
                "stderr": 10 + CREDIT_BYTES,
            }

    virtual(main())


def test_followers_go_together_and_in_time_in_every_stream() -> None:
    async def main():
        with running() as run:
            run.started()
            loop = asyncio.get_running_loop()
            run.output("stdout", 0, b"1")
            run.output("stdout", 1, b"\xe2")  # it may wait for its rest until 100 ms are over
            await asyncio.sleep(0.01)
            run.output("stderr", 0, b"a")
            await asyncio.sleep(0.01)
            asked = loop.time()
            run.output("stderr", 1, b"b")
            run.output("stderr", 2, b"c")
            await asyncio.sleep(1)
            times = dict(zip((data_of(f) for f in run.place.frames), run.place.times, strict=True))
            assert set(times) == {b"1", b"a", b"bc", b"\xe2"}
            assert times[b"bc"] - asked <= JOIN_S + 0.001
            assert times[b"\xe2"] - (asked - 0.02) <= CHARACTER_S + 0.001

    virtual(main())


def test_beyond_the_allowance_there_is_one_gap_and_then_output_again() -> None:
    async def main():
        with running(LIMITS) as run:
            run.started()
            at = 0
            for _ in range(10):
                run.output("stdout", at, b"x" * 400)
                at += 400
                await asyncio.sleep(JOIN_S)
            await asyncio.sleep(2)
            run.output("stdout", at, b"y" * 10)
            await asyncio.sleep(JOIN_S)
            kinds = [frame["type"] for frame in run.place.frames]
            assert kinds == ["exec.output", "exec.output", "exec.gap", "exec.output"]
            gap = run.place.frames[2]
            assert (gap["from"], gap["to"]) == (800, at)
            assert not gap["kept"]

    virtual(main())


def test_a_gap_of_what_is_kept_says_so() -> None:
    async def main():
        limits = KeepLimits(
            head_bytes=300, tail_bytes=200, live_burst_bytes=100, live_bytes_per_s=1
        )
        with running(limits) as run:
            run.started()
            run.output("stdout", 0, b"x" * 400)
            await run.finish(FINE)
            (gap,) = run.place.frames
            assert (gap["from"], gap["to"], gap["kept"]) == (0, 400, True)

    virtual(main())


def test_the_end_sends_what_waits_and_stores_everything() -> None:
    async def main():
        store = Store()
        with running(store=store) as run:
            run.started()
            run.output("stdout", 0, b"a")
            run.output("stdout", 1, b"b\xe2")
            run.output("stderr", 0, b"c" * FRAME_BYTES)
            fields = await run.finish(FINE)
            assert shown(run.place) == b"ab\xe2"
            assert fields["ok"] is True
            assert fields["exitCode"] == 0
            assert fields["bytes"] == {"stdout": 3, "stderr": FRAME_BYTES}
            assert fields["stdout"] == "ab�"
            assert fields["truncated"] == {"stdout": False, "stderr": True}
            assert len(fields["stderr"]) == 4096
            assert (await run._execlog.ends("blue", "blue.x"))[0] == {
                "stdout": 3,
                "stderr": FRAME_BYTES,
            }
            pieces = await run._execlog.read("blue", "blue.x", "stdout", (0, 3))
            assert pieces == [Piece(0, 3, b"ab\xe2")]
            await asyncio.sleep(1)
            assert shown(run.place) == b"ab\xe2"

    virtual(main())


def test_the_end_waits_for_the_start_to_be_told() -> None:
    async def main():
        with running() as run:
            run.output("stdout", 0, b"quick")
            ending = asyncio.create_task(run.finish(FINE))
            await settle()
            assert not ending.done()
            run.started()
            fields = await ending
            assert shown(run.place) == b"quick"
            assert fields["stdout"] == "quick"

    virtual(main())


def test_the_end_comes_also_where_the_start_is_never_told() -> None:
    async def main():
        with running() as run:
            run.output("stdout", 0, b"quick")
            fields = await run.finish(FINE)
            assert fields["stdout"] == "quick"
            assert run.place.frames == []

    virtual(main())


def test_what_is_stored_is_acknowledged_and_nothing_else() -> None:
    async def main():
        store = Store()
        with running(store=store) as run:
            run.started()
            storing = asyncio.create_task(run.keep_stored())
            run.output("stdout", 0, b"x" * 1000)
            await asyncio.sleep(0.05)
            assert run.process.acked == {"stdout": 1000}
            store.away = True
            run.output("stdout", 1000, b"y" * 1000)
            await asyncio.sleep(2)
            assert run.process.acked == {"stdout": 1000}
            store.away = False
            await asyncio.sleep(0.5)
            assert run.process.acked == {"stdout": 2000}
            storing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await storing
            (piece,) = await run._execlog.read("blue", "blue.x", "stdout", (0, 2000))
            assert piece.data == b"x" * 1000 + b"y" * 1000

    virtual(main())


def test_the_end_outlives_an_absence_of_redis() -> None:
    async def main():
        store = Store()
        with running(store=store) as run:
            run.started()
            run.output("stdout", 0, b"x" * 10)
            store.away = True
            ending = asyncio.create_task(run.finish(FINE))
            await asyncio.sleep(60)
            assert not ending.done()
            store.away = False
            await ending
            assert await run._execlog.stored_ends("blue", "blue.x") == {"stdout": 10}

    virtual(main())


def test_a_terminal_speaks_as_stdout_in_the_result() -> None:
    async def main():
        with running() as run:
            run.started()
            run.output("pty", 0, b"$ \r\n")
            fields = await run.finish(FINE)
            assert fields["stdout"] == "$ \r\n"
            assert fields["stderr"] == ""
            assert fields["bytes"] == {"stdout": 0, "stderr": 0, "pty": 4}

    virtual(main())


@pytest.mark.parametrize(
    ("result", "fields"),
    [
        (FINE, {"ok": True, "exitCode": 0}),
        (
            ExecResult("command_failed", "why", False, 3, None, 1),
            {
                "ok": False,
                "reason": "command_failed",
                "message": "why",
                "retryable": False,
                "exitCode": 3,
            },
        ),
        (
            ExecResult("timeout", "why", True, None, "KILL", 1),
            {
                "ok": False,
                "reason": "timeout",
                "message": "why",
                "retryable": True,
                "signal": "KILL",
            },
        ),
    ],
)
def test_a_result_is_told_in_the_contracts_fields(result, fields) -> None:
    assert result_fields(result) == fields


def test_its_process_is_waited_for_and_not_after_its_end() -> None:
    async def main():
        with running() as run:
            process, run.process = run.process, None
            asking = asyncio.create_task(run.running())
            await settle()
            run.process = process
            run.settled.set()
            assert await asking is process
            run.ended = True
            with pytest.raises(UnknownExec):
                await run.running()

    virtual(main())


def test_a_process_that_never_comes_is_not_waited_for_forever() -> None:
    async def main():
        with running() as run:
            run.process = None
            with pytest.raises(UnknownExec):
                await run.running()

    virtual(main())
