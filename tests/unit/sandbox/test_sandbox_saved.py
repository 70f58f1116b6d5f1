"""Which saved workspaces go, and when a sandbox has written too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.disk import Allowance, can_limit, size_option, too_much
from sandbox.saved import SavedLimits, to_remove
from sandbox.spec import MIB, SavedWorkspace

NOW_S = 1_000_000.0
DAY_S = 86_400.0

workspaces = st.lists(
    st.builds(
        SavedWorkspace,
        id=st.uuids().map(str),
        size_bytes=st.none() | st.integers(0, 10**6),
        saved_at_ms=st.integers(0, int(NOW_S * 1000)),
        image=st.just("workspace"),
    ),
    unique_by=lambda one: one.id,
)
limits = st.builds(
    SavedLimits,
    max_age_s=st.none() | st.floats(0, NOW_S),
    max_bytes=st.none() | st.integers(0, 10**7),
)


@given(workspaces, limits)
def test_only_what_must_go_goes_and_the_oldest_first(saved, limits):
    gone = [removal.workspace for removal in to_remove(saved, limits, NOW_S)]
    kept = [one for one in saved if one not in gone]
    too_old = [
        one
        for one in saved
        if limits.max_age_s is not None and NOW_S - one.saved_at_ms / 1000 > limits.max_age_s
    ]
    assert all(one in gone for one in too_old)
    if limits.max_bytes is None:
        assert len(gone) == len(too_old)
        return
    total = sum(one.size_bytes or 0 for one in kept)
    assert total <= limits.max_bytes
    for_size = [one for one in gone if one not in too_old]
    if for_size:  # the last of them was needed
        assert total + for_size[-1].size_bytes > limits.max_bytes
        newest = for_size[-1].saved_at_ms
        assert all(one.saved_at_ms >= newest for one in kept if one.size_bytes)


def workspace(name, days, mib):
    return SavedWorkspace(name, mib * MIB, round((NOW_S - days * DAY_S) * 1000), "workspace")


def test_it_says_why():
    saved = [workspace("old", 8, 1), workspace("big", 3, 60), workspace("new", 1, 50)]
    removals = to_remove(saved, SavedLimits(7 * DAY_S, 100 * MIB), NOW_S)
    assert [(one.workspace.id, one.why) for one in removals] == [
        ("old", "Its saved workspace was removed: saved workspaces are kept for 7 days."),
        (
            "big",
            (
                "Its saved workspace was removed: all saved workspaces together may take 100 MiB, "
                "and it was the oldest."
            ),
        ),
    ]


def test_without_limits_nothing_goes():
    assert to_remove([workspace("old", 5_000, 10**6)], SavedLimits(), NOW_S) == []


def test_a_sandbox_that_was_stopped_may_start_again_to_remove_files():
    allowance = Allowance(1000 * MIB)
    assert not allowance.over(1000 * MIB)
    assert allowance.over(1010 * MIB)
    assert not allowance.over(1010 * MIB)
    assert not allowance.over(1026 * MIB)
    assert allowance.over(1027 * MIB)
    assert not allowance.over(900 * MIB)
    assert allowance.over(1001 * MIB)


@given(st.integers(1, 10**12), st.lists(st.integers(0, 10**13), max_size=50))
def test_what_grows_beyond_its_room_is_stopped_each_time(limit, sizes):
    allowance, stopped_at = Allowance(limit), 0
    for used in sizes:
        over = allowance.over(used)
        assert not (over and used <= limit)
        if used > limit and used > stopped_at + 16 * MIB:
            assert over
        if used > limit + limit // 8 and used > stopped_at:
            assert over
        stopped_at = used if over else (0 if used <= limit else stopped_at)


@pytest.mark.parametrize(
    ("driver", "backing", "can"),
    [("overlay2", "xfs", True), ("overlay2", "extfs", False), ("btrfs", "", True),
     ("zfs", "zfs", True), ("vfs", "xfs", False), ("", "", False)],
)  # fmt: skip
def test_which_drivers_are_asked(driver, backing, can):
    assert can_limit(driver, backing) is can


def test_the_reason_names_both_sizes():
    words = too_much(60 * MIB, 50 * MIB)
    assert "60 MiB" in words
    assert "50 MiB" in words


def test_a_size_that_counts_the_image_leaves_room_for_it():
    assert size_option("overlay2", 50 * MIB, 300 * MIB) == str(50 * MIB)
    assert size_option("btrfs", 50 * MIB, 300 * MIB) == str(350 * MIB)
