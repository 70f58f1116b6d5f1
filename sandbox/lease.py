"""The lease: how long an idle sandbox lives. Pure: it is told what happens and says when to end.

What ends a sandbox then is the manager's; what holds it open is for its callers to say.
"""

import math
import re
from collections.abc import Callable
from typing import Final

from sandbox.errors import InvalidSpec

SLEEP_AFTER_MIN_S: Final = 1.0
SLEEP_AFTER_MAX_S: Final = 7 * 24 * 3600.0  # longer is what keepAlive is for
_WORDS: Final = re.compile(r"([0-9]{1,9})([smh]?)", re.ASCII)
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600}
_ALLOWED: Final = "Give seconds, or a number with s, m or h, such as 10m: from 1s to 168h."


def parse_sleep_after(value: str | float) -> float:
    """Seconds of `90`, `"90"`, `"90s"`, `"10m"` or `"2h"`. Raises InvalidSpec."""
    seconds = math.nan
    if isinstance(value, str):
        if found := _WORDS.fullmatch(value.strip().lower()):
            seconds = float(int(found[1]) * _UNIT_S[found[2]])
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = check_sleep_after(value)
    return check_sleep_after(seconds)


def check_sleep_after(seconds: float) -> float:
    """The same, when it lies within the bounds. Raises InvalidSpec."""
    if not SLEEP_AFTER_MIN_S <= seconds <= SLEEP_AFTER_MAX_S:  # so is NaN refused
        raise InvalidSpec("sleep_after", f"The sleepAfter cannot be read. {_ALLOWED}")
    return float(seconds)


class Lease:
    """Counts idle time: from the last release, or the start, until `sleep_after` seconds later.

    `clock` gives seconds since the epoch, so that a lease goes on over a restart of the server.
    """

    def __init__(
        self, clock: Callable[[], float], sleep_after: float, *, keep_alive: bool = False
    ) -> None:
        self._clock = clock
        self._holders: set[str] = set()
        self.sleep_after = sleep_after
        self.keep_alive = keep_alive
        self.idle_since = clock()

    @property
    def held(self) -> bool:
        return bool(self._holders)

    def hold(self, holder: str) -> None:
        """Something goes on, under a name of its own; it holds the lease open until released."""
        self._holders.add(holder)

    def release(self, holder: str) -> None:
        """Idle time begins when nothing else holds it. Does nothing for a name not known."""
        if holder in self._holders:
            self._holders.remove(holder)
            self.arm()

    def arm(self) -> None:
        """Idle time is counted from now."""
        self.idle_since = self._clock()

    def change(self, sleep_after: float, *, keep_alive: bool) -> bool:
        """What a repeated start asks for; the same again changes nothing, not even the time left.

        True when it was another.
        """
        if (sleep_after, keep_alive) == (self.sleep_after, self.keep_alive):
            return False
        self.sleep_after, self.keep_alive = sleep_after, keep_alive
        self.arm()
        return True

    def restore(self, idle_since: float, *, held: bool) -> None:
        """As it was when an earlier server kept it; what held it then is idle since now."""
        now = self._clock()
        self.idle_since = now if held else min(idle_since, now)

    @property
    def stop_at(self) -> float | None:
        """When it ends if nothing happens, in seconds since the epoch; None: it does not."""
        if self._holders or self.keep_alive:
            return None
        # A clock that was set back must not lengthen what is left.
        self.idle_since = min(self.idle_since, self._clock())
        return self.idle_since + self.sleep_after

    @property
    def due(self) -> bool:
        stop_at = self.stop_at
        return stop_at is not None and self._clock() >= stop_at
