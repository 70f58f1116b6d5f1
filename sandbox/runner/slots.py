"""The tags that commands carry: which are free, and whose background children still carry one.

A command that ended keeps its slot for as long as something that it started lives.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from sandbox.runner.tree import SLOTS, describe, kill_tree, tags

CHILDREN_TOLD = 1000  # within a frame's size, and more than a list is read for


class Slots:
    def __init__(self) -> None:
        self._free = deque(SLOTS)
        self._lingering: dict[int, str] = {}  # of commands that ended, perhaps not all they started

    def take(self, running: Iterable[int]) -> int:
        """A tag that nothing carries; 0 when there is none. `running` are those of commands."""
        if not self._free:
            used = {tag for _, tag in tags()} | set(running)
            unused = [slot for slot in self._lingering if slot not in used]
            for slot in unused:
                del self._lingering[slot]
            self._free.extend(unused)
        return self._free.popleft() if self._free else 0

    def end(self, slot: int, exec_id: str) -> None:
        """Its command has ended; what is left of it goes by this name."""
        self._lingering[slot] = exec_id

    def children(self) -> list[dict[str, Any]]:
        """The processes that commands which ended have left in the background."""
        found = [(pid, self._lingering[tag]) for pid, tag in tags() if tag in self._lingering]
        return [{"x": exec_id, **describe(pid)} for pid, exec_id in found[:CHILDREN_TOLD]]

    def kill_children(self, exec_id: str) -> int:
        """How many there were."""
        slots = [slot for slot, name in self._lingering.items() if name == exec_id]
        return sum(kill_tree(slot) for slot in slots)
