"""The WebSocket connection as `websockets` makes it, and the two things we ask it for besides."""

import time
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection


class Connection(ServerConnection):
    """Tells when it can be written to again, and when its peer was last heard."""

    on_writable: Callable[[], None] | None = None
    heard_at: float = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        super().data_received(data)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()
