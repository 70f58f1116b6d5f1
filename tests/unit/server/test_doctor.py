"""What doctor finds, and how it says it."""

import json
import socketserver
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server import doctor, provision_engine, provision_images, provision_probe, provision_web
from server.doctor import Check, Status
from server.provision_shell import SetupError

VERSION = {
    "Version": "27.3.1",
    "ApiVersion": "1.47",
    "Components": [{"Name": "Engine", "Version": "27.3.1"}, {"Name": "runc", "Version": "1.1.14"}],
}
INFO = {
    "LiveRestoreEnabled": True,
    "CgroupVersion": "2",
    "Driver": "overlay2",
    "Runtimes": {"runc": {}, "runsc": {}},
}


class FakeEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers at a Unix socket what an engine would say of itself."""

    daemon_threads = True

    def __init__(self, path):
        self.answers = {"/version": VERSION, "/info": INFO}
        self.status = 200
        super().__init__(str(path), FakeEngineHandler)
        self.url = f"unix://{path}"


class FakeEngineHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(self.server.answers[self.path]).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "local"

    def log_message(self, *_args):
        """Say nothing."""


@pytest.fixture
def engine(tmp_path):
    with FakeEngine(tmp_path / "engine.sock") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def by_part(checks):
    return {check.part: check for check in checks}


def test_a_sound_engine_needs_nothing(engine):
    found = by_part(doctor.check_engine(engine.url))
    assert {check.status for check in found.values()} == {Status.OK}
    assert found["Engine"].found == f"Docker 27.3.1 (API 1.47, {engine.url})"
    assert found["runc"].found == "1.1.14"
    assert found["Cgroups"].found == "version 2"
    assert found["Live restore"].found == "on"


def test_an_old_runc_is_warned_of_and_does_not_stop_anything(engine):
    engine.answers["/version"] = VERSION | {
        "Components": [{"Name": "runc", "Version": "1.1.5+ds1"}]
    }
    found = by_part(doctor.check_engine(engine.url))
    assert found["runc"].status is Status.WARN
    assert "1.1.12" in found["runc"].advice
    assert doctor.is_complete(list(found.values()))


def test_an_engine_without_live_restore_is_noted(engine):
    engine.answers["/info"] = INFO | {"LiveRestoreEnabled": False}
    found = by_part(doctor.check_engine(engine.url))
    assert found["Live restore"].status is Status.NOTE
    assert "live-restore" in found["Live restore"].advice


def test_an_engine_that_says_little_is_still_described(engine):
    engine.answers = {"/version": {}, "/info": {}}
    found = by_part(doctor.check_engine(engine.url))
    assert found["Engine"].status is Status.OK
    assert found["runc"].status is Status.NOTE
    assert found["Cgroups"].found == "version 1"


def test_an_absent_engine_is_missing_with_what_to_do(tmp_path):
    (check,) = doctor.check_engine(f"unix://{tmp_path}/none.sock")
    assert check.status is Status.MISSING
    assert "nothing listens at" in check.found
    assert "DUET_DOCKER_HOST" in check.advice


def test_the_machines_own_engine_is_ours_to_start():
    assert provision_probe.is_default_address("unix:///var/run/docker.sock")
    assert not provision_probe.is_default_address("unix:///home/me/docker.sock")
    assert not provision_probe.is_default_address("tcp://10.0.0.5:2375")


@pytest.mark.parametrize("path", ["/version", "/info"])
def test_an_engine_that_refuses_is_missing(engine, path):
    engine.status = 500
    with pytest.raises(provision_probe.ProbeError, match="answers 500 to /version"):
        provision_probe.ask_engine(engine.url)
    engine.status = 200
    engine.answers[path] = ["not", "an", "engine"]
    with pytest.raises(provision_probe.ProbeError, match="is not a container engine"):
        provision_probe.ask_engine(engine.url)


def test_what_cannot_be_asked_is_said():
    with pytest.raises(provision_probe.ProbeError, match="cannot be asked from here"):
        provision_probe.ask_engine("ssh://host")


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("1.1.5+ds1", True),
        ("1.1.11", True),
        ("1.1.12", False),
        ("1.1.12+ds1", False),
        ("v1.2.0", False),
        ("1.0.0-rc95", True),
        ("2.0", False),
        ("", False),
        ("unknown", False),
    ],
)
def test_which_runc_is_old(version, old):
    assert provision_probe.runc_is_old(version) is old


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.sampled_from(["", "+ds1", "-rc1"])
)
def test_a_version_is_read_up_to_its_suffix(numbers, suffix):
    text = ".".join(map(str, numbers)) + suffix
    assert provision_probe.version_numbers(text) == tuple(numbers)


def test_the_embedded_valkey_is_found():
    check = doctor.check_redis(None)
    assert check.status is Status.OK
    assert check.found.endswith("(embedded)")


def test_a_redis_that_does_not_answer_is_missing(tmp_path):
    check = doctor.check_redis(f"unix://{tmp_path}/none.sock")
    assert check.status is Status.MISSING
    assert "unset that to use the embedded one" in check.advice


def test_a_redis_address_that_makes_no_sense_is_missing():
    assert doctor.check_redis("nonsense").status is Status.MISSING


def test_images_that_are_not_built_are_named(monkeypatch):
    monkeypatch.setattr(provision_images, "state", lambda _: {"workspace": False, "debian": True})
    (check,) = doctor.check_images(None)
    assert (check.status, check.found) == (Status.MISSING, "not built: workspace")
    monkeypatch.setattr(provision_images, "state", lambda _: {"workspace": True, "debian": True})
    (check,) = doctor.check_images(None)
    assert (check.status, check.found) == (Status.OK, "workspace, debian")


def test_images_are_unknown_without_an_engine(monkeypatch):
    def no_engine(_docker_host):
        raise SetupError("no engine")

    monkeypatch.setattr(provision_images, "state", no_engine)
    (check,) = doctor.check_images(None)
    assert check.status is Status.MISSING


def test_the_browser_is_needed_for_tests_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.check_browser(needed=True).status is Status.MISSING
    assert doctor.check_browser(needed=False).status is Status.NOTE
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    assert doctor.check_browser(needed=True).status is Status.OK
    monkeypatch.setattr(provision_probe, "driver_runs", lambda: False)
    check = doctor.check_browser(needed=True)
    assert (check.status, check.found) == (
        Status.MISSING,
        "Playwright's driver does not run (for the tests)",
    )


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A clone with nothing but the sources of a page."""
    root, sources = tmp_path / "clone", tmp_path / "clone" / "web"
    (sources / "src").mkdir(parents=True)
    (sources / "package.json").write_text("{}")
    (sources / "package-lock.json").write_text('{"packages": {"": {}}}')
    (sources / "src" / "main.ts").write_text("export {}")
    monkeypatch.setattr("server.provision_python.ROOT", root)
    monkeypatch.setattr(provision_web, "WEB", sources)
    monkeypatch.setattr(provision_web, "PAGE", sources / "dist" / "index.html")
    monkeypatch.setattr(provision_web, "STATE_DIR", root / ".setup")
    return sources


def test_the_page_is_as_new_as_its_sources(web):
    assert doctor.check_page().status is Status.MISSING
    provision_web.PAGE.parent.mkdir()
    provision_web.PAGE.touch()
    assert doctor.check_page().status is Status.WARN
    provision_web.STATE_DIR.mkdir()
    provision_web.page_stamp().touch()
    assert doctor.check_page().status is Status.OK
    (web / "tests").mkdir()
    (web / "tests" / "main.test.ts").write_text("a test is not part of the page")
    assert doctor.check_page().status is Status.OK
    (web / "src" / "main.ts").write_text("export const changed = 1")
    assert doctor.check_page().status is Status.WARN


def test_an_installed_page_without_sources_is_ready(web):
    provision_web.PAGE.parent.mkdir()
    provision_web.PAGE.touch()
    (web / "package.json").unlink()
    assert doctor.check_page().status is Status.OK


checks_lists = st.lists(
    st.builds(
        Check,
        st.sampled_from(["Python", "Engine", "Live restore"]),
        st.sampled_from(Status),
        st.text(st.characters(categories=["L", "N"]), max_size=20),
        st.sampled_from(["", "do this"]),
    ),
    min_size=1,
)


@given(checks_lists)
def test_only_what_is_missing_makes_it_incomplete(checks):
    assert doctor.is_complete(checks) is ("missing" not in [check.status for check in checks])


@given(checks_lists)
def test_the_table_lines_up_and_gives_each_advice(checks):
    lines = doctor.as_table(checks).split("\n")
    assert len(lines) == len(checks) + sum(bool(check.advice) for check in checks)
    parts = [line for line in lines if "→" not in line]
    starts = {line.index(check.status) for line, check in zip(parts, checks, strict=True)}
    assert len(starts) == 1


@given(checks_lists)
def test_json_says_the_same(checks):
    said = json.loads(doctor.as_json(checks))
    assert said["complete"] is doctor.is_complete(checks)
    assert [Check(**row) for row in said["checks"]] == checks


def test_the_line_after_a_setup_is_short():
    ready = Check("Engine", Status.OK, "Docker 27.3.1 (API 1.47, unix:///x.sock)")
    noted = replace(ready, part="Live restore", status=Status.NOTE)
    python = Check("Python", Status.OK, "3.12.1 (/usr/bin/python3)")
    line = doctor.as_line([python, ready, noted])
    assert line == "Ready: Python 3.12.1; Engine Docker 27.3.1"


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """The only programs on the path: `programs("dockerd", …)`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(provision_engine, "root_path", lambda: str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)

    def are(*names):
        for old in tmp_path.iterdir():
            old.unlink()
        for name in ("apparmor_parser", *names):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)

    return are


def test_what_a_bare_debian_needs(programs, monkeypatch):
    programs("apt-get")
    needed = provision_engine.packages_needed(engine_answers=False)
    assert needed == ["docker.io", "iptables", "mmdebstrap"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    needed = provision_engine.packages_needed(engine_answers=False)
    assert needed == ["docker.io", "iptables", "mmdebstrap", "uidmap"]


def test_another_engine_is_never_replaced_by_debians(programs):
    programs("apt-get", "dockerd", "iptables")
    assert provision_engine.packages_needed(engine_answers=False) == ["mmdebstrap"]
    programs("apt-get")
    assert provision_engine.packages_needed(engine_answers=True) == ["mmdebstrap"]


def test_a_whole_machine_needs_nothing(programs):
    programs("apt-get", "dockerd", "iptables", "mmdebstrap")
    assert provision_engine.packages_needed(engine_answers=False) == []


def test_an_engine_on_another_system_needs_no_debian(programs):
    programs()
    assert provision_engine.packages_needed(engine_answers=True) == []


def test_this_process_is_found_by_its_name():
    name = Path("/proc/self/comm").read_text().strip()
    assert any("pytest" in line for line in provision_engine.processes(name).values())
    assert provision_engine.processes("no-such-process") == {}
