"""The runner's side of the wire (`frames.py` is the other): lines in, frames out, never blocking.

What messages mean is `main.py`'s; here they are only told apart from a dead client's.
"""

import binascii
import json
import os
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox.runner.loop import OUT, Loop

MAGIC = b"\xd7DUET\r\n\x00"  # followed by 16 bytes of nonce: where a new client starts to read
READ_BYTES = 65_536
LINE_BYTES = 4 * 1024 * 1024  # longer ones are no client's
REOPEN_S = 0.1
PARTS_PER_WRITE = 16
HELD_S = 0.02  # what may go with the next frame waits this long for one
HEADER = struct.Struct("!IcBQB")  # length, b"O", stream, position, length of the exec's id
Message = dict[str, Any]


def output_header(exec_id: str, stream: int, at: int, size: int) -> bytes:
    """What goes before `size` bytes of output; `stream` is 0 stdout, 1 stderr, 2 pty."""
    name = exec_id.encode()
    return HEADER.pack(11 + len(name) + size, b"O", stream, at, len(name)) + name


def control_frame(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack("!Ic", 1 + len(body), b"J") + body


class Wire:
    """`on_hello` for a new client, `on_message` for what the current one says, and `on_blocked`
    with whether output has to wait for the engine to read on.
    """

    def __init__(
        self,
        loop: Loop,
        fds: tuple[int, int],
        on_hello: Callable[[Message], None],
        on_message: Callable[[Message], None],
        on_blocked: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._in, self._out = fds
        self._on_hello, self._on_message, self._on_blocked = on_hello, on_message, on_blocked
        self._nonce, self._seq, self._line = "", 0, b""
        self._queue: deque[memoryview] = deque()
        self._held = b""
        self._listen()

    @property
    def blocked(self) -> bool:
        return bool(self._queue)

    # --- in -------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._loop.watch(self._in, self._on_readable)

    def _on_readable(self) -> None:
        data = os.read(self._in, READ_BYTES)
        if not data:  # the engine let go of our stdin; look again later rather than spin
            self._loop.unwatch(self._in)
            self._loop.after(REOPEN_S, self._listen)
            return
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > LINE_BYTES:
            self._line = b""
        for line in lines:
            if line:
                self._on_line(line)

    def _on_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind, nonce, seq = message["t"], message["n"], message["s"]
            if kind == "hello":
                self._greet(message)
            elif nonce == self._nonce and seq > self._seq:
                self._seq = seq
                self._on_message(message)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.send({"t": "fault", "message": f"{type(error).__name__}: {error}"[:300]})

    def _greet(self, message: Message) -> None:
        """A new client: what lies unsent is for nobody; it reads from the mark with its nonce."""
        mark = MAGIC + binascii.unhexlify(message["n"])
        self._nonce, self._seq = message["n"], message["s"]
        self._unblock()
        self._held = b""
        self._write(mark)
        self._on_hello(message)

    # --- out ------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        self._write(control_frame(message))

    def send_soon(self, message: Message) -> None:
        """With the next frame: alone, a word that nobody waits for wakes the engine and the client
        just when the command that it tells of needs the CPUs to start.
        """
        if not self._held:
            self._loop.after(HELD_S, self._release)
        self._held += control_frame(message)

    def _release(self) -> None:
        if self._held:
            self._write()

    def send_output(self, exec_id: str, stream: int, at: int, data: bytes) -> None:
        self._write(output_header(exec_id, stream, at, len(data)), data)

    def _write(self, *parts: bytes) -> None:
        if self._held:
            parts, self._held = (self._held, *parts), b""
        done = 0
        if not self._queue:
            try:
                done = os.writev(self._out, parts)
            except BlockingIOError:
                pass
            except OSError:  # nobody reads: the next hello starts afresh
                return
            if done == sum(map(len, parts)):
                return
            self._loop.watch(self._out, self._on_writable, OUT)
            self._on_blocked(True)  # noqa: FBT003
        for part in parts:
            if done < len(part):
                self._queue.append(memoryview(part)[done:])
            done = max(0, done - len(part))

    def _on_writable(self) -> None:
        try:
            while self._queue:
                parts = [self._queue[n] for n in range(min(PARTS_PER_WRITE, len(self._queue)))]
                self._drop(os.writev(self._out, parts))
        except BlockingIOError:
            return
        except OSError:  # nobody reads
            pass
        self._unblock()

    def _drop(self, done: int) -> None:
        while self._queue and done >= len(self._queue[0]):
            done -= len(self._queue.popleft())
        if done:
            self._queue[0] = self._queue[0][done:]

    def _unblock(self) -> None:
        self._queue.clear()
        if self._loop.watched(self._out):
            self._loop.unwatch(self._out)
            self._on_blocked(False)  # noqa: FBT003
