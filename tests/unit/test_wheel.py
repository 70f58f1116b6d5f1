"""The wheel: what somebody gets who installs Duet without a clone of it."""

import configparser
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "sandbox", "server")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, opened."""
    (built,) = WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    with zipfile.ZipFile(built) as opened:
        yield opened


def test_it_carries_every_file_of_the_packages_and_nothing_else(wheel):
    wanted = {name for package in PACKAGES for name in files(package)}
    assert {"server/lua/append.lua", "sandbox/runner/main.py"} <= wanted
    names = set(wheel.namelist())
    assert wanted <= names
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {*PACKAGES, "web"}
    assert all(name.startswith("web/dist/") for name in names if name.startswith("web/"))


def test_it_carries_the_built_page(wheel):
    page = wheel.read("web/dist/index.html").decode()
    assert "assets/" in page
    assert files("web/dist") <= set(wheel.namelist())


def files(folder):
    """Its files, by their path from the root, without what Python leaves behind."""
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    names = (path.relative_to(ROOT).as_posix() for path in found)
    return {name for name in names if "__pycache__" not in name}


def test_it_makes_the_command_duet(wheel):
    (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/entry_points.txt")]
    entries = configparser.ConfigParser()
    entries.read_string(wheel.read(name).decode())
    assert dict(entries["console_scripts"]) == {"duet": "server.cli:main"}
