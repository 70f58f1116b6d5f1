"""The runner's pure parts, and its wire over a pair of pipes."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import bundle, frames
from sandbox.runner import execs, loop, system, tree, wire

NONCE = bytes(range(16))


def stream(code=0):
    return execs.Stream(execs.Exec("e1", 1, 10**9), code, -1, 10**9)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.data())
def test_a_later_client_gets_exactly_what_it_lacks(chunks, data):
    kept, one = execs.Kept(), stream()
    for chunk in chunks:
        kept.add(one, chunk)
        one.at += len(chunk)
    whole = b"".join(chunks)
    have = data.draw(st.integers(0, len(whole)))
    replay = kept.since(one, have)
    assert b"".join(piece for _, piece in replay) == whole[have:]
    assert all(whole[at : at + len(piece)] == piece for at, piece in replay)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 10**7), st.booleans()), max_size=60))
def test_kept_output_is_bounded_and_has_no_hole(steps):
    kept, all_streams = execs.Kept(), [stream() for _ in range(6)]
    acked = [0] * 6
    for which, wanted, acknowledges in steps:
        one = all_streams[which]
        size = min(wanted, kept.room(one))
        if size > 0:
            kept.add(one, bytes(size))
            one.at += size
        if acknowledges:
            acked[which] = one.at
            kept.acknowledge(one, one.at)
    assert kept.total == sum(s.kept_bytes for s in all_streams)
    assert kept.total <= execs.KEPT_TOTAL_BYTES + 6 * execs.KEPT_LEAST_BYTES
    for one, position in zip(all_streams, acked, strict=True):
        assert one.kept_bytes == sum(len(d) for _, d in one.kept) <= execs.KEPT_STREAM_BYTES
        pieces = kept.since(one, position)
        assert sum(len(data) for _, data in pieces) == one.at - position


def fill(kept, number):
    streams = [stream() for _ in range(number)]
    for one in streams:
        while (size := min(kept.room(one), 65_536)) > 0:
            kept.add(one, bytes(size))
            one.at += size
    return streams


def test_a_full_store_lets_commands_wait_and_tells_when_there_is_room():
    kept = execs.Kept()
    streams = fill(kept, 5)
    assert kept.total >= execs.KEPT_TOTAL_BYTES
    assert streams[4] in kept.waiting
    assert streams[4].at == execs.KEPT_LEAST_BYTES  # the least that every stream may have
    kept.acknowledge(streams[0], streams[0].at)
    assert kept.room(streams[4]) > 0


def test_what_ended_commands_said_makes_room_first_and_oldest_first():
    kept = execs.Kept()
    streams = fill(kept, 4)
    kept.end(streams[1])
    kept.end(streams[0])
    late = stream()
    assert kept.room(late) > 0
    assert (streams[1].kept_bytes, streams[0].kept_bytes > 0) == (0, True)


def test_small_pieces_are_kept_as_one():
    kept, one = execs.Kept(), stream()
    for _ in range(10_000):
        kept.add(one, b"x")
        one.at += 1
    assert len(one.kept) < 5
    assert b"".join(data for _, data in kept.since(one, 123)) == b"x" * 9877


def test_a_stream_reads_no_more_than_granted_and_after_the_end_no_more_than_lay_there():
    one = stream()
    one.granted, one.at = 100, 60
    assert one.room() == 40
    one.left = 7
    assert one.room() == 7
    one.left = 0
    assert one.finished is True


def test_an_exec_is_settled_only_when_all_is_known():
    ex = execs.Exec("e1", 1, 10)
    one = execs.Stream(ex, 0, 99, 0)
    ex.streams.append(one)
    assert not ex.settled
    ex.status = 0
    assert not ex.settled
    one.left = 0
    assert ex.settled
    ex.why = "cancelled"
    assert not ex.settled
    ex.gone = True
    assert ex.settled


def test_timers_fire_in_order_and_not_when_cancelled():
    clock, fired = loop.Loop(), []
    clock.after(0.002, fired.append, "b")
    clock.after(0.001, fired.append, "a")
    clock.after(0.001, fired.append, "never").cancel()
    while len(fired) < 2:
        clock.turn()
    assert fired == ["a", "b"]


def test_cancelled_timers_do_not_pile_up():
    clock = loop.Loop()
    for _ in range(5000):
        clock.after(600, print).cancel()
    assert len(clock._timers) < 1000


class Ends:
    """A wire with both of its pipes in our hands."""

    def __init__(self):
        self.loop = loop.Loop()
        inside, self.to_runner = os.pipe()
        self.from_runner, outside = os.pipe()
        for fd in (outside, self.from_runner):
            os.set_blocking(fd, False)
        self.hellos, self.messages, self.blocked = [], [], []
        self.wire = wire.Wire(
            self.loop,
            (inside, outside),
            self.hellos.append,
            self.messages.append,
            self.blocked.append,
        )
        self.fds = (inside, outside, self.to_runner, self.from_runner)

    def say(self, data):
        os.write(self.to_runner, data)
        self.loop.turn()

    def hear(self):
        try:
            return os.read(self.from_runner, 1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def ends():
    made = Ends()
    yield made
    for fd in made.fds:
        os.close(fd)


def test_a_torn_line_costs_the_next_client_nothing(ends):
    ends.say(b'{"t":"hello","n":"' + frames.encode_line(NONCE, 0, {"t": "hello"}))
    assert len(ends.hellos) == 1
    assert wire.MAGIC + NONCE in ends.hear()


def test_only_the_current_client_is_heard_and_each_message_once(ends):
    line = frames.encode_line
    ends.say(line(NONCE, 0, {"t": "hello"}))
    ends.say(line(NONCE, 1, {"t": "a"}) + line(bytes(16), 2, {"t": "b"}))
    ends.say(line(NONCE, 1, {"t": "a"}) + line(NONCE, 2, {"t": "c"}))
    assert [message["t"] for message in ends.messages] == ["a", "c"]


@pytest.mark.parametrize(
    "junk", [b"\xff\n", b"[]\n", b"{}\n", b"12\n", b'{"t":"hello","n":5,"s":0}\n']
)
def test_junk_is_answered_and_survived(ends, junk):
    ends.say(junk)
    ends.say(frames.encode_line(NONCE, 0, {"t": "hello"}))
    assert len(ends.hellos) == 1


def test_a_full_pipe_blocks_output_and_loses_none_of_it(ends):
    ends.say(frames.encode_line(NONCE, 0, {"t": "hello"}))
    sent, got = [], b""
    for n in range(8):
        sent.append(bytes([n]) * 40_000)
        ends.wire.send_output("e1", 0, n * 40_000, sent[-1])
    assert ends.wire.blocked
    assert ends.blocked == [True]
    while ends.wire.blocked:
        got += ends.hear()
        ends.loop.turn()
    got += ends.hear()
    assert ends.blocked == [True, False]
    frames_read = list(frames.FrameReader(NONCE).feed(got))
    assert [frame.data for frame in frames_read] == sent


def test_a_word_that_can_wait_goes_with_the_next_frame_and_at_last_alone(ends):
    ends.say(frames.encode_line(NONCE, 0, {"t": "hello"}))
    reader = frames.FrameReader(NONCE)
    assert list(reader.feed(ends.hear())) == []
    ends.wire.send_soon({"t": "started", "x": "e1"})
    ends.wire.send_soon({"t": "started", "x": "e2"})
    assert ends.hear() == b""
    ends.wire.send_output("e1", 0, 0, b"hi")
    first, second, third = reader.feed(ends.hear())
    assert [first.fields["x"], second.fields["x"], third.data] == ["e1", "e2", b"hi"]
    ends.wire.send_soon({"t": "started", "x": "e3"})
    heard = b""
    while not heard:  # its own timer is all that can end this turn
        ends.loop.turn()
        heard = ends.hear()
    assert [frame.fields["x"] for frame in reader.feed(heard)] == ["e3"]


def test_a_word_that_waits_is_for_the_client_of_then(ends):
    ends.say(frames.encode_line(NONCE, 0, {"t": "hello"}))
    ends.wire.send_soon({"t": "started", "x": "e1"})
    other = bytes(reversed(NONCE))
    ends.say(frames.encode_line(other, 0, {"t": "hello"}))
    ends.wire.send({"t": "pong", "i": 1})
    assert [frame.fields["t"] for frame in frames.FrameReader(other).feed(ends.hear())] == ["pong"]


def test_the_count_of_kills_for_memory_is_read_again_each_time(tmp_path, monkeypatch):
    path = tmp_path / "memory.events"
    path.write_text("low 0\noom 9\noom_kill 2\noom_group_kill 7\n")
    monkeypatch.setattr(system, "_COUNTERS", ("/nowhere", str(path)))
    counter = system.OomCounter()
    assert counter.read() == 2
    path.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 13\n")
    assert counter.read() == 13
    monkeypatch.setattr(system, "_COUNTERS", ("/nowhere",))
    assert system.OomCounter().read() == 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "de_DE.UTF-8"}, {"LANG": "de_DE.UTF-8"}),
        ({"LC_CTYPE": "C"}, {"LC_CTYPE": "C"}),
    ],
)
def test_a_command_without_a_language_reads_utf_8(wanted, expected):
    env = tree.environment(wanted, "/workspace", terminal=False)
    assert {name: value for name, value in env.items() if name[:2] == "LC" or name == "LANG"} == (
        expected
    )


def test_the_bundle_is_a_program_of_the_standard_library_alone():
    source = bundle.runner_source()
    compile(source, "runner", "exec")
    assert len(source) < 99_999_999  # its length is sent in eight digits
    assert b"import asyncio" not in source


def test_every_module_of_the_runner_is_sent_after_what_it_imports():
    assert {f"{name}.py" for name in bundle._MODULES} | {"__init__.py"} == {
        path.name for path in bundle._FOLDER.glob("*.py")
    }
    for at, name in enumerate(bundle._MODULES):
        text = (bundle._FOLDER / f"{name}.py").read_text()
        for later in bundle._MODULES[at:]:
            assert f"from sandbox.runner.{later} " not in text


def test_a_tag_is_never_the_default():
    assert tree.DEFAULT_FILTER not in tree.SLOTS
    assert 0 not in tree.SLOTS
    assert len(tree.SLOTS) == len(set(tree.SLOTS)) == 510


def test_this_process_carries_the_default_tag():
    assert (os.getpid(), tree.DEFAULT_FILTER) in tree.tags()


def test_a_process_is_known_by_its_command_line_or_else_its_name():
    mine = tree.describe(os.getpid())
    assert "pytest" in mine["cmd"]
    assert abs(mine["at"] / 1000 - time.time()) < 24 * 3600
    pid = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie has its name, and no memory
    assert tree.describe(pid)["cmd"] == "[true]"
    os.waitpid(pid, 0)
    assert tree.describe(pid)["cmd"] == ""


def test_programs_are_looked_up_as_execvp_does():
    assert tree.find("./x", "/bin") == "./x"
    assert tree.find("sh", "/nowhere:/bin") == "/bin/sh"
    with pytest.raises(FileNotFoundError):
        tree.find("no-such-program", "/bin")


def test_json_of_a_control_frame_is_what_it_says():
    frame = wire.control_frame({"t": "exit", "x": "ü"})
    assert json.loads(frame[5:]) == {"t": "exit", "x": "ü"}
