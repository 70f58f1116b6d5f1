"""One terminal that several people see: whose size it has, and its redraw for who comes late."""

import asyncio
from contextlib import suppress

from protocol.errors import Forbidden, Invalid
from protocol.model import Participant, PtySize
from sandbox.errors import SandboxError
from sandbox.process import Process

REPLAY_BYTES = 256 * 1024
"""What a late joiner gets of a terminal's past: enough for any screen; a redraw does the rest."""
_NUDGE_S = 0.05
"""Between the two sizes of a nudge: programs that redraw must see both."""


class TerminalView:
    """The size of a shared terminal. The last resize by who opened it wins."""

    def __init__(self, opener: str, size: PtySize) -> None:
        self.opener = opener
        self.size = (size.cols, size.rows)
        self._nudging: asyncio.Task[None] | None = None

    async def resize(self, by: Participant, cols: int, rows: int, process: Process) -> None:
        """Raises Forbidden for anyone but the opener, InvalidSpec for an impossible size."""
        if by.id != self.opener:
            raise Forbidden("A terminal has the size that its opener gives it.")
        await process.resize(cols, rows)
        self.size = (cols, rows)

    def nudge(self, process: Process | None) -> None:
        """Make the program draw its screen again, for someone who has just come."""
        if process is not None and (self._nudging is None or self._nudging.done()):
            self._nudging = asyncio.get_running_loop().create_task(self._nudge(process))

    async def _nudge(self, process: Process) -> None:
        with suppress(SandboxError):
            cols, rows = self.size
            await process.resize(cols, rows + (1 if rows == 1 else -1))
            await asyncio.sleep(_NUDGE_S)
            await process.resize(*self.size)


def no_terminal() -> Invalid:
    return Invalid("This command has no terminal; start it with a pty.")
