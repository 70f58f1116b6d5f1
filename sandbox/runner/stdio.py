"""What a command reads from and prints to: pipes, or a terminal of its own."""

import os
from typing import Any

from sandbox.runner.execs import PTY, Exec, Stream
from sandbox.runner.system import resize
from sandbox.runner.wire import Message


def pipes(ex: Exec, message: Message, theirs: list[int]) -> list[tuple[Any, ...]]:
    """File actions of a spawn; `theirs` are to be closed here after it."""
    actions: list[tuple[Any, ...]] = []
    if message.get("stdin"):
        end, ex.input_fd = os.pipe()
        os.set_blocking(ex.input_fd, False)
        theirs.append(end)
        actions.append((os.POSIX_SPAWN_DUP2, end, 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
    for code in (0, 1):
        ours, end = os.pipe()
        theirs.append(end)
        ex.streams.append(Stream(ex, code, ours, message["credit"]))
        actions.append((os.POSIX_SPAWN_DUP2, end, code + 1))
    return actions


def terminal(ex: Exec, message: Message, theirs: list[int]) -> list[tuple[Any, ...]]:
    ours, end = os.openpty()
    theirs.append(end)
    ex.streams.append(Stream(ex, PTY, ours, message["credit"]))
    ex.input_fd = ours
    resize(ours, *message["pty"])
    # The first terminal that a session's leader opens controls it.
    opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(end), os.O_RDWR, 0)
    return [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
