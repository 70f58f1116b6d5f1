"""Tokens: what one secret signed is read back, and nothing else is."""

import base64
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Unauthenticated
from protocol.model import Participant
from server.tokens import Tokens
from tests.unit.protocol.strategies import wires

TOKENS = Tokens(b"s" * 32)
ADA = Participant(id="p_1", name="Ada", kind="human")


@given(wires(Participant))
def test_a_token_gives_its_participant_back(fields) -> None:
    participant = Participant.model_validate(fields)
    token = TOKENS.issue(participant)
    assert TOKENS.read(token) == participant
    assert token.isascii()
    assert not set(token) & set(" +/=\n")


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_what_nobody_signed_is_refused(token) -> None:
    with pytest.raises(Unauthenticated) as refused:
        TOKENS.read(token)
    assert "hello" in refused.value.message


@given(st.integers(0, 10_000), st.sampled_from("AbZ09-_"))
def test_a_changed_token_is_refused_or_says_the_same(place, character) -> None:
    token = TOKENS.issue(ADA)
    place %= len(token)
    changed = token[:place] + character + token[place + 1 :]
    try:
        assert TOKENS.read(changed) == ADA
    except Unauthenticated:
        assert changed != token


def test_another_secret_and_another_payload_are_refused() -> None:
    payload, signature = TOKENS.issue(ADA).split(".")
    eve = base64.urlsafe_b64encode(b'{"id":"p_2","name":"Eve","kind":"human"}').decode()
    for token in (
        Tokens(b"t" * 32).issue(ADA),
        f"{eve.rstrip('=')}.{signature}",
        f"{payload}.",
        f"{payload}.{signature[:-4]}",
        f"{payload}.{signature}.{signature}",
        payload,
    ):
        with pytest.raises(Unauthenticated):
            TOKENS.read(token)


def test_a_folder_keeps_one_secret_for_its_owner_alone(tmp_path) -> None:
    token = Tokens.of_folder(tmp_path).issue(ADA)
    assert Tokens.of_folder(tmp_path).read(token) == ADA
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes()) == 32
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(Unauthenticated):
        Tokens.of_folder(other).read(token)
