"""Frames to and from bytes: JSON text and msgpack, chosen by subprotocol.

Knows nothing of what a frame means; that is `commands` and `events`. Pure.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import msgpack

from protocol import names
from protocol.errors import BadFrame

_DEPTH_MAX = 32
"""Nesting a frame may have: the contract's deepest has four levels."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One encoding. `binary` tells the WebSocket opcode it belongs in."""

    subprotocol: str
    binary: bool
    encode: Callable[[dict[str, Any]], bytes]
    decode: Callable[[str | bytes], dict[str, Any]]

    def output(self, data: bytes) -> dict[str, Any]:
        """The fields that carry output bytes: `data`, or `base64` where JSON cannot."""
        if self.binary:
            return {"data": data}
        try:
            return {"data": data.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is not JSON."
    raise BadFrame(message)


_json_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
_json_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def encode_json(frame: dict[str, Any]) -> bytes:
    return _json_encode(frame).encode()


def decode_json(data: str | bytes) -> dict[str, Any]:
    """Raises BadFrame for anything but one JSON object in a text frame."""
    if isinstance(data, bytes):
        raise BadFrame("This session speaks JSON: send text frames.")
    try:
        frame = _json_decode(data)
    except (ValueError, RecursionError):
        raise BadFrame("This frame is not JSON.") from None
    return _object(frame)


def encode_msgpack(frame: dict[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(frame, use_bin_type=True)
    return packed


def decode_msgpack(data: str | bytes) -> dict[str, Any]:
    """Raises BadFrame for anything but one msgpack map of plain values in a binary frame."""
    if isinstance(data, str):
        raise BadFrame("This session speaks msgpack: send binary frames.")
    try:
        frame = msgpack.unpackb(data, raw=False, strict_map_key=True, ext_hook=_refuse_extension)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException):
        raise BadFrame("This frame is not msgpack.") from None
    _plain(frame, 0)
    return _object(frame)


def _refuse_extension(_code: int, _data: bytes) -> NoReturn:
    raise BadFrame("Extension types of msgpack are not used here.")


def _object(frame: Any) -> dict[str, Any]:
    if not isinstance(frame, dict):
        raise BadFrame('A frame is one object with a "type".')
    return frame


def _plain(value: Any, depth: int) -> None:
    """Refuse what JSON could not have said: NaN, timestamps, keys that are not text."""
    if depth > _DEPTH_MAX:
        raise BadFrame("This frame is nested too deeply.")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadFrame("Keys are strings.")
            _plain(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _plain(item, depth + 1)
    elif isinstance(value, msgpack.Timestamp) or (
        isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))  # noqa: PLR0124 - NaN is what differs from itself
    ):
        raise BadFrame("NaN, infinity and timestamps are not used here.")


JSON = Codec(names.SUBPROTOCOL_JSON, False, encode_json, decode_json)  # noqa: FBT003
MSGPACK = Codec(names.SUBPROTOCOL_MSGPACK, True, encode_msgpack, decode_msgpack)  # noqa: FBT003


def codec_for(subprotocol: str | None) -> Codec:
    """The codec of a negotiated subprotocol; JSON for clients that offered none."""
    return MSGPACK if subprotocol == names.SUBPROTOCOL_MSGPACK else JSON
