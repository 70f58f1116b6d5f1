"""Processes: spawning a command with its tag, finding all that carry it, and ending them.

The tag is a slot number in the kernel's coredump_filter, which every descendant inherits through
`setsid`, double forks, `env -i` and `su`. Whose slot it is, `main.py` knows.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

DEFAULT_FILTER = 0x33  # the kernel's own; every other value is a command's tag
SLOTS = [n for n in range(1, 0x200) if n != DEFAULT_FILTER]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SCANS = 100  # a tree that still shows new processes then is killed as far as it is known
COMMAND_BYTES = 200  # of a command line, to know it by
_ALL_SIGNALS = [
    n for n in range(1, 65) if n not in (9, 19, 32, 33)
]  # 32 and 33 are the C library's


class Spawner:
    """Holds open what PID 1 may no longer open once it is not dumpable."""

    def __init__(self) -> None:
        self._filter = os.open("/proc/self/coredump_filter", os.O_WRONLY)
        self._score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        with open("/proc/self/oom_score_adj", "rb") as file:
            self._own_score = file.read()

    def spawn(
        self,
        slot: int,
        argv: list[str],
        env: Mapping[str, str],
        cwd: str,
        actions: Sequence[tuple[Any, ...]],
    ) -> int:
        """The pid, leader of a session of its own. Raises OSError, ValueError."""
        os.chdir(cwd)
        try:
            path = find(argv[0], env.get("PATH") or PATH)
            os.pwrite(self._filter, b"0x%x" % slot, 0)
            os.pwrite(self._score, b"1000", 0)  # the kernel takes a command before the runner
            return os.posix_spawn(
                path,
                argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_ALL_SIGNALS,
            )
        finally:
            os.pwrite(self._score, self._own_score, 0)
            os.pwrite(self._filter, b"0x%x" % DEFAULT_FILTER, 0)
            os.chdir("/")


def environment(wanted: Mapping[str, str], cwd: str, *, terminal: bool) -> dict[str, str]:
    """A sane environment, and over it what the command was given.

    Of the locale only what characters are: with LANG a shell reads a dozen files more to start.
    """
    locale = {} if "LANG" in wanted else {"LC_CTYPE": "C.UTF-8"}
    return {
        "PATH": PATH,
        "HOME": os.environ.get("HOME") or "/root",
        **locale,
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color" if terminal else "dumb",
        **wanted,
        "PWD": cwd,
    }


def find(program: str, path: str) -> str:
    """Where `program` lies, as execvp looks it up, but by the command's own PATH."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)


def tags() -> Iterator[tuple[int, int]]:
    """(pid, tag) of every living process but PID 1; a zombie has no memory and so no tag."""
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/coredump_filter", "rb") as file:
                    found = int(name), int(file.read() or b"0", 16)
            except (OSError, ValueError):
                continue
            yield found


def tagged(slot: int) -> set[int]:
    return {pid for pid, tag in tags() if tag == slot}


def terminate_tree(leader: int, slot: int) -> None:
    """TERM to the leader's group at once, so that a shell does not go on to its next line first;
    then to what left the group.
    """
    send_signal(os.killpg, leader, signal.SIGTERM)
    for pid in tagged(slot):
        if group_of(pid) != leader:
            send_signal(os.kill, pid, signal.SIGTERM)
            send_signal(os.kill, pid, signal.SIGCONT)
    send_signal(os.killpg, leader, signal.SIGCONT)


def describe(pid: int) -> dict[str, Any]:
    """Its command line as far as it is short, and its start in ms since the epoch.

    One that is just becoming another program has no command line: then its name, in brackets.
    """
    command, ticks = b"", 0
    with suppress(OSError, ValueError, IndexError):  # it may be gone by now
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(COMMAND_BYTES)
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
        command = command.strip(b"\0") or b"[" + head.partition(b"(")[2] + b"]"
        ticks = int(rest.split()[19])
    text = command.replace(b"\0", b" ").decode(errors="replace")
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return {"pid": pid, "cmd": text, "at": round((time.time() - up_s) * 1000)}


def kill_tree(slot: int) -> int:
    """Stop until a scan finds nothing new, so that nothing forks away, then kill. How many.

    By groups first: all of one have the same tag, and a thousand that fork leave no CPU, or no
    memory, to find them one by one.
    """
    known: set[int] = set()
    groups: set[int] = set()
    for _ in range(SCANS):
        before = len(known)
        for pid, tag in tags():
            if tag != slot or pid in known:
                continue
            known.add(pid)
            send_signal(os.kill, pid, signal.SIGSTOP)
            group = group_of(pid)
            if group not in groups and group > 1:
                groups.add(group)
                send_signal(os.killpg, group, signal.SIGSTOP)
        if len(known) == before:
            break
    for group in groups:
        send_signal(os.killpg, group, signal.SIGKILL)
    for pid in known:
        send_signal(os.kill, pid, signal.SIGKILL)
    return len(known)


def send_signal(how: Callable[[int, int], None], pid: int, number: int) -> None:
    with suppress(OSError):  # it is gone, and that is what was wanted
        how(pid, number)


def group_of(pid: int) -> int:
    """0 for one that is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def spawn_message(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    name = error.filename or error.filename2
    return f"{error.strerror}: {name}" if name else str(error.strerror)
