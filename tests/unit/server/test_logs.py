"""The log: one line per event, ours and the libraries', in the form and from the level asked for."""

import json
import logging

import pytest
import structlog

from server import logs

LEVELS = ("debug", "info", "warning", "error")


@pytest.fixture(autouse=True)
def as_it_was():
    """Logging is the process's: what a test sets up must not reach the next."""
    root, sandbox = logging.getLogger(), logging.getLogger("sandbox")
    before = root.level, list(root.handlers), sandbox.level
    yield
    root.handlers[:], root.level = before[1], before[0]
    sandbox.setLevel(before[2])
    structlog.reset_defaults()


def speak():
    """A line of each kind: of the server's, of the sandboxes', of a library's; and a failure."""
    log = logs.get("exec")
    for level in LEVELS:
        getattr(log, level)(f"our {level}", room="blue", session="s1", exec="blue.1")
        getattr(logging.getLogger("sandbox.manager"), level)("sandbox %s: %s", "lab", level)
        getattr(logging.getLogger("somebody.else"), level)("their %s", level)
    try:
        raise ValueError("two\nlines")  # noqa: TRY301 - what is logged
    except ValueError:
        log.exception("it failed", incident="1234")
        logging.getLogger("asyncio").exception("it failed there")


def test_for_machines_every_line_is_one_object(capsys):
    logs.configure("info", "json")
    speak()
    out, err = capsys.readouterr()
    assert out == ""
    lines = [json.loads(line) for line in err.splitlines()]
    assert all(line["timestamp"] and line["level"] and line["event"] for line in lines)
    ours = next(line for line in lines if line["event"] == "our info")
    known = {name: ours[name] for name in ("part", "room", "session", "exec", "level")}
    assert known == {
        "part": "exec",
        "room": "blue",
        "session": "s1",
        "exec": "blue.1",
        "level": "info",
    }
    theirs = next(line for line in lines if line["event"] == "sandbox lab: warning")
    assert (theirs["part"], theirs["level"]) == ("sandbox.manager", "warning")
    failed = [line for line in lines if line["event"].startswith("it failed")]
    assert len(failed) == 2
    assert all("ValueError: two\nlines" in line["exception"] for line in failed)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", ["json", "console"])
def test_the_level_counts_for_all_parts_and_libraries_say_no_less_than_warnings(
    capsys, level, form
):
    logs.configure(level, form)
    speak()
    said = capsys.readouterr().err
    wanted = LEVELS[LEVELS.index(level) :]
    for one in LEVELS:
        assert (f"our {one}" in said) == (one in wanted)
        assert (f"sandbox lab: {one}" in said) == (one in wanted)
        assert (f"their {one}" in said) == (one in wanted and one in ("warning", "error"))


def test_for_people_a_line_names_its_part_and_its_ids(capsys):
    logs.configure("warning", "console")
    logs.get("exec").warning("output is not stored yet", exec="blue.1")
    logging.getLogger("sandbox.manager").warning("no sandboxes for now: %s", "why")
    ours, theirs = capsys.readouterr().err.splitlines()
    assert "output is not stored yet" in ours
    assert "part=exec" in ours
    assert "exec=blue.1" in ours
    assert "no sandboxes for now: why" in theirs
    assert "part=sandbox.manager" in theirs


def test_peers_that_speak_nonsense_are_no_news(capsys):
    logs.configure("debug", "json")
    for name in ("websockets.server", "aiohttp.server", "aiohttp.access"):
        logging.getLogger(name).error("a peer vanished")
    assert capsys.readouterr().err == ""


def test_set_up_twice_a_line_stands_once(capsys):
    logs.configure("info", "json")
    logs.configure("info", "json")
    logging.getLogger("sandbox.manager").warning("once")
    logs.get("gate").warning("once")
    assert len(capsys.readouterr().err.splitlines()) == 2
