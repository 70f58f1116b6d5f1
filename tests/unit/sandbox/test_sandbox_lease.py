"""The lease's clock: what is idle time, what is not, and what may be asked for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import InvalidSpec
from sandbox.lease import SLEEP_AFTER_MAX_S, SLEEP_AFTER_MIN_S, Lease, parse_sleep_after
from sandbox.spec import SandboxSpec


class Clock:
    def __init__(self, now=1_000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        (90, 90),
        (1.5, 1.5),
        ("90", 90),
        ("90s", 90),
        (" 10M ", 600),
        ("2h", 7200),
        ("168h", 604_800),
    ],
)
def test_what_sleep_after_may_be(raw, seconds):
    assert parse_sleep_after(raw) == seconds


@pytest.mark.parametrize(
    "raw",
    ["", "m", "10d", "-5", "1e3", "10 m", "0", "0s", "169h", "9" * 400, "\u0661\u0660m", "1m\n1", 0, -1, 1e9,
     math.nan, math.inf, True, None, [10]],
)  # fmt: skip
def test_what_it_may_not_be(raw):
    with pytest.raises(InvalidSpec) as caught:
        parse_sleep_after(raw)
    assert caught.value.field == "sleep_after"
    assert "10m" in caught.value.message


@given(st.text(max_size=12) | st.floats() | st.integers())
def test_it_is_read_within_its_bounds_or_refused(raw):
    try:
        seconds = parse_sleep_after(raw)
    except InvalidSpec:
        return
    assert SLEEP_AFTER_MIN_S <= seconds <= SLEEP_AFTER_MAX_S


@pytest.mark.parametrize(
    "fields",
    [
        {"sleep_after": math.nan},
        {"sleep_after": 0},
        {"startup_command": "a\0"},
        {"startup_timeout_ms": 0},
        {"startup_timeout_ms": 10**9},
        {"runtime": "../runc"},
        {"runtime": "a b"},
        {"runtime": ""},
    ],
)
def test_a_spec_that_cannot_be(fields):
    with pytest.raises(InvalidSpec) as caught:
        SandboxSpec("a", **fields)
    assert caught.value.field in fields


def test_an_idle_one_ends_on_time_and_not_before():
    clock = Clock()
    lease = Lease(clock, 600)
    assert lease.stop_at == 1_600
    clock.now = 1_599.9
    assert not lease.due
    clock.now = 1_600
    assert lease.due


def test_what_runs_holds_it_and_its_end_begins_the_idle_time():
    clock = Clock()
    lease = Lease(clock, 10)
    lease.hold("one")
    lease.hold("two")
    clock.now += 1_000
    assert lease.stop_at is None
    lease.release("one")
    assert not lease.due
    lease.release("two")
    lease.release("two")
    assert lease.stop_at == clock.now + 10


def test_the_same_start_again_gives_no_time():
    clock = Clock()
    lease = Lease(clock, 10)
    clock.now += 9
    assert not lease.change(10, keep_alive=False)
    assert lease.stop_at == 1_010


def test_keep_alive_off_arms_it_again():
    clock = Clock()
    lease = Lease(clock, 10, keep_alive=True)
    clock.now += 5_000
    assert (lease.stop_at, lease.due) == (None, False)
    assert lease.change(10, keep_alive=False)
    assert lease.stop_at == clock.now + 10


def test_a_clock_set_back_does_not_lengthen_it():
    clock = Clock()
    lease = Lease(clock, 10)
    clock.now = 500
    assert lease.stop_at == 510


@given(st.floats(0, 2_000), st.booleans())
def test_what_an_earlier_server_kept(idle_since, held):
    clock = Clock()
    lease = Lease(clock, 10)
    lease.restore(idle_since, held=held)
    assert lease.idle_since == (clock.now if held else min(idle_since, clock.now))


moves = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "pass", "same", "keep", "unkeep"]),
        st.integers(0, 3),
        st.integers(0, 20),
    )
)


@given(moves)
def test_it_ends_exactly_when_idle_for_long_enough(steps):
    """Against the plainest model: when was it last busy, kept, or armed?"""
    clock, holders, keep, since = Clock(0), set(), False, 0.0
    lease = Lease(clock, 10)
    for what, who, seconds in steps:
        match what:
            case "hold":
                lease.hold(str(who))
                holders.add(who)
            case "release":
                if who in holders:
                    since = clock.now
                lease.release(str(who))
                holders.discard(who)
            case "pass":
                clock.now += seconds
            case "same":
                lease.change(10, keep_alive=keep)
            case "keep" | "unkeep":
                if keep != (what == "keep"):
                    since = clock.now
                keep = what == "keep"
                lease.change(10, keep_alive=keep)
        idle = not holders and not keep
        assert lease.due == (idle and clock.now >= since + 10)
        assert lease.stop_at == (since + 10 if idle else None)
