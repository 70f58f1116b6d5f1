"""One session: what goes wrong in a command stays there, and broken frames end it only when many."""

import json

import pytest

from protocol import names
from protocol.codec import JSON
from protocol.errors import Conflict, Unavailable
from protocol.names import CloseCode
from server import session as module
from server.flusher import Flusher
from server.session import Session
from tests.unit.server.virtual import settle

HELLO = '{"type":"hello","name":"Ada","ref":"h"}'


class Transport:
    def __init__(self):
        self.written = b""

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        self.written += data


class Connection:
    """A connection that gives the frames of a list, and remembers how it was closed."""

    on_writable = None
    paused = False

    def __init__(self, frames):
        self.frames = frames
        self.transport = Transport()
        self.protocol = self
        self.state = module.State.OPEN
        self.closed = None

    async def __aiter__(self):
        for frame in self.frames:
            if callable(frame):
                frame()
                continue
            yield frame
            await settle(2)

    async def close(self, code, reason):
        self.closed = code, reason
        self.state = module.State.CLOSED


class Handler:
    """Raises what it is given for anything but hello."""

    def __init__(self, error=None):
        self.error = error
        self.seen = []
        self.left = 0

    def welcome(self, session, hello):
        session.participant = hello.name
        return {"type": "welcome"}

    async def handle(self, session, command):
        self.seen.append(command.type)
        if self.error is not None and command.type == "leave":
            raise self.error
        session.reply(command.ref, {"type": "pong"})

    def gone(self, _session):
        self.left += 1


def sent(connection):
    """The frames that were written, taken out of their WebSocket frames."""
    data, found = connection.transport.written, []
    while data:
        size, at = data[1], 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        found.append(json.loads(data[at : at + size]))
        data = data[at + size :]
    return found


async def served(*frames, error=None):
    connection, handler = Connection(frames), Handler(error)
    session = Session(
        connection, JSON, handler, Flusher(), frames_per_second=1000, outbox_bytes=(2**20, 2**23)
    )
    await session.run()
    await settle()
    return connection, handler, sent(connection)


async def test_an_unexpected_error_is_told_with_its_incident_and_the_session_goes_on(capsys):
    leave, ping = '{"type":"leave","room":"blue","ref":"1"}', '{"type":"ping","ref":"2"}'
    connection, handler, said = await served(HELLO, leave, ping, error=KeyError("secret"))
    welcome, error, pong = said
    assert (welcome["type"], pong) == ("welcome", {"ref": "2", "type": "pong"})
    assert (error["type"], error["code"], error["ref"]) == ("error", "internal_error", "1")
    assert error["retryable"] is False
    assert "secret" not in error["message"]
    incident = error["message"].rstrip(".").split()[-1]
    logged = capsys.readouterr().out
    assert incident in logged
    assert "KeyError" in logged
    assert connection.closed is None
    assert handler.left == 1


@pytest.mark.parametrize("error", [Conflict("No."), Unavailable("Later.", retry_after_ms=700)])
async def test_a_refusal_is_told_in_its_own_words_and_not_logged(capsys, error):
    _, _, said = await served(HELLO, '{"type":"leave","room":"blue","ref":"1"}', error=error)
    wanted = {
        "ref": "1",
        "type": "error",
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
    }
    if error.retry_after_ms is not None:
        wanted["retryAfterMs"] = 700
    assert said[1] == wanted
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("between_s", "ends"), [(0.0, True), (0.49, True), (0.51, False)])
async def test_broken_frames_end_it_when_more_than_20_come_within_10_s(
    monkeypatch, between_s, ends
):
    assert (names.BAD_FRAMES_MAX, names.BAD_FRAMES_WINDOW_S) == (20, 10)
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def pass_time():
        now[0] += between_s

    bad = [step for _ in range(60) for step in ("nonsense", pass_time)]
    frames = bad[: 2 * 21] if ends else bad
    connection, _, said = await served(HELLO, *frames)
    errors = [frame for frame in said if frame["type"] == "error"]
    assert {error["code"] for error in errors} == {"bad_frame"}
    if ends:
        assert len(errors) == 21
        assert said[-1]["type"] == "bye"
        assert connection.closed[0] == CloseCode.BROKEN_FRAMES == 4502
    else:
        assert len(errors) == 60
        assert connection.closed is None
