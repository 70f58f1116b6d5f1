"""An event loop whose clock jumps to the next timer: time passes in tests without waiting."""

import asyncio
import selectors


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting for a timer it moves the loop's clock there."""

    now_s = 1000.0

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everything waits for something that will never come")
        if not ready and timeout > 0:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now_s


def virtual(main):
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def settle(turns=8):
    """Let what is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)
