"""Makes `.venv` and installs the pinned packages into it; `make` runs it with the system's Python.

Only the standard library is used here: this runs before there is anything else. The page, the
engine and the images come after it, in `provision`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from typing import TYPE_CHECKING

from server.provision_shell import ROOT, SetupError, Steps, apt_install, run

if TYPE_CHECKING:
    from pathlib import Path

VENV = ROOT / ".venv"
# What is installed for running and for developing; the second holds the first, pin by pin.
REQUIREMENTS = {"run": "requirements.txt", "dev": "requirements-dev.txt"}
PIP = [
    str(VENV / "bin" / "python"),
    "-m",
    "pip",
    "--disable-pip-version-check",
    "--no-input",
    "install",
]


def content_hash(paths: list[Path]) -> str:
    """Return 16 hex digits that change with the name or the content of any of ``paths``."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def stamp(kind: str) -> Path:
    """Return the file that says that the packages of ``kind`` are installed as pinned now."""
    pinned = [ROOT / REQUIREMENTS[kind], ROOT / "pyproject.toml"]
    return VENV / f".duet-{kind}-{content_hash(pinned)}"


def is_ready(kind: str) -> bool:
    """Say whether `.venv` holds everything of ``kind``; "dev" holds "run" as well."""
    if not (VENV / "bin" / "duet").exists():
        return False
    return stamp(kind).exists() or (kind == "run" and stamp("dev").exists())


def venv_works() -> bool:
    """Say whether `.venv` is there with a Python that runs and has pip."""
    python = VENV / "bin" / "python"
    if not python.exists():
        return False
    try:
        run([str(python), "-m", "pip", "--version"], log_name="python")
    except SetupError:
        return False
    return True


def make_venv(steps: Steps) -> None:
    """Make `.venv`, with Debian's package for that where Python alone cannot."""
    command = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    try:
        run(command, log_name="python")
    except SetupError:
        # Debian ships Python without ensurepip; the package of the same version brings it.
        name = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        steps.note(f"this Python cannot make one alone: installing {name}")
        apt_install([name], steps=steps)
        run(command, log_name="python")


class PipProgress:
    """Turns pip's lines into ``12 of 40: aiohttp``."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.seen = 0

    def __call__(self, line: str) -> str | None:
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            self.seen = min(self.seen + 1, self.total)
            name = line.split(": ", 1)[-1].removeprefix("Collecting ").split("=")[0].split(" ")[0]
            return f"{self.seen} of {self.total}: {name.strip()}"
        if line.startswith("Installing collected packages"):
            return "unpacking them"
        return None


def count_pins(requirements: Path) -> int:
    """Return how many packages a requirements file pins."""
    return sum("==" in line for line in requirements.read_text(encoding="utf-8").splitlines())


def install_packages(kind: str, steps: Steps) -> None:
    """Install the pinned packages of ``kind`` and the project itself, then leave the stamp."""
    requirements = ROOT / REQUIREMENTS[kind]
    run(
        [*PIP, "--require-hashes", "-r", str(requirements)],
        log_name="python",
        watch=PipProgress(count_pins(requirements)),
        steps=steps,
    )
    run([*PIP, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], log_name="python")
    for old in VENV.glob(f".duet-{kind}-*"):
        old.unlink()
    stamp(kind).touch()


def prepare(kind: str, steps: Steps) -> None:
    """Do what is missing of the two steps; nothing, at once, when all is there."""
    if is_ready(kind):
        return
    if not venv_works():
        steps.begin("Making the virtual environment (.venv)", number=1)
        make_venv(steps)
    pins = count_pins(ROOT / REQUIREMENTS[kind])
    steps.begin(f"Installing {pins} pinned Python packages", number=2)
    install_packages(kind, steps)


def main(arguments: list[str] | None = None) -> int:
    """Prepare `.venv`; returns the exit code. ``--total`` is how many steps setup has."""
    parser = argparse.ArgumentParser(description="Make .venv ready.")
    parser.add_argument("kind", choices=sorted(REQUIREMENTS))
    parser.add_argument("--total", type=int, default=2)
    options = parser.parse_args(arguments)
    steps = Steps(total=options.total)
    try:
        prepare(options.kind, steps)
    except SetupError as error:
        steps.close()
        sys.stderr.write(f"setup: {error}\n")
        return 1
    except KeyboardInterrupt:
        steps.close()
        return 130
    steps.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
