"""The agent made from settings: which way a model wants commands, and what is wrong in words."""

import pytest

from server.agent.approval import compiled, verdict
from server.agent.models import make
from server.errors import StartupError
from server.settings import Settings


@pytest.mark.parametrize(
    ("name", "base_url", "tools", "way"),
    [
        ("openai:x", None, "auto", "native"),
        ("anthropic:x", None, "auto", "native"),
        ("openai:x", "http://127.0.0.1:1/v1", "auto", "tags"),
        ("openai:x", "http://127.0.0.1:1/v1", "native", "native"),
        ("anthropic:x", None, "tags", "tags"),
        ("anthropic:x", "http://127.0.0.1:1", "auto", "native"),
    ],
)
def test_each_provider_has_a_good_way(name, base_url, tools, way):
    models = make(name, base_url=base_url, api_key="k", tools=tools)
    assert models.way == way
    assert models.tells_length is (base_url is None or name.startswith("anthropic"))


@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("x", "k", "PROVIDER:NAME"),
        ("openai:", "k", "PROVIDER:NAME"),
        ("gopher:x", "k", "openai and anthropic"),
        ("openai:x", None, "DUET_AGENT_API_KEY"),
        ("anthropic:x", None, "DUET_AGENT_API_KEY"),
    ],
)
def test_what_cannot_be_used_is_said(name, key, words):
    with pytest.raises(StartupError, match=words):
        make(name, base_url=None, api_key=key, tools="auto")


def test_a_key_is_not_in_what_is_printed_of_the_settings(monkeypatch):
    monkeypatch.setenv("DUET_AGENT_API_KEY", "sk-very-secret")
    settings = Settings(_env_file=None)
    assert "sk-very-secret" not in repr(settings) + settings.model_dump_json()


def test_patterns_are_split_and_checked(monkeypatch):
    monkeypatch.setenv("DUET_AGENT_ALWAYS_ASK", r" rm\s+-rf ; ^sudo\b;")
    patterns = compiled(Settings(_env_file=None).agent_always_ask)
    assert [pattern.pattern for pattern in patterns] == [r"rm\s+-rf", r"^sudo\b"]
    with pytest.raises(ValueError, match="'\\('"):
        compiled(["("])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("sudo id", "ask"),
        ("cd /\nsudo id", "ask"),
        ("echo sudo id", "run"),
        ("make all\nls", "ask"),
    ],
)
def test_a_pattern_for_a_beginning_or_end_holds_on_every_line(command, expected):
    patterns = compiled([r"^sudo\b", r"\ball$"])
    assert verdict(command, "auto", patterns, always=True) == expected


@pytest.mark.parametrize(
    ("command", "approval", "always", "expected"),
    [
        ("ls", "auto", False, "run"),
        ("ls", "ask", False, "ask"),
        ("ls", "ask", True, "run"),
        ("ls", "off", True, "refuse"),
        ("git  push", "auto", False, "ask"),
        ("x; GIT\n push", "auto", True, "ask"),
        ("git pushd", "auto", False, "run"),
        ("git \\\n  push", "auto", False, "ask"),
        ("git pu\\\nsh", "auto", False, "ask"),
        ("npm publish", "auto", False, "ask"),
    ],
)
def test_verdicts(command, approval, always, expected):
    patterns = compiled(Settings(_env_file=None).agent_always_ask)
    assert verdict(command, approval, patterns, always=always) == expected
