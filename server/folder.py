"""The data folder: made on first use, locked by the one server that works in it, named once."""

import fcntl
import os
import secrets
from pathlib import Path

from server.errors import StartupError


class DataFolder:
    """Holds the folder's lock from creation until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"The data folder {path} cannot be used: {error.strerror}."
            raise StartupError(message) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            message = f"Another Duet works in {path}; stop it or give another --data-dir."
            raise StartupError(message) from None

    def server_id(self) -> str:
        """The name of this folder's server in container labels and in a shared Redis."""
        file = self.path / "server-id"
        if not file.exists():
            file.write_text(secrets.token_hex(6))
        return file.read_text().strip()

    def close(self) -> None:
        os.close(self._lock)
