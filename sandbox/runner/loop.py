"""The runner's event loop: watched file descriptors and timers, and nothing of what they mean.

asyncio would double the start's time and memory; this is all of it that is needed.
"""

import heapq
import select
import time
from collections.abc import Callable
from typing import Any

IN = select.EPOLLIN
OUT = select.EPOLLOUT
WAIT_S = 3600.0  # the kernel counts no further than some weeks
_PURGE_ABOVE = 256  # cancelled timers are left in the heap until there are this many


class Timer:
    """`cancel` forgets it; it does nothing after it has fired."""

    __slots__ = ("action", "args", "number", "owner", "when")

    def __init__(
        self, owner: "Loop", when: float, number: int, action: Callable[..., None], args: Any
    ) -> None:
        self.owner, self.when, self.number = owner, when, number
        self.action: Callable[..., None] | None = action
        self.args = args

    def __lt__(self, other: "Timer") -> bool:
        return (self.when, self.number) < (other.when, other.number)

    def cancel(self) -> None:
        if self.action is not None:
            self.action, self.args = None, ()
            self.owner.purge()


class Loop:
    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._timers: list[Timer] = []
        self._number = self._cancelled = 0

    def watch(self, fd: int, handler: Callable[[], None], events: int = IN) -> None:
        """Call `handler` whenever `fd` is ready, until `unwatch`."""
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def watched(self, fd: int) -> bool:
        return fd in self._handlers

    def unwatch(self, fd: int) -> None:
        """Before the fd is closed. Idempotent."""
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def after(self, delay_s: float, action: Callable[..., None], *args: Any) -> Timer:
        self._number += 1
        timer = Timer(self, time.monotonic() + delay_s, self._number, action, args)
        heapq.heappush(self._timers, timer)
        return timer

    def purge(self) -> None:
        """A timer was cancelled: drop them once they are most of the heap."""
        self._cancelled += 1
        if self._cancelled > max(_PURGE_ABOVE, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if timer.action is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def run(self) -> None:
        while True:
            self.turn()

    def turn(self) -> None:
        """Wait for something to happen, and handle all that has."""
        wait = self._timers[0].when - time.monotonic() if self._timers else WAIT_S
        for fd, _ in self._poll.poll(min(max(wait, 0.0), WAIT_S)):
            if handler := self._handlers.get(fd):
                handler()
        while self._timers and self._timers[0].when <= time.monotonic():
            timer = heapq.heappop(self._timers)
            action, timer.action = timer.action, None
            if action is None:
                self._cancelled -= 1
            else:
                action(*timer.args)
