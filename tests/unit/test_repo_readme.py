"""The README against the code: its settings, routes, commands, links and Python."""

import ast
import re
from pathlib import Path

from typer.main import get_command

from sandbox.containers import CAPABILITIES
from server.cli import app
from server.provision_probe import SAFE_RUNC
from server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROUTE = re.compile(r"""web\.(get|post|patch|put|delete)\(\s*"([^"]+)\"""")


def routes():
    for path in sorted((ROOT / "server").glob("*.py")):
        yield from ROUTE.findall(path.read_text(encoding="utf-8"))


def documented():
    """(method, path) of the rows of the table of routes."""
    for row in re.findall(r"^\| (`(?:GET|POST|PATCH|PUT|DELETE)\b.*?) \|", README, re.MULTILINE):
        # Methods that stand without a path share the next one's.
        waiting = []
        for method, path in re.findall(r"`([A-Z]+)(?: ([^`?]+))?[^`]*`", row):
            waiting.append(method)
            if path:
                yield from ((name, path) for name in waiting)
                waiting = []


def test_every_route_is_in_the_readme_and_every_row_is_a_route():
    served = {
        (method.upper(), re.sub(r"\{room\}", "{roomId}", path))
        for method, path in routes()
        if not path.startswith("/assets/")  # parts of the page
    }
    assert len(served) > 10
    assert set(documented()) == served


def test_every_command_and_option_is_in_the_readme():
    def walk(command, name):
        yield from ((name, option) for option in options(command))
        for child, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{name} {child}")

    def options(command):
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        return [name for one in shown for name in one.opts if name.startswith("--")]

    names = list(walk(get_command(app), "duet"))
    assert ("duet serve", "--port") in names
    missing = [
        (name, option) for name, option in names if option not in README or name not in README
    ]
    assert missing == []


def test_every_setting_is_in_the_readme_with_its_description():
    rows = re.findall(r"^\| `(DUET_[A-Z_]+)` \| [^|]+ \| (.+) \|$", README, re.MULTILINE)
    assert dict(rows) == {
        f"DUET_{name.upper()}": field.description for name, field in Settings.model_fields.items()
    }
    assert len(rows) == len(Settings.model_fields)


def test_what_it_shows_and_links_to_is_there():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert any(link.endswith(".png") for link in links), "a picture of the page"
    files = [link.partition("#")[0] for link in links]
    assert [name for name in files if name and not (ROOT / name).is_file()] == []


def test_its_python_is_python():
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    names = [
        node.module for node in ast.walk(ast.parse(example)) if isinstance(node, ast.ImportFrom)
    ]
    assert names == ["protocol.client"]


def test_it_begins_with_two_commands():
    first = re.search(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert first
    assert [line.split()[0] for line in first[1].splitlines()] == ["git", "make"]


def test_it_says_what_isolates_and_what_does_not():
    title = "### What a sandbox isolates, and what it does not\n"
    part = README.partition(title)[2].partition("\n## ")[0]
    isolates, does_not = part.split("It does not keep in everyone:")
    assert all(name in isolates for name in CAPABILITIES)
    for word in ("no new privileges", "seccomp", "memory (without swap)", "socket", "bridge"):
        assert word in isolates
    assert "kernel" in does_not
    for way in ("rootless", "userns-remap", "gVisor", "Kata", "DUET_SANDBOX_RUNTIME"):
        assert way in does_not.partition("hostile")[2]
    assert f"older\n  than {'.'.join(map(str, SAFE_RUNC))}" in does_not
