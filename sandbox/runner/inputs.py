"""What is typed to commands: queued with a bound, written as they take it, told how far."""

import os
from collections.abc import Callable
from contextlib import suppress

from sandbox.runner.execs import Exec
from sandbox.runner.loop import OUT, Loop
from sandbox.runner.wire import Message

INPUT_BYTES = 1024 * 1024  # the client's window is a quarter of this; more is a broken client
END_OF_FILE = b"\x04"


class Inputs:
    def __init__(self, loop: Loop, send: Callable[[Message], None]) -> None:
        self._loop, self._send = loop, send

    def take(self, ex: Exec, data: bytes, *, eof: bool) -> None:
        if ex.input_fd < 0 or ex.input_size + len(data) > INPUT_BYTES:
            ex.input_at += len(data)
            self._send({"t": "in", "x": ex.id, "at": ex.input_at, "closed": True})
            return
        if data:
            ex.input.append(data)
            ex.input_size += len(data)
        ex.input_eof = ex.input_eof or eof
        self._feed(ex)

    def close(self, ex: Exec) -> None:
        """Idempotent; what was not taken is dropped and counted as taken."""
        fd, ex.input_fd = ex.input_fd, -1
        ex.input_at += ex.input_size
        ex.input.clear()
        ex.input_size = 0
        if fd >= 0:
            self._loop.unwatch(fd)
            if not ex.terminal:  # a terminal's is its output's too
                os.close(fd)

    def _feed(self, ex: Exec) -> None:
        """Write what the command takes now; say how far, so that the client sends more."""
        try:
            while ex.input:
                self._advance(ex, os.write(ex.input_fd, ex.input[0]))
        except BlockingIOError:
            if not self._loop.watched(ex.input_fd):
                self._loop.watch(ex.input_fd, lambda: self._feed(ex), OUT)
        except OSError:  # it reads no more
            self.close(ex)
        if not ex.input and ex.input_fd >= 0:
            self._loop.unwatch(ex.input_fd)
            if ex.input_eof:
                self._end(ex)
        self._send({"t": "in", "x": ex.id, "at": ex.input_at, "closed": ex.input_fd < 0})

    def _advance(self, ex: Exec, done: int) -> None:
        ex.input_at += done
        ex.input_size -= done
        ex.input[0] = ex.input[0][done:]
        if not ex.input[0]:
            ex.input.popleft()

    def _end(self, ex: Exec) -> None:
        if ex.terminal:
            ex.input_eof = False
            with suppress(OSError):  # nobody reads it, so nobody waits for it
                os.write(ex.input_fd, END_OF_FILE)
        else:
            self.close(ex)
