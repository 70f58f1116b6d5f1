"""Saved workspaces: which of them have to go, by age and by what they take together. Pure.

Measuring is `disk.py`'s, removing the manager's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sandbox.spec import MIB, SavedWorkspace

_HOUR_S: Final = 3600.0
_DAY_S: Final = 24 * _HOUR_S


@dataclass(frozen=True, slots=True)
class SavedLimits:
    """None: no limit."""

    max_age_s: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """`why` is written for people."""

    workspace: SavedWorkspace
    why: str


def to_remove(saved: Iterable[SavedWorkspace], limits: SavedLimits, now_s: float) -> list[Removal]:
    """The oldest first: all beyond the age, then as many as the total needs."""
    oldest_first = sorted(saved, key=lambda one: one.saved_at_ms)
    removals, kept = [], []
    for one in oldest_first:
        if limits.max_age_s is not None and now_s - one.saved_at_ms / 1000 > limits.max_age_s:
            why = f"saved workspaces are kept for {_span(limits.max_age_s)}"
            removals.append(Removal(one, _sentence(why)))
        else:
            kept.append(one)
    total = sum(one.size_bytes or 0 for one in kept)
    for one in kept:
        if limits.max_bytes is None or total <= limits.max_bytes:
            break
        if one.size_bytes:  # what takes nothing, or is not measured yet, frees nothing
            total -= one.size_bytes
            why = f"all saved workspaces together may take {limits.max_bytes // MIB} MiB"
            removals.append(Removal(one, _sentence(why + ", and it was the oldest")))
    return removals


def _sentence(why: str) -> str:
    return f"Its saved workspace was removed: {why}."


def _span(seconds: float) -> str:
    for unit, name in ((_DAY_S, "days"), (_HOUR_S, "hours")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} seconds"
