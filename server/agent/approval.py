"""Whether a wanted command may run: the room's policy, the patterns that always ask. Pure."""

import re
from collections.abc import Sequence
from typing import Literal

Approval = Literal["auto", "ask", "off"]
Verdict = Literal["run", "ask", "refuse"]


def compiled(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """The patterns of the setting, whose ^ and $ hold on every line of a command.

    Raises ValueError with the one that is wrong.
    """
    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern, re.IGNORECASE | re.MULTILINE))
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return tuple(found)


def verdict(
    command: str, approval: Approval, patterns: Sequence[re.Pattern[str]], *, always: bool
) -> Verdict:
    """`always` tells that somebody allowed everything for this turn; the patterns ask anyway."""
    if approval == "off":
        return "refuse"
    joined = command.replace("\\\n", "")  # as a shell reads a line that goes on
    forms = (command, joined, " ".join(joined.split()))
    if any(pattern.search(form) for pattern in patterns for form in forms):
        return "ask"
    return "ask" if approval == "ask" and not always else "run"
