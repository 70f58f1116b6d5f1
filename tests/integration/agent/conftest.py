"""A whole server in this process with a scripted model, and clients that talk to it by its port."""

import asyncio
import contextlib
import json

import pydantic_ai.models
import pytest
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from server.agent.models import Models
from server.app import running
from server.settings import Settings
from tests.integration.server import harness
from tests.integration.server.harness import JSON, MSGPACK, SANDBOX_S

pydantic_ai.models.ALLOW_MODEL_REQUESTS = False


class House(harness.Server):
    """Like the harness's server, but in this process: its model is a script of the test's."""

    def __init__(self, port, data_dir, app, script):
        self.port = port
        self.data_dir = data_dir
        self.app = app
        self.script = script


class Script:
    """What the model says: one item per answer, each a list of deltas, a function, or an error.

    A delta is a text, a dict of tool calls, an exception to raise, an event to wait for, or None
    for half a millisecond.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, messages, info):
        self.asked.append((list(messages), info))
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer(messages, info)
        for delta in answer:
            if isinstance(delta, asyncio.Event):
                await delta.wait()
            elif isinstance(delta, BaseException):
                raise delta
            elif delta is None:
                await asyncio.sleep(0.0005)  # the pace of a burst
            else:
                yield delta

    def told(self, index=-1):
        """All the text that the model was given with its answer number `index`."""
        messages, info = self.asked[index]
        parts = [str(getattr(part, "content", "")) for m in messages for part in m.parts]
        return "\n".join([info.instructions or "", *parts])


def call(command, *, tool="run", args=None):
    """A native call as a delta."""
    text = json.dumps({"command": command}) if args is None else args
    return {
        0: DeltaToolCall(name=tool, json_args=text, tool_call_id=f"call_{abs(hash(text)) % 10**9}")
    }


@pytest.fixture
async def house(tmp_path, monkeypatch):
    """Open houses: `await house(*answers, way="tags", **settings)`."""
    monkeypatch.chdir(tmp_path)
    async with contextlib.AsyncExitStack() as stack:

        async def begin(*answers, way="tags", models=True, data="data", **settings):
            script = Script(*answers)
            model = FunctionModel(stream_function=script)
            given = Models(model, way=way, whole="nothing") if models else None
            data_dir = tmp_path / data
            app = await stack.enter_async_context(
                running(Settings(port=0, data_dir=data_dir, **settings), given)
            )
            opened = House(app.port, data_dir, app, script)
            stack.callback(harness.remove_containers, opened)
            return opened

        yield begin


@contextlib.asynccontextmanager
async def two(house, room=None):
    room = room or await house.new_room()
    async with house.client(JSON, "Alice") as alice, house.client(MSGPACK, "Bob") as bob:
        await alice.join(room)
        await bob.join(room)
        yield room, alice, bob


async def finished(client, turn, limit_s=SANDBOX_S):
    return await client.until(
        lambda f: f["type"] == "agent.finished" and f["turn"] == turn, limit_s=limit_s
    )


def of_turn(client, turn):
    """The persisted events of a turn, live, in order."""
    return [f for f in client.frames if f.get("turn") == turn and "offset" in f and "by" in f]
