"""Every error a request can get, as exceptions that carry their wire code.

DuetError
├── BadFrame            not a frame at all
├── Invalid             wrong or missing fields
│   └── TooLarge        a field beyond its limit
├── HelloRequired, AlreadyHello, Unauthenticated, Forbidden, NotJoined
├── UnknownRoom, UnknownExec, UnknownMessage, UnknownTurn, UnknownSandbox
├── KeyConflict, Conflict, LimitReached
├── RateLimited         retryable, with a time
├── Unavailable         retryable: a part that Duet needs does not answer
└── InternalError       with an incident id
"""

from collections.abc import Mapping
from typing import ClassVar

Details = Mapping[str, list[str]]


class DuetError(Exception):
    """A request that failed. `message` says what to do; `details` maps fields to messages."""

    code: str = "internal_error"
    retryable: bool = False
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        details: Details | None = None,
        retry_after_ms: int | None = None,
        ref: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.retry_after_ms = retry_after_ms
        self.ref = ref


class BadFrame(DuetError):
    code = "bad_frame"
    http_status = 400


class Invalid(DuetError):
    code = "invalid"
    http_status = 400


class TooLarge(Invalid):
    code = "too_large"
    http_status = 413


class HelloRequired(DuetError):
    code = "hello_required"
    http_status = 401


class AlreadyHello(DuetError):
    code = "already_hello"
    http_status = 409


class Unauthenticated(DuetError):
    code = "unauthenticated"
    http_status = 401


class Forbidden(DuetError):
    code = "forbidden"
    http_status = 403


class NotJoined(DuetError):
    code = "not_joined"
    http_status = 403


class UnknownRoom(DuetError):
    code = "unknown_room"
    http_status = 404


class UnknownExec(DuetError):
    code = "unknown_exec"
    http_status = 404


class UnknownMessage(DuetError):
    code = "unknown_message"
    http_status = 404


class UnknownTurn(DuetError):
    code = "unknown_turn"
    http_status = 404


class UnknownSandbox(DuetError):
    code = "unknown_sandbox"
    http_status = 404


class KeyConflict(DuetError):
    code = "key_conflict"
    http_status = 409


class Conflict(DuetError):
    code = "conflict"
    http_status = 409


class LimitReached(DuetError):
    code = "limit"
    http_status = 429


class RateLimited(DuetError):
    code = "rate_limited"
    retryable = True
    http_status = 429


class Unavailable(DuetError):
    code = "unavailable"
    retryable = True
    http_status = 503


class InternalError(DuetError):
    code = "internal_error"
    retryable = True
    http_status = 500


def from_wire(
    code: str,
    message: str,
    *,
    retryable: bool,
    details: Details | None = None,
    retry_after_ms: int | None = None,
    ref: str | None = None,
) -> DuetError:
    """The error that an `error` frame tells; DuetError itself with a code that is new to us."""
    kind = BY_CODE.get(code, DuetError)
    error = kind(message, details=details, retry_after_ms=retry_after_ms, ref=ref)
    error.code, error.retryable = code, retryable
    return error


def every_error() -> list[type[DuetError]]:
    """All classes of the tree above, the root left out."""
    found: list[type[DuetError]] = []
    queue = list(DuetError.__subclasses__())
    while queue:
        found.append(queue.pop(0))
        queue.extend(found[-1].__subclasses__())
    return found


CODES = tuple(dict.fromkeys(error.code for error in every_error()))
BY_CODE = {error.code: error for error in every_error()}
