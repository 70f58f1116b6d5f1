"""The wire between a link and the runner in a sandbox: pure functions, and a reader of chunks.

Towards the runner: JSON lines. From it: length-prefixed frames, found again by the session's nonce
after whatever an earlier client left half read. No I/O and no knowledge of what the frames mean.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAGIC = b"\xd7DUET\r\n\x00"
NONCE_BYTES = 16
# The largest frame is a hello that lists every exec (some 500 of them); output frames carry 64 KiB.
MAX_FRAME_BYTES = 1024 * 1024
STREAMS = ("stdout", "stderr", "pty")

_LENGTH = struct.Struct("!I")
_OUTPUT = struct.Struct("!BQB")  # stream, position, length of the exec's id
_JSON_KIND, _OUTPUT_KIND = ord("J"), ord("O")


class FrameError(Exception):
    """What came is not what a runner says; nothing after it can be trusted."""


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of one stream of one exec; `at` is the position of the first of them."""

    exec: str
    stream: str
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Control:
    """Everything that is not output; `fields["t"]` names it."""

    fields: Mapping[str, Any]


Frame = Output | Control


def encode_line(nonce: bytes, seq: int, fields: Mapping[str, Any]) -> bytes:
    """One line towards the runner. The newline before it ends a line that a dead client tore."""
    body = json.dumps({**fields, "n": nonce.hex(), "s": seq}, separators=(",", ":"))
    return b"\n" + body.encode() + b"\n"


class FrameReader:
    """Turns chunks of any size into frames, beginning behind the mark that carries `nonce`."""

    def __init__(self, nonce: bytes) -> None:
        self._mark = MAGIC + nonce
        self._found = False
        self._buffer = bytearray()

    @property
    def synced(self) -> bool:
        return self._found

    def feed(self, chunk: bytes | memoryview) -> Iterator[Frame]:
        """Yield the frames that are whole now.

        Raises FrameError for a broken one. The iterator must be run to its end: what it did not
        yield is not kept apart.
        """
        self._buffer += chunk
        if not self._found and not self._sync():
            return
        at, end = 0, len(self._buffer)
        try:
            while end - at >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(self._buffer, at)
                if not 0 < size <= MAX_FRAME_BYTES:
                    raise FrameError(f"a frame of {size} bytes")
                if end - at < _LENGTH.size + size:
                    break
                with memoryview(self._buffer) as view:
                    frame = _decode(view[at + _LENGTH.size : at + _LENGTH.size + size])
                at += _LENGTH.size + size
                yield frame
        finally:
            del self._buffer[:at]

    def _sync(self) -> bool:
        at = self._buffer.find(self._mark)
        self._found = at >= 0
        del self._buffer[: at + len(self._mark) if self._found else max(0, len(self._buffer) - 23)]
        return self._found


def _decode(body: memoryview) -> Frame:
    if body[0] == _OUTPUT_KIND:
        return _decode_output(body[1:])
    if body[0] == _JSON_KIND:
        try:
            fields = json.loads(bytes(body[1:]))
        except ValueError as error:
            raise FrameError("a control frame that is not JSON") from error
        if isinstance(fields, dict) and isinstance(fields.get("t"), str):
            return Control(fields)
    raise FrameError("a frame of unknown kind")


def _decode_output(body: memoryview) -> Output:
    try:
        stream, at, size = _OUTPUT.unpack_from(body)
        name = bytes(body[_OUTPUT.size : _OUTPUT.size + size]).decode("ascii")
        return Output(name, STREAMS[stream], at, bytes(body[_OUTPUT.size + size :]))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise FrameError("a broken output frame") from error
