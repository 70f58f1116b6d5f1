"""Frames taken apart by the parser of `websockets`, so that ours is not its own judge."""

import base64

from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from protocol.codec import JSON, MSGPACK


def parsed(data):
    """All WebSocket frames in `data`; fails where it does not hold whole frames."""
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    frames = []
    while reader.buffer:
        parse = Frame.parse(reader.read_exact, mask=False, max_size=None)
        try:
            next(parse)
        except StopIteration as stop:
            frames.append(stop.value)
        else:
            raise AssertionError("half a frame")
    return frames


def decoded(data):
    """The objects that the frames in `data` hold."""
    return [_decode(frame) for frame in parsed(data)]


def _decode(frame):
    if frame.opcode is Opcode.TEXT:
        return JSON.decode(bytes(frame.data).decode())
    assert frame.opcode is Opcode.BINARY
    return MSGPACK.decode(bytes(frame.data))


def fields_of(outgoing, codec=JSON):
    (fields,) = decoded(outgoing.wire(codec))
    return fields


def data_of(frame):
    """The bytes of an `exec.output`, however its codec carried them."""
    if "base64" in frame:
        return base64.b64decode(frame["base64"], validate=True)
    data = frame["data"]
    return data if isinstance(data, bytes) else data.encode()
