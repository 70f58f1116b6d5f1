"""Every error carries a code of the contract; close codes say whether to come back."""

import pytest

from protocol import errors, names

# The list of the contract, in its order; a new code is a change of the contract.
CONTRACT = [
    "bad_frame",
    "invalid",
    "hello_required",
    "already_hello",
    "unauthenticated",
    "forbidden",
    "not_joined",
    "unknown_room",
    "unknown_exec",
    "unknown_message",
    "unknown_turn",
    "unknown_sandbox",
    "key_conflict",
    "conflict",
    "too_large",
    "rate_limited",
    "limit",
    "unavailable",
    "internal_error",
]


def test_the_codes_are_the_contracts() -> None:
    assert sorted(errors.CODES) == sorted(CONTRACT)
    assert set(errors.BY_CODE) == set(CONTRACT)


@pytest.mark.parametrize("error", errors.every_error(), ids=lambda error: error.__name__)
def test_every_class_carries_its_own_code(error) -> None:
    assert "code" in vars(error), "an inherited code would hide which error it is"
    assert errors.BY_CODE[error.code] is error
    assert 400 <= error.http_status <= 599
    assert error("What to do.").message == str(error("What to do.")) == "What to do."


def test_what_to_try_again() -> None:
    again = {error.code for error in errors.every_error() if error.retryable}
    assert again == {"rate_limited", "unavailable", "internal_error"}


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (4000, True),
        (4001, True),
        (4002, True),
        (4499, True),
        (1001, True),
        (1006, True),
        (1011, True),
        (1012, True),
        (1013, True),
        (4500, False),
        (4501, False),
        (4502, False),
        (4999, False),
        (1002, False),
        (1003, False),
        (1007, False),
        (1008, False),
        (1009, False),
        (1010, False),
    ],
)
def test_who_should_come_back(code, again) -> None:
    assert names.should_reconnect(code) is again


def test_own_close_codes_are_the_contracts() -> None:
    assert sorted(names.CloseCode) == [4000, 4001, 4002, 4500, 4501, 4502]
