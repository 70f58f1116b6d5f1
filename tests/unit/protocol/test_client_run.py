"""A run gives every byte of each stream once and in order, however it arrived."""

import asyncio
import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import client_run, events
from protocol.client_run import Chunk, Hole, Run, Runs, chunk
from protocol.codec import JSON, MSGPACK
from protocol.errors import BadFrame, DuetError, UnknownExec

OWN = {"id": "p1", "name": "Ada", "kind": "bot"}


def started(**changes):
    frame = {"room": "r", "offset": 1, "ts": 1, "by": OWN, "exec": "e1", "command": "x", "cwd": "/"}
    return events.ExecStarted.model_validate(frame | changes)


def exited(sizes):
    frame = {"room": "r", "offset": 2, "ts": 2, "by": OWN, "exec": "e1", "ok": True, "exitCode": 0}
    cut = dict.fromkeys(sizes, False)
    return events.ExecExited.model_validate(
        frame | {"durationMs": 1, "bytes": sizes, "truncated": cut}
    )


def followed(wire):
    return Runs(wire).follow("e1")


class Kept:
    """A server that keeps some ranges of each stream, at most `most` bytes per answer."""

    def __init__(self, streams, gone=(), most=7):
        self.streams, self.gone, self.most = streams, gone, most
        self.asked = []

    async def request(self, command):
        self.asked.append(command)
        return events.Ack()

    async def read(self, command):
        data = self.streams[command.stream]
        end = min(command.at + min(command.limit, self.most), len(data))
        items, at = [], command.at
        while at < end:
            stop = at + 1
            while stop < end and ((stop in self.gone) == (at in self.gone)):
                stop += 1
            if at in self.gone:
                items.append(Hole(command.stream, at, stop))
            else:
                items.append(Chunk(command.stream, at, data[at:stop]))
            at = stop
        return items


async def collect(run):
    got = {}
    async for piece in run:
        have = got.setdefault(piece.stream, {})
        for index, byte in enumerate(piece.data, piece.at):
            assert index not in have, "a byte twice"
            assert not have or index > max(have), "a byte late"
            have[index] = byte
    return got


ARRIVALS = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(0, 40), st.integers(0, 40)),
    max_size=12,
)


@given(
    out=st.binary(max_size=40),
    err=st.binary(max_size=40),
    arrivals=ARRIVALS,
    gone=st.sets(st.integers(0, 40)),
)
def test_every_byte_once_and_in_order(out, err, arrivals, gone) -> None:
    """Chunks overlap, come twice or never; what is missing is read, what is gone is counted."""
    streams = {"stdout": out, "stderr": err}

    async def story():
        run = followed(Kept(streams, gone))
        for stream, start, stop in arrivals:
            data = streams[stream][start:stop]
            if data:
                run.take(Chunk(stream, start, data))
            elif start < len(streams[stream]):
                run.take(Hole(stream, start, min(stop, len(streams[stream]))))
        run.end(exited({name: len(data) for name, data in streams.items()}))
        return await collect(run), run.lost_bytes

    got, lost = asyncio.run(story())
    missing = 0
    for name, data in streams.items():
        have = got.get(name, {})
        assert all(data[index] == byte for index, byte in have.items())
        absent = set(range(len(data))) - set(have)
        assert absent <= gone
        missing += len(absent)
    assert lost == missing


async def test_output_that_is_not_taken_is_bounded_and_read_again(monkeypatch) -> None:
    monkeypatch.setattr(client_run, "RUN_QUEUE_BYTES", 100)
    data = bytes(range(250)) * 4
    run = followed(Kept({"stdout": data}, most=90))
    for at in range(0, len(data), 50):
        run.take(Chunk("stdout", at, data[at : at + 50]))
        assert run._queue.bytes <= 100
    run.end(exited({"stdout": len(data)}))
    got = await collect(run)
    assert bytes(got["stdout"].values()) == data
    assert run.lost_bytes == 0


async def test_a_server_that_forgot_does_not_hold_the_iterator() -> None:
    class Forgetful(Kept):
        async def read(self, command):
            raise UnknownExec("Its output is no longer kept.")

    run = followed(Forgetful({}))
    run.take(Chunk("stdout", 10, b"tail"))
    run.end(exited({"stdout": 20}))
    assert bytes((await collect(run))["stdout"].values()) == b"tail"
    assert run.lost_bytes == 16


async def test_wait_gives_the_end_or_why_there_is_none() -> None:
    run = Run(Kept({}))
    waiting = asyncio.ensure_future(run.wait())
    run.end(exited({"stdout": 0}))
    run.end(None, ValueError("too late to matter"))
    assert (await waiting).exit_code == 0
    broken = Run(Kept({}))
    broken.end(None, DuetError("The line is cut."))
    with pytest.raises(DuetError, match="cut"):
        await broken.wait()
    with pytest.raises(DuetError, match="cut"):
        await collect(broken)


async def test_waiting_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(client_run, "RUN_GRACE_S", 0.0)
    run = Run(Kept({}), timeout_ms=1)
    with pytest.raises(TimeoutError):
        await run.wait()
    with pytest.raises(TimeoutError):
        await collect(run)


async def test_input_is_cut_into_frames_and_only_the_last_ends_it() -> None:
    wire = Kept({})
    run = followed(wire)
    data = bytes(range(256)) * 500
    await run.input(data, eof=True)
    assert b"".join(base64.b64decode(frame.base64) for frame in wire.asked) == data
    assert [frame.eof for frame in wire.asked] == [False, False, True]
    await run.input("", eof=True)
    assert wire.asked[-1].eof


async def test_events_before_the_answer_find_their_run() -> None:
    runs = Runs(Kept({"stdout": b"hi"}))
    run = runs.expect("key", None)
    runs.started(started(key="other"), own=True)
    runs.started(started(key="key"), own=False)
    assert run.id == "", "somebody else's key is not ours"
    runs.started(started(key="key"), own=True)
    runs.output("e1", Chunk("stdout", 0, b"hi"))
    runs.exited(exited({"stdout": 2}))
    runs.answered("key", "e1")
    assert run.id == "e1"
    assert bytes((await collect(run))["stdout"].values()) == b"hi"
    runs.output("e1", Chunk("stdout", 0, b"hi"))  # nobody follows it any more


async def test_the_answer_before_the_events_too() -> None:
    runs = Runs(Kept({}))
    run = runs.expect("key", None)
    runs.answered("key", "e1")
    assert runs.follow("e1") is run
    runs.started(started(key="key"), own=True)
    assert run.started.key == "key"
    runs.exited(exited({}))
    assert (await run.wait()).ok


async def test_leaving_a_room_ends_its_runs_alone() -> None:
    runs = Runs(Kept({}))
    here, there = runs.follow("e1"), runs.follow("e2")
    runs.started(started(), own=False)
    runs.started(started(exec="e2", room="other"), own=False)
    runs.fail(DuetError("left"), room="r")
    with pytest.raises(DuetError, match="left"):
        await here.wait()
    runs.exited(exited({}).model_copy(update={"exec": "e2"}))
    assert (await there.wait()).ok


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"stream": "stdout", "at": 0},
        {"stream": "stdout", "at": "0", "data": "x"},
        {"stream": 1, "at": 0, "data": "x"},
        {"stream": "stdout", "at": 0, "data": 7},
        {"stream": "stdout", "at": 0, "base64": "%%%"},
    ],
)
def test_a_broken_output_frame_is_refused(frame) -> None:
    with pytest.raises(BadFrame):
        chunk(frame)


@given(st.binary(min_size=1))
def test_output_frames_of_both_codecs_give_the_bytes(data) -> None:
    for codec in (JSON, MSGPACK):
        assert chunk({"stream": "stdout", "at": 3, **codec.output(data)}) == Chunk(
            "stdout", 3, data
        )
