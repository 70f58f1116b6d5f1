"""The commands of setup: what they tell, how they fail, who runs them."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import provision_shell
from server.provision_shell import AptProgress, SetupError, Steps, Told, as_root, run


@pytest.fixture(autouse=True)
def state_dir(tmp_path, monkeypatch):
    monkeypatch.setattr(provision_shell, "STATE_DIR", tmp_path / "state")
    return tmp_path / "state"


def test_steps_are_numbered_through_two_programs(capsys):
    steps = Steps(total=7, number=2)
    steps.begin("Building the page")
    steps.begin("Starting the engine", number=6)
    steps.close()
    assert capsys.readouterr().out == "[3/7] Building the page …\n[6/7] Starting the engine …\n"


def test_progress_is_not_repeated_where_nobody_watches(capsys):
    steps = Steps(total=1)
    steps.begin("Long")
    for number in range(1000):
        steps.detail(f"{number} of 1000")
    assert capsys.readouterr().out == "[1/1] Long …\n"


def test_run_logs_what_a_command_says(state_dir):
    seen = []
    run(["sh", "-c", "echo one; echo two >&2"], log_name="x", watch=seen.append)
    assert sorted(seen) == ["one", "two"]
    assert (state_dir / "x.log").read_text().splitlines()[0] == "$ sh -c echo one; echo two >&2"


def test_run_names_the_command_the_status_and_the_error():
    with pytest.raises(SetupError) as failure:
        run(["sh", "-c", "echo 'E: no such package'; seq 100; exit 3"], log_name="x")
    message = str(failure.value)
    assert "failed with 3" in message
    assert "E: no such package" in message
    assert message.splitlines()[-1] == "100"
    assert len(message.splitlines()) < 10


def test_run_says_when_a_program_is_not_there():
    with pytest.raises(SetupError, match="no-such-program cannot be started"):
        run(["no-such-program"], log_name="x")


def test_run_ends_a_command_at_its_deadline_with_all_it_started():
    begun = time.monotonic()
    with pytest.raises(SetupError, match="failed with -9"):
        run(["sh", "-c", "sleep 60 & sleep 60"], log_name="x", timeout_s=0.2)
    assert time.monotonic() - begun < 30


def test_run_does_not_wait_for_a_daemon_that_holds_its_output():
    begun = time.monotonic()
    run(["sh", "-c", "setsid sleep 20 & echo started"], log_name="x")
    assert time.monotonic() - begun < 15


def test_run_takes_bytes_that_are_no_text_and_a_line_without_an_end():
    seen = []
    run(["printf", r"\377one\ntwo"], log_name="x", watch=seen.append)
    assert seen == ["\ufffdone", "two"]


def test_run_gives_no_input():
    run(["sh", "-c", "! read line"], log_name="x")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]))))
def test_told_is_bounded_and_keeps_the_end(lines):
    told = Told()
    for line in lines:
        told.add(line)
    kept = str(told).split("\n")
    assert len(kept) <= provision_shell.ERROR_LINES + provision_shell.TAIL_LINES
    if lines:
        assert lines[-1] in kept


def test_root_needs_no_sudo(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert as_root(["true"]) == ["true"]


def test_others_use_sudo_or_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="needs root: run this again as root, or install sudo"):
        as_root(["true"])
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\n")
    sudo.chmod(0o755)
    assert as_root(["true"]) == ["sudo", "true"]


def test_without_apt_the_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"install docker\.io with this system's own tools"):
        provision_shell.apt_install(["docker.io"])


def test_apt_fetches_its_lists_only_when_it_must(monkeypatch, tmp_path, state_dir):
    # A stand-in for apt-get that knows no package before `update`.
    fake = tmp_path / "apt-get"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *update*) touch {tmp_path}/lists;; *) test -e {tmp_path}/lists;; esac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    provision_shell.apt_install(["jq"])
    provision_shell.apt_install(["jq"])
    commands = [
        "update" if line.endswith(" update") else "install"
        for line in (state_dir / "apt.log").read_text().splitlines()
        if line.startswith("$ ")
    ]
    assert commands == ["install", "update", "install", "install"]


def test_apt_progress_counts_towards_what_apt_said():
    progress = AptProgress()
    lines = [
        "0 upgraded, 2 newly installed, 0 to remove and 9 not upgraded.\n",
        "Get:1 mirror bookworm/main amd64 runc amd64 1.1.5 [2710 kB]\n",
        "Unpacking runc (1.1.5) ...\n",
        "Setting up runc (1.1.5) ...\n",
        "Setting up docker.io (20.10) ...\n",
        "Processing triggers for libc-bin ...\n",
    ]
    assert [progress(line) for line in lines] == [
        None,
        "downloading 1 of 2: runc",
        "unpacking 1 of 2: runc",
        "setting up 1 of 2: runc",
        "setting up 2 of 2: docker.io",
        None,
    ]


@given(st.text())
def test_apt_progress_takes_any_line(line):
    AptProgress()(line)
