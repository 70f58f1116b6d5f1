"""The few things asked of the kernel that Python has no call for, or that need a word of why."""

import ctypes
import fcntl
import os
import signal
import struct
import termios
from contextlib import suppress

PR_SET_DUMPABLE = 4
SFD_FLAGS = 0o2004000  # SFD_NONBLOCK | SFD_CLOEXEC
SIGNALS = (signal.SIGCHLD, signal.SIGTERM)
_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")  # v2, v1
_COUNTER_BYTES = 4096


def harden() -> int:
    """Out of the commands' reach: not traceable, its stdio not to be opened, and SIGTERM counts
    only from outside. The signalfd for SIGCHLD and SIGTERM.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    mask = (ctypes.c_uint64 * 16)(sum(1 << (number - 1) for number in SIGNALS))
    return int(libc.signalfd(-1, mask, SFD_FLAGS))


def readable_bytes(fd: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0])


def resize(fd: int, cols: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


class OomCounter:
    """How often the kernel killed in this container for memory; 0 where it does not say."""

    def __init__(self) -> None:
        self._fd = -1
        for path in _COUNTERS:
            with suppress(OSError):
                self._fd = os.open(path, os.O_RDONLY)
                break

    def read(self) -> int:
        try:
            text = os.pread(self._fd, _COUNTER_BYTES, 0)
        except OSError:
            return 0
        found = text.partition(b"oom_kill ")[2].split(None, 1)
        return int(found[0]) if found else 0
