"""Tokens: opaque to clients, signed with a secret of the data folder.

A token says who a participant is, nothing about what they may do.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from protocol.errors import Unauthenticated
from protocol.model import Participant


class Tokens:
    """Makes and reads tokens with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of_folder(cls, folder: Path) -> "Tokens":
        """The secret of `folder`, made on first use; only its owner may read it."""
        path = folder / "token-secret"
        if not path.exists():
            fresh = path.with_suffix(".new")
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
            fresh.replace(path)
        return cls(path.read_bytes())

    def issue(self, participant: Participant) -> str:
        payload = json.dumps(participant.wire(), separators=(",", ":")).encode()
        return f"{_text(payload)}.{_text(self._sign(payload))}"

    def read(self, token: str) -> Participant:
        """Raises Unauthenticated for anything this secret did not sign."""
        try:
            payload, signature = (_bytes(part) for part in token.split("."))
        except ValueError:
            raise _refused() from None
        if not hmac.compare_digest(self._sign(payload), signature):
            raise _refused()
        return Participant.model_validate_json(payload)

    def _sign(self, payload: bytes) -> bytes:
        return hmac.new(self._secret, payload, hashlib.sha256).digest()[:16]


def _refused() -> Unauthenticated:
    return Unauthenticated("This token is not one of this server's; say hello without it.")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
