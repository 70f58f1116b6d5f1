"""Frames on their way out: encoded once per codec, the WebSocket header built once.

`Outgoing` is what rooms hand to sessions; it knows no session and no socket.
"""

from collections.abc import Mapping
from typing import Any

from protocol.codec import JSON, MSGPACK, Codec

_TEXT, _BINARY = 0x81, 0x82
_SHORT, _MEDIUM = 126, 1 << 16


def framed(payload: bytes, *, binary: bool) -> bytes:
    """A whole unmasked WebSocket message (RFC 6455, 5.2) around `payload`."""
    first, size = (_BINARY if binary else _TEXT), len(payload)
    if size < _SHORT:
        return bytes((first, size)) + payload
    if size < _MEDIUM:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload


class Outgoing:
    """One frame for any number of sessions; `frame` is its fields, or its JSON if that exists."""

    __slots__ = ("_frame", "_json", "_msgpack")

    def __init__(self, frame: Mapping[str, Any] | bytes) -> None:
        self._frame = frame
        self._json: bytes | None = None
        self._msgpack: bytes | None = None

    def wire(self, codec: Codec) -> bytes:
        """The message as `codec` says it, header included."""
        if codec.binary:
            if self._msgpack is None:
                self._msgpack = framed(MSGPACK.encode(self._fields(codec)), binary=True)
            return self._msgpack
        if self._json is None:
            frame = self._frame
            json = frame if isinstance(frame, bytes) else JSON.encode(self._fields(codec))
            self._json = framed(json, binary=False)
        return self._json

    def _fields(self, codec: Codec) -> dict[str, Any]:  # noqa: ARG002 - Output's differ by codec
        if isinstance(self._frame, bytes):
            return JSON.decode(self._frame.decode())
        return dict(self._frame)


class Output(Outgoing):
    """`exec.output`: the one frame whose fields differ by codec."""

    __slots__ = ("_data",)

    def __init__(self, frame: Mapping[str, Any], data: bytes) -> None:
        super().__init__(frame)
        self._data = data

    def _fields(self, codec: Codec) -> dict[str, Any]:
        return {**super()._fields(codec), **codec.output(self._data)}
