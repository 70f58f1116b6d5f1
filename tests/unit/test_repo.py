"""What holds for the repository as a whole: its pins, its commands, and what no file may name."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = [
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-node.txt",
    "requirements-local.txt",
]

# Joined from parts, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("registry-1", "docker", "io"),
        ("index", "docker", "io"),
        ("hub", "docker", "com"),
        ("docker", "io/"),
        ("ghcr", "io"),
        ("gcr", "io"),
        ("quay", "io"),
        ("mcr", "microsoft", "com"),
        ("artifactory", ""),
    ]
]
MACHINE_PATH = re.compile(r"(?<![\w./~}-])/(?:work|home|Users|opt/wheels)/")
# What git ignores is not the repository's.
IGNORED = {".git", ".venv", ".setup", "node_modules", "dist", "data", "test-artifacts"}


def committed_files():
    """The files git tracks; where there is no git, those it would not ignore."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return sorted(walk())
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def walk():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in IGNORED and not name.endswith(("_cache", "__pycache__", ".egg-info"))
        ]
        yield from (Path(folder) / name for name in names)


def texts():
    for path in committed_files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture


def test_no_file_names_a_registry_host():
    found = [f"{name}: {host}" for name, text in texts() for host in REGISTRY_HOSTS if host in text]
    assert found == []


def test_no_file_names_a_place_on_somebodys_machine():
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("before", ["", "see ", "'", "="])
@pytest.mark.parametrize("folder", ["work", "home", "Users"])
def test_such_a_place_would_be_found(before, folder):
    assert MACHINE_PATH.search(f"{before}/{folder}/duet")


@pytest.mark.parametrize("path", ["/workspace/x", "{tmp}/work/x", "https://host/home/", "./work/x"])
def test_other_paths_are_left_alone(path):
    assert not MACHINE_PATH.search(path)


def pins(name):
    """Package to (version, hashes) of a requirements file."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {
        re.split("==", line)[0]: (
            re.split(r"[= ;]+", line)[1],
            re.findall(r"--hash=sha256:[0-9a-f]{64}", line),
        )
        for line in lines
    }


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_is_pinned_with_hashes(name):
    assert all(version and hashes for version, hashes in pins(name).values())


@pytest.mark.parametrize("name", LOCKS)
def test_requirements_name_no_address_and_no_option(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


def normal(requirement):
    return re.split(r"[\[<>=!~ ;]", requirement)[0].lower().replace("_", "-")


def test_what_the_project_asks_for_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    run = {normal(name) for name in project["project"]["dependencies"] + groups["build"]}
    dev = {normal(name) for name in groups["dev"] if isinstance(name, str)}
    assert run <= set(pins("requirements.txt"))
    assert run | dev <= set(pins("requirements-dev.txt"))
    assert {normal(name) for name in groups["node"]} <= set(pins("requirements-node.txt"))


def test_the_developers_pins_are_the_users_pins():
    dev = pins("requirements-dev.txt")
    assert {name: dev.get(name) for name in pins("requirements.txt")} == pins("requirements.txt")


def test_every_target_says_what_it_does_and_stands_in_the_readme():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):.*## .+$", makefile, re.MULTILINE)
    asked = ["help", "setup", "run", "test", "lint", "bench", "images", "clean"]
    assert set(asked) <= set(targets)
    readme = (ROOT / "README.md").read_text()
    assert [name for name in targets if f"make {name}" not in readme] == []


def test_ci_runs_what_a_person_runs():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = script.read_text()
    assert "make lint" in commands
    assert "make test" in commands
    assert "make test-model" in commands


def test_a_commit_is_linted_first_and_the_licence_is_the_named_one():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert "ruff" in hooks
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


def test_what_is_made_here_is_not_committed():
    made = (".venv/", ".env", "web/dist/", "node_modules/", "data/", ".setup/")
    assert set(made) <= set((ROOT / ".gitignore").read_text().split())
    names = [path.relative_to(ROOT).as_posix() for path in committed_files()]
    assert [name for name in names if any(f"/{one}" in f"/{name}" for one in made)] == []


def test_the_version_is_in_the_changelog_or_unreleased():
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
