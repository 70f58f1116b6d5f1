"""Runs the commands that setup needs: logged, with progress, as root where that must be.

Only the standard library is used here, because setup starts before anything is installed. What
to install, and in which order, does not live here.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Watch = Callable[[str], str | None]

ROOT = Path(__file__).resolve().parent.parent
STATE_DIR = ROOT / ".setup"

# Where nobody watches a terminal, one progress line in this time is enough.
QUIET_INTERVAL_S = 5.0
# A package manager may fetch hundreds of megabytes over a slow line.
COMMAND_TIMEOUT_S = 1800.0
# A killed command is gone at once; one of root's own that we may not kill is not waited for.
KILL_WAIT_S = 5.0
# A command that ended and is silent for this long has said all.
SILENCE_S = 0.5
READ_BYTES = 64 * 1024
# Another apt may run at the same time (unattended upgrades do); it is waited for.
APT_LOCK_WAIT_S = 300
# Of a command that failed: its first lines that name an error, and its last ones.
ERROR_LINES = 4
TAIL_LINES = 6


class SetupError(Exception):
    """A step of setup failed; the message says what to do, in one or a few lines."""


class Steps:
    """Names each step as it happens, ``[3/7] Text …``, and shows progress below it.

    ``number`` is the last step begun and ``total`` how many there are, those of an earlier
    program included.
    """

    def __init__(self, *, total: int, number: int = 0) -> None:
        self.total = total
        self.number = number
        self._live = sys.stdout.isatty()
        self._last_shown = 0.0
        self._open_line = False

    def begin(self, text: str, *, number: int | None = None) -> None:
        """Announce a step; ``number`` where steps that were done already are passed over."""
        self.number = self.number + 1 if number is None else number
        self._end_line()
        print(f"[{self.number}/{self.total}] {text} …", flush=True)
        self._last_shown = time.monotonic()

    def detail(self, text: str) -> None:
        """Show progress: one line rewritten on a terminal, a line now and then elsewhere."""
        now = time.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns - 7
            sys.stdout.write(f"\r\x1b[K      {text[:width]}")
            sys.stdout.flush()
            self._open_line = True
        elif now - self._last_shown >= QUIET_INTERVAL_S:
            print(f"      {text}", flush=True)
            self._last_shown = now

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""
        self._end_line()
        print(f"      {text}", flush=True)

    def close(self) -> None:
        """Leave no half line behind."""
        self._end_line()

    def _end_line(self) -> None:
        if self._open_line:
            sys.stdout.write("\r\x1b[K")
            self._open_line = False


class Told:
    """Keeps of a command's output what tells why it failed: bounded, in order, no line twice."""

    def __init__(self) -> None:
        self._errors: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def add(self, line: str) -> None:
        """Take the next line."""
        if len(self._errors) < ERROR_LINES and re.search(r"\berror\b|^E: ", line, re.IGNORECASE):
            self._errors.append(line)
        else:
            self._tail.append(line)

    def __str__(self) -> str:
        return "\n".join([*self._errors, *self._tail])


def run(
    command: Sequence[str],
    *,
    log_name: str,
    watch: Watch | None = None,
    steps: Steps | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> None:
    """Run ``command`` to its end.

    Its output goes to ``.setup/<log_name>.log``; ``watch`` turns a line into progress for
    ``steps``. Raises ``SetupError`` with the end of the output when it fails, takes longer than
    ``timeout_s`` or cannot be started.
    """
    STATE_DIR.mkdir(exist_ok=True)
    log_path = STATE_DIR / f"{log_name}.log"
    told = Told()
    with log_path.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        with _started(command, env=env, cwd=cwd, timeout_s=timeout_s) as process:
            for line in _lines(process):
                log.write(line + "\n")
                told.add(line)
                shown = watch(line) if watch else None
                if steps and shown:
                    steps.detail(shown)
            status = process.wait(timeout=timeout_s)
    if status != 0:
        shown_name = " ".join(part for part in command[:4] if "=" not in part)
        raise SetupError(f"`{shown_name} …` failed with {status} (see {log_path}):\n{told}")


@contextlib.contextmanager
def _started(
    command: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | None, timeout_s: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command that reads nothing; it is killed at its deadline and never left behind."""
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd or ROOT,
            process_group=None if _asks(command) else 0,
        )
    except OSError as error:
        raise SetupError(f"{command[0]} cannot be started: {error.strerror}") from error
    alarm = threading.Timer(timeout_s, _kill, [process, command])
    alarm.start()
    try:
        yield process
    finally:
        alarm.cancel()
        if process.poll() is None:
            _kill(process, command)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_WAIT_S)
        if process.stdout:
            process.stdout.close()


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield what a command says until it ends, also when a daemon it started holds the pipe."""
    if process.stdout is None:
        return
    pipe, rest = process.stdout.fileno(), b""
    while True:
        if not select.select([pipe], [], [], SILENCE_S)[0]:
            if process.poll() is not None:
                break
            continue
        data = os.read(pipe, READ_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace").rstrip() for line in lines)
    if rest:
        yield rest.decode(errors="replace").rstrip()


def _asks(command: Sequence[str]) -> bool:
    # sudo may ask for a password at the terminal, which only the foreground group may read.
    return command[0] == "sudo"


def _kill(process: subprocess.Popen[bytes], command: Sequence[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or root's own
        if _asks(command):
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def as_root(command: Sequence[str]) -> list[str]:
    """Return ``command`` as root would run it; raises ``SetupError`` without root and sudo."""
    if os.geteuid() == 0:
        return list(command)
    if shutil.which("sudo"):
        return ["sudo", *command]
    raise SetupError(
        f"`{' '.join(command)}` needs root: run this again as root, or install sudo and give "
        "this user the right to use it"
    )


def apt_install(packages: Sequence[str], *, steps: Steps | None = None) -> None:
    """Install Debian packages without their recommendations.

    The package lists are fetched only when the first attempt fails for want of them. Raises
    ``SetupError`` where there is no apt-get, no way to be root, or no such package.
    """
    names = " ".join(packages)
    if not shutil.which("apt-get"):
        raise SetupError(f"no apt-get here: install {names} with this system's own tools")
    env = ["env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"]
    options = ["-o", f"DPkg::Lock::Timeout={APT_LOCK_WAIT_S}", "-o", "Dpkg::Use-Pty=0", "-y"]
    install = [*env, "apt-get", *options, "install", "--no-install-recommends", *packages]
    update = [*env, "apt-get", *options, "update"]
    with contextlib.suppress(SetupError):
        run(as_root(install), log_name="apt", watch=AptProgress(), steps=steps)
        return
    if steps:
        steps.detail("fetching the package lists")
    run(as_root(update), log_name="apt", steps=steps)
    run(as_root(install), log_name="apt", watch=AptProgress(), steps=steps)


class AptProgress:
    """Turns apt-get's lines into ``setting up 3 of 12: containerd``."""

    # How a line starts: what is counted, how it is called, which word is the package's name.
    KINDS: ClassVar = {
        "Get:": ("get", "downloading", 4),
        "Unpacking ": ("unpack", "unpacking", 1),
        "Setting up ": ("set up", "setting up", 2),
    }

    def __init__(self) -> None:
        self.total = 0
        self.done: Counter[str] = Counter()

    def __call__(self, line: str) -> str | None:
        words = line.split()
        if "newly" in words and "installed," in words:
            newly = words[words.index("newly") - 1]
            upgraded = words[0]
            self.total = sum(int(word) for word in (newly, upgraded) if word.isdigit())
            return None
        for start, (kind, verb, place) in self.KINDS.items():
            if line.startswith(start) and len(words) > place:
                return self._count(kind, verb, words[place])
        return None

    def _count(self, kind: str, verb: str, package: str) -> str:
        self.done[kind] += 1
        return f"{verb} {self.done[kind]} of {max(self.total, self.done[kind])}: {package}"
