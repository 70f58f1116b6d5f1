"""A model that is fast, a room that is full: few frames, no word lost, the end last."""

import asyncio
import contextlib
import time

from tests.integration.agent.conftest import finished
from tests.integration.server.harness import JSON, MSGPACK

DELTAS, VIEWERS = 2_000, 50


async def test_2000_deltas_to_50_viewers_are_few_frames(house):
    gate = asyncio.Event()
    words = [f"w{n} " for n in range(DELTAS)]
    paced = [item for word in words for item in (word, None)]

    def answer(_messages, _info):
        return [gate, *paced]

    opened = await house(answer)
    room = await opened.new_room()
    async with contextlib.AsyncExitStack() as stack:
        viewers = []
        for number in range(VIEWERS):
            codec = (JSON, MSGPACK)[number % 2]
            viewer = await stack.enter_async_context(opened.client(codec, f"V{number}"))
            await viewer.join(room)
            viewers.append(viewer)
        turn = (await viewers[0].ok("ask", room=room, text="Q?"))["turn"]
        began = time.monotonic()
        gate.set()
        await asyncio.gather(*(finished(viewer, turn) for viewer in viewers))
        took_s = time.monotonic() - began
        for viewer in viewers:
            deltas = viewer.of("agent.delta")
            assert len(deltas) <= took_s / 0.050 + 2
            text = ""
            for delta in deltas:
                assert delta["at"] == len(text)
                text += delta["text"]
            assert text == "".join(words) == viewer.of("message")[0]["text"]
            order = [f["type"] for f in viewer.frames if f.get("turn") == turn and "ref" not in f]
            assert order[-2:] == ["message", "agent.finished"]
            assert set(order[2:-2]) == {"agent.delta"}
