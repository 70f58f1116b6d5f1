"""What of the store needs no Redis: addresses told without secrets, scripts whole."""

import pytest

from server.store import Script, Store, check_url


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://localhost", "localhost:6379"),
        ("redis://user:secret@redis.example:6380/2", "redis.example:6380"),
        ("rediss://:secret@redis.example", "redis.example:6379"),
        ("unix:///run/valkey.sock", "/run/valkey.sock"),
        ("unix://user:secret@/run/valkey.sock", "/run/valkey.sock"),
    ],
)
def test_people_are_told_where_it_is_and_no_password(url, where) -> None:
    check_url(url)
    assert Store(url).where == where


@pytest.mark.parametrize("url", ["", "localhost", "http://localhost", "redis://localhost:port"])
def test_an_address_that_cannot_be_one_is_refused(url) -> None:
    with pytest.raises(ValueError):
        check_url(url)


@pytest.mark.parametrize("name", ["append", "create", "delete", "page", "snapshot"])
def test_a_script_stands_with_the_rules_of_epochs_before_it(name) -> None:
    script = Script(name)
    assert script.source.index("local function room_of") < script.source.index("KEYS")
    assert len(script.hash) == 40
    assert Script(name).hash == script.hash
