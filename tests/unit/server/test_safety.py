"""Which `Host` and `Origin` a request may carry, as a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.safety import refusal, refusal_of

ALLOWED = ("duet.example", "fd00::7")


def refused(host, origin=None, *, writing=True):
    return refusal(host, origin, writing=writing, allowed=ALLOWED)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LocalHost:8080",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.8.9.10:8080",
        "[::1]",
        "[::1]:8080",
        "duet.example",
        "DUET.Example:443",
        "duet.example.:443",
        "[fd00::7]:8080",
    ],
)
def test_our_own_names_are_served(host) -> None:
    assert refused(host) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        " ",
        ":8080",
        "evil.example",
        "duet.example.evil.example",
        "evil-duet.example",
        "sub.duet.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:localhost",
        "localhost:http",
        "localhost:99999",
        "localhost:-1",
        "user@localhost",
        "@localhost",
        "user:pw@localhost:8080",
        "localhost@evil.example",
        "localhost/path",
        "localhost/",
        "localhost?query",
        "localhost#fragment",
        "localhost, evil.example",
        "localhost evil.example",
        "localhost\\.evil.example",
        "http://localhost",
        "::1",
        "[::1",
        "[::2]",
        "[fd00::8]",
        "0.0.0.0",
        "10.0.0.1",
        "169.254.169.254",
        "[::]",
        "2130706433",
        "127.1",
        "0x7f.0.0.1",
    ],
)
def test_other_names_are_refused_also_for_reading(host) -> None:
    for writing in (True, False):
        told = refused(host, writing=writing)
        assert told is not None
        assert "DUET_ALLOWED_HOSTS" in told


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8080", None),
        ("localhost:8080", "http://localhost:8080"),
        ("LOCALHOST:8080", "HTTP://LocalHost:8080"),
        ("localhost.:8080", "http://localhost:8080"),
        ("localhost", "http://localhost"),
        ("localhost", "http://localhost:80"),
        ("localhost:80", "http://localhost"),
        ("duet.example", "https://duet.example"),
        ("duet.example:443", "https://duet.example"),
        ("duet.example", "https://duet.example:443"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_the_servers_own_pages_may_write(host, origin) -> None:
    assert refused(host, origin) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8080", "null"),
        ("localhost:8080", ""),
        ("localhost:8080", "localhost:8080"),
        ("localhost:8080", "http://"),
        ("localhost:8080", "http://evil.example"),
        ("localhost:8080", "http://evil.example:8080"),
        ("localhost:8080", "http://localhost"),
        ("localhost:8080", "http://localhost:8081"),
        ("localhost:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://[::1]:8080"),
        ("localhost:8080", "http://localhost:8080@evil.example"),
        ("localhost:8080", "http://evil.example@localhost:8080"),
        ("localhost:8080", "http://localhost:8080.evil.example"),
        ("localhost:8080", "http://localhost:8080/path"),
        ("localhost:8080", "http://localhost:8080 http://evil.example"),
        ("localhost:8080", "file://localhost:8080"),
        ("localhost:8080", "chrome-extension://localhost:8080"),
        ("duet.example", "http://duet.example:443"),
        ("duet.example:80", "https://duet.example"),
        ("[::1]:8080", "http://::1:8080"),
    ],
)
def test_other_pages_may_read_without_answer_and_not_write(host, origin) -> None:
    told = refused(host, origin)
    assert told is not None
    assert "origin" in told.lower()
    assert refused(host, origin, writing=False) is None


@given(st.text(), st.none() | st.text(), st.booleans())
def test_nonsense_is_refused_not_stumbled_over(host, origin, writing) -> None:
    told = refused(host, origin, writing=writing)
    assert told is None or len(told) < 1000


def test_a_long_host_is_not_told_back_whole() -> None:
    assert len(refused("x" * 100_000)) < 1000
    assert len(refused("localhost", "http://" + "x" * 100_000)) < 1000


@pytest.mark.parametrize(
    ("hosts", "origins", "is_refused"),
    [
        (["localhost"], [], False),
        (["localhost"], ["http://localhost"], False),
        ([], [], True),
        (["localhost", "localhost"], [], True),
        (["localhost", "evil.example"], [], True),
        (["localhost"], ["http://localhost", "http://localhost"], True),
        (["localhost"], ["http://localhost", "http://evil.example"], True),
    ],
)
def test_several_of_one_name_are_foreign(hosts, origins, is_refused) -> None:
    said = refusal_of(hosts, origins, writing=True, allowed=ALLOWED)
    assert (said is not None) == is_refused
