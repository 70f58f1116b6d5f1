"""Installs and starts the container engine, and asks it what it is.

Only what a machine's administrator would do by hand lives here. Containers and images are
`sandbox`'s.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from server.provision_shell import SetupError, Steps, apt_install, as_root, run

if TYPE_CHECKING:
    from collections.abc import Callable

# Where a daemon of ours writes; a log in the clone would go with `make clean` while it runs.
DAEMON_LOG = Path("/var/log/duet-dockerd.log")
# Its own containerd has 15 s to start, and old containers are looked through before it answers.
START_TIMEOUT_S = 45.0
POLL_INTERVAL_S = 0.2
# After this a start without a live dockerd has failed.
GRACE_S = 2.0
# What a daemon that was killed leaves behind, each of which can block the next start.
LEFTOVERS = (
    "/var/run/docker.pid",
    "/var/run/docker/containerd/containerd.pid",
    "/var/run/docker/containerd/containerd.sock",
    "/var/run/docker/containerd/containerd.sock.ttrpc",
    "/var/run/docker/containerd/containerd-debug.sock",
)
OWN_CONTAINERD_MARK = "/docker/containerd/containerd.toml"


def daemon_installed() -> bool:
    """Say whether a Docker daemon is installed, from whatever source."""
    return shutil.which("dockerd", path=root_path()) is not None


def root_path() -> str:
    """Where programs of the system lie: Debian's sbin is not on every user's path."""
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


def packages_needed(*, engine_answers: bool) -> list[str]:
    """Return the Debian packages to install; never Debian's engine over another that is there.

    One that answers may also come from elsewhere (a desktop program, a socket of another system).
    """
    packages = [] if engine_answers else _engine_packages()
    # Without apt no base image can be made here, so it must come from a registry.
    if shutil.which("apt-get"):
        if not shutil.which("mmdebstrap"):
            packages.append("mmdebstrap")
        if os.geteuid() != 0 and not shutil.which("newuidmap"):
            packages.append("uidmap")  # lets mmdebstrap work for a user who is not root
    return packages


def _engine_packages() -> list[str]:
    packages = [] if daemon_installed() else ["docker.io"]
    if not shutil.which("iptables", path=root_path()):
        packages.append("iptables")
    with contextlib.suppress(OSError):
        # With AppArmor in the kernel and no parser for its profiles, no container starts.
        enabled = Path("/sys/module/apparmor/parameters/enabled").read_text(encoding="ascii")
        if enabled.startswith("Y") and not shutil.which("apparmor_parser", path=root_path()):
            packages.append("apparmor")
    return packages


def systemd_runs() -> bool:
    """Say whether systemd is this machine's init."""
    return Path("/run/systemd/system").is_dir()


def processes(name: str) -> dict[int, str]:
    """Return the command lines of the live processes called ``name``, by pid."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text(encoding="utf-8").strip() == name and not _is_zombie(
                folder
            ):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = line.decode(errors="replace")
    return found


def _is_zombie(folder: Path) -> bool:
    return (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"


def start(answers: Callable[[], bool], steps: Steps) -> None:
    """Start the daemon and wait until ``answers`` says yes; raises SetupError with its last words.

    A daemon that was killed can leave files, and a containerd, that block the next one: those are
    cleared, and the start is tried once more.
    """
    if systemd_runs():
        run(as_root(["systemctl", "start", "docker"]), log_name="engine")
        if _wait(answers, steps):
            return
        raise SetupError("Docker does not answer: see `journalctl -u docker`")
    if processes("dockerd"):
        steps.detail("a dockerd is running: waiting for its answer")
        if _wait(answers, steps):
            return
        raise SetupError("a dockerd is running and does not answer: stop it, then run this again")
    for attempt in ("first", "second"):
        clear_leftovers(containerd=attempt == "second")
        launch()
        if _wait(answers, steps):
            return
        end_daemon()
    raise SetupError(f"dockerd does not start; the end of {DAEMON_LOG}:\n{_log_tail()}")


def launch() -> None:
    """Start dockerd on its own: no terminal, and none of our input and output stays open in it."""
    script = f"cd / && exec setsid --fork dockerd </dev/null >>{DAEMON_LOG} 2>&1"
    run(as_root(["env", f"PATH={root_path()}", "sh", "-c", script]), log_name="engine")


def clear_leftovers(*, containerd: bool) -> None:
    """Remove what a killed daemon left; call it only while no dockerd is alive."""
    if containerd:
        _kill(processes_marked("containerd", OWN_CONTAINERD_MARK))
    stale = [name for name in LEFTOVERS if os.path.lexists(name)]
    if stale:
        run(as_root(["rm", "-f", *stale]), log_name="engine")


def end_daemon() -> None:
    """End a daemon of ours that did not come up, so that another one can be tried."""
    _kill(list(processes("dockerd")))


def processes_marked(name: str, mark: str) -> list[int]:
    """Return the pids of the processes called ``name`` with ``mark`` in their command line."""
    return [pid for pid, line in processes(name).items() if mark in line]


def _kill(pids: list[int]) -> None:
    if pids:
        # The shell's own kill: as a program it comes with a package that bare machines lack.
        script = f"kill -9 {' '.join(map(str, pids))}"
        with contextlib.suppress(SetupError):  # they may be gone by now
            run(as_root(["sh", "-c", script]), log_name="engine")


def _wait(answers: Callable[[], bool], steps: Steps) -> bool:
    begun = time.monotonic()
    while (waited_s := time.monotonic() - begun) < START_TIMEOUT_S:
        if answers():
            return True
        if waited_s > GRACE_S and not processes("dockerd"):
            return False
        steps.detail(f"waiting for its answer, {waited_s:.0f} s")
        time.sleep(POLL_INTERVAL_S)
    return False


def _log_tail() -> str:
    with contextlib.suppress(OSError):
        return "\n".join(DAEMON_LOG.read_text(errors="replace").splitlines()[-8:])
    return "(not readable)"


def grant_access(socket_path: str) -> None:
    """Let this user speak to the engine: for good through its group, at once through an entry.

    Whoever may speak to the engine is as good as root on this machine.
    """
    user = getpass.getuser()
    run(as_root(["usermod", "-aG", "docker", user]), log_name="engine")
    if not shutil.which("setfacl"):
        apt_install(["acl"])
    run(as_root(["setfacl", "-m", f"u:{user}:rw", socket_path]), log_name="engine")
