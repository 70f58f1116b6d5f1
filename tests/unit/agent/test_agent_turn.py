"""A turn as who joins sees it fits its frame, however much was asked and run."""

import json

from protocol import names
from server.agent.turn import Call, Turn
from tests.unit.agent.floor import ALICE, Tasks


async def said(*_):
    """Words that are kept and shown at once."""


async def test_many_long_turns_fit_the_frame_of_joined():
    turns = [
        Turn("room", ALICE, "\U0001f389" * names.TEXT_CHARS, f"m_{n}", said, tasks=Tasks())
        for n in range(51)
    ]
    first = turns[0]
    first.speech.add("é" * names.TEXT_CHARS)
    await first.speech.flush()
    first.calls = [Call("x" * names.COMMAND_BYTES, status="done") for _ in range(20)]
    pending = Call("y" * names.COMMAND_BYTES, status="approval")
    first.calls.append(pending)
    views = [turn.view() for turn in turns]
    size = len(json.dumps(views, ensure_ascii=False).encode())
    assert size < names.SERVER_FRAME_BYTES - 100 * 1024
    assert views[0]["calls"][-1]["command"] == pending.command
    assert views[0]["text"] == "é" * names.TEXT_CHARS
