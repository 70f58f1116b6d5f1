"""Asks a container engine what it is, in plain blocking calls without an event loop.

For `doctor` and setup, which look before anything is started. What runs containers lives in
`sandbox`.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox.engine import resolve_host

SOCKET = "/var/run/docker.sock"
ANSWER_TIMEOUT_S = 5.0
# Older ones let a container out of its walls (CVE-2024-21626 among them).
SAFE_RUNC = (1, 1, 12)
OLD_RUNC = (
    f"containers can escape by known holes below {'.'.join(map(str, SAFE_RUNC))}, unless your "
    "distribution mended them in its own version: keep it updated"
)


class ProbeError(Exception):
    """No engine answered; the message says why. ``denied`` when it is there but not for us."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself; ``runc`` is empty where it uses none."""

    version: str
    api_version: str
    runc: str
    cgroup_version: str
    live_restore: bool
    storage_driver: str
    runtimes: tuple[str, ...]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_TIMEOUT_S)
        self.sock.connect(self._path)


def is_default_address(docker_host: str | None) -> bool:
    """Say whether the engine is this machine's own, which setup may install and start."""
    path = urlsplit(resolve_host(docker_host)).path
    return path in {SOCKET, "/run/docker.sock"}


def _connection(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return _UnixConnection(parts.path)
    if parts.scheme in {"tcp", "http"} and parts.hostname:
        return http.client.HTTPConnection(
            parts.hostname, parts.port or 2375, timeout=ANSWER_TIMEOUT_S
        )
    raise ProbeError(f"{address} cannot be asked from here")


def _get(address: str, path: str) -> dict[str, Any]:
    connection = _connection(address)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise ProbeError(f"{address} answers {answer.status} to {path}")
        found = json.loads(body)
    except PermissionError as error:
        raise ProbeError(f"no permission to use {address}", denied=True) from error
    except FileNotFoundError as error:
        raise ProbeError(f"nothing listens at {address}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProbeError(f"{address} does not answer ({error})") from error
    finally:
        connection.close()
    if not isinstance(found, dict):
        raise ProbeError(f"{address} is not a container engine")
    return found


def ask_engine(docker_host: str | None) -> EngineFacts:
    """Ask the engine for its facts, in at most twice ``ANSWER_TIMEOUT_S``; raises ProbeError."""
    address = resolve_host(docker_host)
    version, info = _get(address, "/version"), _get(address, "/info")
    parts = {part.get("Name"): part.get("Version", "") for part in version.get("Components") or ()}
    return EngineFacts(
        version=version.get("Version", "?"),
        api_version=version.get("ApiVersion", "?"),
        runc=parts.get("runc", ""),
        cgroup_version=info.get("CgroupVersion", "1"),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        storage_driver=info.get("Driver", "?"),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
    )


def engine_answers(docker_host: str | None) -> bool:
    """Say whether an engine is there, also one that does not answer us for want of permission."""
    try:
        ask_engine(docker_host)
    except ProbeError as error:
        return error.denied
    return True


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: ``1.1.5+ds1`` is (1, 1, 5)."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def runc_is_old(version: str) -> bool:
    """Say whether containers can leave a runc of this version by known holes."""
    numbers = version_numbers(version)
    return bool(numbers) and numbers < SAFE_RUNC


def driver_runs() -> bool:
    """Say whether the program by which Playwright drives a browser runs; yes without Playwright."""
    found = importlib.util.find_spec("playwright")
    if found is None or found.origin is None:
        return True
    driver = Path(found.origin).parent / "driver" / "node"
    try:
        subprocess.run(
            [str(driver), "--version"], capture_output=True, timeout=ANSWER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def find_browser() -> Path | None:
    """Return the Chromium that the tests drive, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return Path(found)
    return None
