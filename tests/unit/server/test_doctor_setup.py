"""The steps that mend what doctor finds: their order, their numbers, what follows a failure."""

import os
import sys

import pytest
from typer.testing import CliRunner

from server import (
    cli,
    doctor,
    provision,
    provision_engine,
    provision_images,
    provision_probe,
    provision_python,
    provision_web,
)
from server.doctor import Check, Status
from server.provision import Step
from server.provision_shell import SetupError, Steps
from server.settings import Settings

OTHER_ENGINE = "tcp://127.0.0.1:1"


@pytest.fixture
def settings():
    return Settings(_env_file=None, docker_host="unix:///var/run/docker.sock")


def steps_of(settings, *, tests):
    return [step.title.split(" (")[0] for step in provision.setup_steps(settings, tests=tests)]


def test_the_steps_in_their_order(settings, monkeypatch):
    monkeypatch.setattr(provision_engine, "packages_needed", lambda **_: ["docker.io", "iptables"])
    assert steps_of(settings, tests=True) == [
        "Installing Node.js",
        "Building the web page",
        "Installing the container engine",
        "Starting the container engine",
        "Building the sandbox images",
        "Installing Chromium and btrfs-progs for the tests",
    ]
    assert len(steps_of(settings, tests=False)) == 5


def test_an_engine_elsewhere_is_neither_installed_nor_started(settings):
    elsewhere = settings.model_copy(update={"docker_host": OTHER_ENGINE})
    assert steps_of(elsewhere, tests=False) == [
        "Installing Node.js",
        "Building the web page",
        "Building the sandbox images",
    ]


def test_what_is_done_is_passed_over_and_keeps_its_number(capsys):
    did = []
    todo = [
        Step("One", "a", lambda: True, lambda _: did.append("one")),
        Step("Two", "a", lambda: False, lambda _: did.append("two")),
    ]
    assert provision._run_steps(todo, Steps(total=4, number=2), 2) == set()
    assert did == ["two"]
    assert capsys.readouterr().out == "[4/4] Two …\n"


def test_a_failure_stops_what_rests_on_it_alone(capsys):
    did = []

    def fails(_steps):
        raise SetupError("no way\nto do it")

    todo = [
        Step("Engine", "engine", lambda: False, fails),
        Step("Images", "engine", lambda: False, lambda _: did.append("images")),
        Step("Browser", "browser", lambda: False, lambda _: did.append("browser")),
    ]
    assert provision._run_steps(todo, Steps(total=3), 0) == {"engine"}
    assert did == ["browser"]
    said = capsys.readouterr()
    assert said.out == "[1/3] Engine …\n[3/3] Browser …\n"
    assert "no way" in said.err


def test_a_started_engine_that_we_may_not_use_is_opened(monkeypatch):
    did = []
    monkeypatch.setattr(provision_engine, "start", lambda *_: did.append("start"))
    monkeypatch.setattr(provision_engine, "grant_access", lambda _: did.append("grant"))
    provision._start_engine(lambda: True, lambda: False, Steps(total=1))
    assert did == ["grant"]
    provision._start_engine(lambda: False, lambda: True, Steps(total=1))
    assert did == ["grant", "start"]


class FakeDaemon:
    """Stands in for dockerd: it comes up at one of the launches, or never."""

    def __init__(self, monkeypatch, *, comes_up_at):
        self.comes_up_at = comes_up_at
        self.did = []
        self.launches = 0
        monkeypatch.setattr(provision_engine, "systemd_runs", lambda: False)
        monkeypatch.setattr(provision_engine, "processes", lambda _: {})
        monkeypatch.setattr(provision_engine, "launch", self.launch)
        monkeypatch.setattr(provision_engine, "clear_leftovers", self.clear)
        monkeypatch.setattr(provision_engine, "GRACE_S", 0.0)
        monkeypatch.setattr(provision_engine, "DAEMON_LOG", provision_engine.Path("/dev/null"))

    def launch(self):
        self.launches += 1
        self.did.append("launch")

    def clear(self, *, containerd):
        self.did.append("clear with containerd" if containerd else "clear")

    def answers(self):
        return self.launches == self.comes_up_at


def test_an_engine_that_starts_at_once_is_launched_once(monkeypatch):
    daemon = FakeDaemon(monkeypatch, comes_up_at=1)
    provision_engine.start(daemon.answers, Steps(total=1))
    assert daemon.did == ["clear", "launch"]


def test_a_blocked_start_is_tried_again_without_the_leftovers(monkeypatch):
    daemon = FakeDaemon(monkeypatch, comes_up_at=2)
    provision_engine.start(daemon.answers, Steps(total=1))
    assert daemon.did == ["clear", "launch", "clear with containerd", "launch"]


def test_a_start_that_fails_twice_says_so(monkeypatch):
    daemon = FakeDaemon(monkeypatch, comes_up_at=3)
    with pytest.raises(SetupError, match="dockerd does not start"):
        provision_engine.start(daemon.answers, Steps(total=1))
    assert daemon.launches == 2


def test_a_daemon_that_hangs_is_not_ours_to_end(monkeypatch):
    daemon = FakeDaemon(monkeypatch, comes_up_at=1)
    monkeypatch.setattr(provision_engine, "processes", lambda _: {4711: "dockerd"})
    monkeypatch.setattr(provision_engine, "START_TIMEOUT_S", 0.0)
    with pytest.raises(SetupError, match="is running and does not answer"):
        provision_engine.start(daemon.answers, Steps(total=1))
    assert daemon.did == []


def test_leftovers_are_removed_where_there_are_any(monkeypatch, tmp_path):
    stale, absent = tmp_path / "docker.pid", tmp_path / "containerd.pid"
    stale.write_text("1")
    monkeypatch.setattr(provision_engine, "LEFTOVERS", (str(stale), str(absent)))
    monkeypatch.setattr(provision_engine, "as_root", list)
    monkeypatch.setattr("server.provision_shell.STATE_DIR", tmp_path / "state")
    provision_engine.clear_leftovers(containerd=False)
    assert not stale.exists()


@pytest.mark.parametrize(
    ("said", "version"),
    [("v20.19.4", (20, 19)), ("v24.1.0", (24, 1)), ("nonsense", None), ("", None)],
)
def test_the_version_of_a_node(tmp_path, said, version):
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {said}\n")
    node.chmod(0o755)
    assert provision_web.node_version(str(node)) == version


def test_a_node_that_does_not_run_has_no_version(tmp_path):
    assert provision_web.node_version(str(tmp_path / "node")) is None


@pytest.mark.parametrize(
    ("version", "npm", "taken"),
    [("v20.19.0", True, True), ("v20.19.0", False, False), ("v18.20.4", True, False)],
)
def test_the_systems_node_is_taken_when_it_is_new_and_whole(
    monkeypatch, tmp_path, version, npm, taken
):
    for name in ("node", "npm") if npm else ("node",):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(provision_web, "NODE_DIR", tmp_path / "own")
    assert provision_web.node_bin() == (tmp_path if taken else None)


def test_progress_of_pip_and_npm_stays_within_its_total():
    pip, npm = provision_python.PipProgress(2), provision_web.NpmProgress(1)
    assert pip("Collecting aiohttp==3.14.5\n") == "1 of 2: aiohttp"
    assert pip("Requirement already satisfied: attrs==26.1.0 in /x (1)\n") == "2 of 2: attrs"
    assert pip("Collecting yarl==1.0\n") == "2 of 2: yarl"
    assert pip("Installing collected packages: yarl\n") == "unpacking them"
    assert pip("  Downloading yarl.whl (1 MB)\n") is None
    assert npm("npm http fetch GET 200 x 5ms\n") == "downloaded 1 of at most 1 packages"
    assert npm("npm http fetch GET 200 y 5ms\n") == "downloaded 1 of at most 1 packages"
    assert npm("added 1 package\n") is None


@pytest.fixture
def venv(tmp_path, monkeypatch):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.setattr(provision_python, "ROOT", tmp_path)
    monkeypatch.setattr(provision_python, "VENV", tmp_path / ".venv")
    for name in ("requirements.txt", "requirements-dev.txt", "pyproject.toml"):
        (tmp_path / name).write_text(f"{name}==1\n")
    (tmp_path / ".venv" / "bin" / "duet").touch()
    return tmp_path


def test_a_change_of_the_pins_is_installed(venv):
    assert not provision_python.is_ready("run")
    provision_python.stamp("run").touch()
    assert provision_python.is_ready("run")
    assert not provision_python.is_ready("dev")
    (venv / "requirements.txt").write_text("requirements.txt==2\n")
    assert not provision_python.is_ready("run")


def test_what_is_installed_for_developing_serves_for_running(venv):
    provision_python.stamp("dev").touch()
    assert provision_python.is_ready("run")
    (venv / ".venv" / "bin" / "duet").unlink()
    assert not provision_python.is_ready("run")


def test_without_ensurepip_debians_package_is_installed(venv, monkeypatch):
    did = []

    def run(command, **_options):
        did.append(command[1:3])
        if len(did) == 1:
            raise SetupError("ensurepip is not available")

    monkeypatch.setattr(provision_python, "run", run)
    monkeypatch.setattr(provision_python, "apt_install", lambda names, **_: did.append(names))
    provision_python.make_venv(Steps(total=1))
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert did == [["-m", "venv"], [package], ["-m", "venv"]]


def invoke(*arguments, **environment):
    return CliRunner().invoke(cli.app, list(arguments), env=environment)


def test_the_version_needs_nothing_else():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.output.startswith("duet ")


def test_a_wrong_setting_is_one_line_that_names_it():
    result = invoke("serve", DUET_PORT="eighty")
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith("duet: DUET_PORT: ")


def test_a_wrong_option_is_told_with_its_name():
    result = invoke("serve", "--port", "99999")
    assert result.exit_code == 1
    assert "DUET_PORT" in result.output


@pytest.mark.parametrize(
    ("status", "code"), [(Status.WARN, 0), (Status.NOTE, 0), (Status.MISSING, 1)]
)
def test_doctors_exit_code_says_whether_all_is_there(monkeypatch, status, code):
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: [Check("Part", status, "found")])
    result = invoke("doctor")
    assert result.exit_code == code
    assert "Part" in result.output
    assert '"part": "Part"' in invoke("doctor", "--json").output


def test_doctor_alone_changes_nothing(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: [Check("Part", Status.OK, "found")])
    monkeypatch.setattr(provision, "fix", lambda *_, **__: pytest.fail("doctor mended something"))
    assert invoke("doctor").exit_code == 0


def test_doctor_mends_when_asked(monkeypatch):
    did = []
    monkeypatch.setattr(
        doctor, "examine", lambda *_, **__: [Check("Engine", Status.OK, "found (x)")]
    )
    monkeypatch.setattr(provision, "fix", lambda *_, **options: not did.append(options))
    result = invoke("doctor", "--fix", "--tests", "--done-steps", "2")
    assert did == [{"tests": True, "done_steps": 2}]
    assert result.output == "Ready: Engine found\n"


def test_a_step_that_failed_is_a_failure_though_all_is_there(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: [Check("Part", Status.WARN, "old")])
    monkeypatch.setattr(provision, "fix", lambda *_, **__: False)
    result = invoke("doctor", "--fix", "--done-steps", "2")
    assert result.exit_code == 1
    assert "Ready" not in result.output


def test_images_need_an_engine(tmp_path):
    nowhere = f"unix://{tmp_path}/none.sock"
    result = invoke("images", "build", DUET_DOCKER_HOST=nowhere)
    assert result.exit_code == 1
    assert f"duet: No container engine answers at {nowhere}" in result.output
    assert not provision_images.are_ready(nowhere)


def test_an_unknown_image_is_told_with_those_there_are():
    result = invoke("images", "build", "windows")
    assert result.exit_code == 1
    assert "no image windows: there are workspace, debian" in result.output


def test_an_engine_that_denies_us_answers(monkeypatch):
    def deny(_docker_host):
        raise provision_probe.ProbeError("no permission", denied=True)

    monkeypatch.setattr(provision_probe, "ask_engine", deny)
    assert provision_probe.engine_answers(None)
    assert not provision._engine_is_usable(None)


def test_setup_leaves_files_that_others_may_read(monkeypatch, settings):
    monkeypatch.setattr(provision, "setup_steps", lambda *_, **__: [])
    before = os.umask(0o077)
    try:
        assert provision.fix(settings, tests=False)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
