"""A room for the loop alone: commands end as told, people decide as told; nothing is stored."""

import asyncio
import json

from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from protocol.model import Participant
from server.agent.approval import compiled
from server.agent.context import Spoken
from server.agent.loop import Loop
from server.agent.models import Dialogue, Models
from server.agent.turn import Turn, TurnOver
from server.agent.wanted import Limits

ALICE = Participant(id="p_a", name="Alice", kind="human")
LIMITS = Limits(steps=8, tokens=50_000, seconds=5.0, commands=8, approval_s=0.05)
OK = {"ok": True, "exitCode": 0, "durationMs": 1}


class Script:
    """Answers of the model: lists of deltas, events to wait for, and errors to raise."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, messages, info):
        self.asked.append((list(messages), info))
        for delta in self.answers.pop(0):
            if isinstance(delta, asyncio.Event):
                await delta.wait()
            elif isinstance(delta, BaseException):
                raise delta
            else:
                yield delta

    def told(self, index=-1):
        messages, _ = self.asked[index]
        return "\n".join(str(getattr(p, "content", "")) for m in messages for p in m.parts)


class Tasks:
    """Background work of the running loop, as a room has it."""

    def __init__(self):
        self.live = set()

    def create_task(self, coro):
        task = asyncio.get_running_loop().create_task(coro)
        self.live.add(task)
        task.add_done_callback(self.live.discard)
        return task


class FakeRun:
    def __init__(self, number, fields, stdout="", stderr=""):
        self.exec = f"room.{number}"
        self.done = asyncio.get_running_loop().create_future()
        self.fields = fields
        self.printed = {"stdout": stdout, "stderr": stderr}

    def texts(self, head=None, tail=0):
        return self.printed, {}


class Floor:
    """`results` are the ends of commands in order; `words` what people say to each approval."""

    def __init__(self, approval="auto", results=(), words=()):
        self.mode = approval
        self.results = list(results)
        self.words = list(words)
        self.ran, self.asked, self.cancelled, self.retries, self.deltas = [], [], [], [], []
        self.places, self.refusals = [], []
        self.started = asyncio.Event()

    async def say(self, _turn, at, text):
        self.deltas.append((at, text))

    async def approval(self, _room):
        return self.mode

    async def execute(self, turn, command, at):
        assert turn.speech.sent == turn.speech.size, "a command overtook its words"
        self.ran.append(command.command)
        self.places.append(at)
        fields, stdout, stderr = (*(self.results.pop(0) if self.results else (OK,)), "", "")[:3]
        if isinstance(fields, Exception):
            raise fields
        run = FakeRun(len(self.ran), fields, stdout, stderr)
        if fields is not None:
            run.done.set_result(fields)
        self.started.set()
        return run

    async def cancel(self, run):
        self.cancelled.append(run.exec)
        run.done.set_result({"ok": False, "reason": "cancelled", "message": "cancelled"})

    async def ask_people(self, _turn, call):
        self.asked.append(call.command)
        if self.words:
            word = self.words.pop(0)
            if word is not None:
                call.decided = ALICE
                call.word.set_result(word)

    async def refused(self, turn, call, why):
        assert turn.speech.sent == turn.speech.size, "a refusal overtook the words before it"
        self.refusals.append((call.command, why))
        self.places.append(call.at)

    async def no_answer(self, _turn, call):
        call.word.set_result(("deny", "No answer in time."))

    def retry(self, _turn, attempt, message, wait_s):
        self.retries.append((attempt, message, wait_s))


def call(command=None, *, tool="run", args=None, number=0):

    text = json.dumps({"command": command}) if args is None else args
    return {
        number: DeltaToolCall(name=tool, json_args=text, tool_call_id=f"call_{number}_{len(text)}")
    }


class Played:
    def __init__(self, turn, end, script, floor, text):
        self.turn, self.end, self.script, self.floor = turn, end, script, floor
        self.text = text


async def play(
    *answers, way="tags", floor=None, limits=LIMITS, patterns=(), question="?", models=None
):
    """Run one turn of a scripted model, or of `models`, to its end."""
    floor = floor or Floor()
    script = Script(*answers)
    turn = Turn("room", ALICE, question, None, floor.say, tasks=Tasks())
    models = models or Models(FunctionModel(stream_function=script), way=way, whole="nothing")
    dialogue = Dialogue.begin("rules", [Spoken("room", question)], native=way == "native")
    try:
        end = await Loop(turn, floor, models, limits, compiled(patterns)).run(dialogue)
    except TurnOver as over:
        end = over.end
    return Played(turn, end, script, floor, await turn.speech.end())
