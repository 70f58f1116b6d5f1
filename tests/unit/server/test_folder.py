"""The data folder: one server at a time, one name for good."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from server.errors import StartupError
from server.folder import DataFolder


def test_it_is_made_for_its_owner_alone(tmp_path) -> None:
    folder = DataFolder(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    folder.close()


def test_a_second_server_is_refused_until_the_first_closes(tmp_path) -> None:
    first = DataFolder(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StartupError, match="Another Duet"):
        DataFolder(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    first.close()
    DataFolder(tmp_path).close()


def test_another_process_is_refused_too_and_a_child_does_not_inherit_the_lock(tmp_path) -> None:
    folder = DataFolder(tmp_path)
    script = (
        "import sys; from pathlib import Path; from server.folder import DataFolder\n"
        "from server.errors import StartupError\n"
        "try: DataFolder(Path(sys.argv[1]))\n"
        "except StartupError: print('refused')\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True
    )
    assert told.stdout == "refused\n"
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    try:
        folder.close()
        DataFolder(tmp_path).close()
    finally:
        child.communicate(timeout=10)


def test_a_folder_that_cannot_be_one_is_told_in_words(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match="cannot be used"):
        DataFolder(tmp_path / "file" / "data")


def test_a_server_keeps_its_name(tmp_path) -> None:
    folder = DataFolder(tmp_path)
    name = folder.server_id()
    folder.close()
    again = DataFolder(tmp_path)
    assert again.server_id() == name != ""
    again.close()
    other = DataFolder(tmp_path / "other")
    assert other.server_id() != name
    other.close()
