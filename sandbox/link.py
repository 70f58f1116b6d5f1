"""The client side of the runner: one attachment, its session (nonce, sequence), its frames.

Hands frames to whoever owns the link and knows nothing of what commands mean; `process.py` does.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox import frames
from sandbox.attach import Attachment
from sandbox.bundle import runner_source
from sandbox.engine import Engine
from sandbox.errors import LinkBroken

log = logging.getLogger(__name__)

SOURCE: Final = runner_source()
HELLO_S: Final = 20.0  # a start on a machine whose every CPU is busy; idle it takes 0.1 s
RESUME_S: Final = 2.0  # the runner is up, and five seconds are all there are
STDERR_KEPT_BYTES: Final = 4096  # the runner prints there only when it dies
_STDOUT: Final = 1


class Link:
    """`on_frame` for every frame in order; `on_closed` once, after which nothing more comes."""

    def __init__(
        self, on_frame: Callable[[frames.Frame], None], on_closed: Callable[[], None]
    ) -> None:
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._nonce = secrets.token_bytes(frames.NONCE_BYTES)
        self._reader = frames.FrameReader(self._nonce)
        self._seq = 0
        self._closed = False
        self.broken = False  # closed by us, for what it said
        self.lost = False  # closed by the other side
        self._loop = asyncio.get_running_loop()
        self._hello: asyncio.Future[Mapping[str, Any]] = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._attachment = Attachment(self._on_data, self._on_lost)
        self._stderr = b""

    async def start(self, engine: Engine, container: str) -> None:
        """Attach to a container that does not run yet, start it, and bring up the runner.

        Raises EngineUnavailable, EngineError, LinkBroken (the runner did not come up).
        """
        try:
            await engine.attach(container, self._attachment)
            await engine.start(container)
            self._attachment.write(b"%08d" % len(SOURCE) + SOURCE)
            await self._greet()
        except BaseException:
            self.close()
            raise

    def hand_over(
        self, on_frame: Callable[[frames.Frame], None], on_closed: Callable[[], None]
    ) -> None:
        """To another owner, while nothing runs over it."""
        self._on_frame, self._on_closed = on_frame, on_closed

    async def resume(self, engine: Engine, container: str) -> Mapping[str, Any]:
        """Attach to a runner that is up. Its hello, with the execs it has, none of them claimed.

        Raises as `start` does.
        """
        try:
            await engine.attach(container, self._attachment)
            return await self._greet(RESUME_S)
        except BaseException:
            self.close()
            raise

    async def _greet(self, timeout_s: float = HELLO_S) -> Mapping[str, Any]:
        self.send({"t": "hello"})
        try:
            async with asyncio.timeout(timeout_s):
                return await self._hello
        except TimeoutError:
            raise LinkBroken(f"The sandbox did not answer within {timeout_s:g} s.") from None

    def ping(self) -> None:
        """Ask for a sign of life; `silent_s` tells whether there was any."""
        self.send({"t": "ping", "i": self._seq})

    def silent_s(self) -> float:
        """Seconds since anything came."""
        return self._loop.time() - self._heard_at

    def send(self, fields: Mapping[str, Any]) -> None:
        """Never blocks. A link that can't take it is closed, which its owner is told."""
        if self._closed:
            return
        self._seq += 1
        if not self._attachment.write(frames.encode_line(self._nonce, self._seq, fields)):
            self._attachment.close()

    def close(self) -> None:
        """Silently: the owner knows."""
        self._closed = True
        self._attachment.close()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def last_words(self) -> str:
        """The tail of what the runner printed when it died, for the log."""
        return self._stderr.decode(errors="replace").strip()

    def _on_data(self, stream: int, data: memoryview) -> None:
        self._heard_at = self._loop.time()
        if stream != _STDOUT:
            self._stderr = (self._stderr + bytes(data))[-STDERR_KEPT_BYTES:]
            return
        try:
            for frame in self._reader.feed(data):
                if not self._hello.done():
                    self._on_hello(frame)
                elif not self._closed:
                    self._on_frame(frame)
        except (frames.FrameError, LinkBroken) as error:
            log.warning("a runner broke the rules: %s", error)
            self.broken = True
            self._attachment.close()

    def _on_hello(self, frame: frames.Frame) -> None:
        if not isinstance(frame, frames.Control) or frame.fields["t"] != "hello":
            raise LinkBroken("The runner began without hello.")
        self._hello.set_result(frame.fields)

    def _on_lost(self) -> None:
        self.lost = not self._closed
        if not self._hello.done():
            words = self.last_words.splitlines()
            why = f" ({words[-1]})" if words else ""
            self._hello.set_exception(
                LinkBroken(f"The sandbox ended while it was being started{why}.")
            )
            self._hello.exception()  # not awaited when the start itself failed
        elif not self._closed:
            self._closed = True
            self._on_closed()
