"""The loop of one turn: ask the model, show its words, run what it wants, give back the result.

It ends by returning (done) or by `TurnOver`; who stores the end and who waits is `turns`'s.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from protocol import commands, names
from protocol.errors import DuetError
from protocol.model import Participant
from server import logs
from server.agent.approval import Approval, verdict
from server.agent.context import CHARS_PER_TOKEN, note, result_text
from server.agent.models import Answer, Dialogue, ModelError, Models, Returned
from server.agent.small import small_result
from server.agent.speech import clean, repeats
from server.agent.tags import TagParser
from server.agent.turn import Call, Decision, End, Turn, TurnOver, shown_error, shown_output
from server.run import Run

log = logs.get("agent")

TRIES = 4
BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0
KILL_S = 10.0
"""What a command gets to end after the turn was stopped; longer, and it ends without us."""
RESULT_HEAD_BYTES, RESULT_TAIL_BYTES = 3 * 1024, 5 * 1024
_REPEATED_CALLS = 3
_MALFORMED_MAX = 3
_CHECK_CHARS = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """What one turn may take; a decision of people does not count into `seconds`."""

    steps: int
    tokens: int
    seconds: float
    commands: int
    approval_s: float


class Floor(Protocol):
    """The room, as a turn uses it."""

    async def approval(self, room: str) -> Approval: ...
    async def execute(self, turn: Turn, command: commands.Exec) -> Run: ...
    async def cancel(self, run: Run) -> None: ...
    async def ask_people(self, turn: Turn, call: Call) -> None: ...
    async def no_answer(self, turn: Turn, call: Call) -> None: ...
    def retry(self, turn: Turn, attempt: int, message: str, wait_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _Want:
    """A command of an answer, native or tagged, or why it is none."""

    command: str
    problem: str | None
    call: tuple[str, str] | None = None


class Loop:
    """One turn at work."""

    def __init__(
        self,
        turn: Turn,
        floor: Floor,
        models: Models,
        limits: Limits,
        patterns: Sequence[re.Pattern[str]],
    ) -> None:
        self._turn = turn
        self._floor = floor
        self._models = models
        self._limits = limits
        self._patterns = patterns
        self._clock: asyncio.Timeout | None = None
        self._results: list[tuple[str, str]] = []
        self._malformed = 0
        self._parser = TagParser()

    async def run(self, dialogue: Dialogue) -> End:
        """Until the model is done. Raises TurnOver."""
        try:
            async with asyncio.timeout(self._limits.seconds) as self._clock:
                return await self._steps(dialogue)
        except TimeoutError:
            if self._clock is None or not self._clock.expired():
                raise
            raise _limit(f"its time, {self._limits.seconds:g} seconds", "SECONDS") from None

    async def _steps(self, dialogue: Dialogue) -> End:
        nudged = said = False
        while True:
            answer, spoke = await self._answer(dialogue)
            said = said or spoke
            wants = self._wants(answer)
            if wants:
                returned = [await self._want(want) for want in wants]
                dialogue.answered(answer, returned)
            elif spoke or (nudged and said):
                return End("done")
            elif nudged:
                raise _failed(
                    "The model gave an empty answer, twice. Ask again, or in other words."
                )
            else:
                nudged = True
                dialogue.answered(
                    answer, [Returned(self._note("your answer was empty; please answer"))]
                )

    # The model

    async def _answer(self, dialogue: Dialogue) -> tuple[Answer, bool]:
        """One answer of the model; its words are said on the way. Whether it said anything."""
        usage, limits = self._turn.usage, self._limits
        if usage.steps >= limits.steps:
            raise _limit(f"its {limits.steps} steps", "STEPS")
        usage.steps += 1
        for attempt in range(1, TRIES + 1):
            before = self._turn.speech.size
            try:
                return await self._stream(dialogue)
            except ModelError as error:
                said = self._turn.speech.size > before
                wait_s = _wait_s(error, attempt)
                if said or wait_s is None:
                    raise _failed(_broken(error, said=said)) from error
                await self._wait(error, attempt, wait_s)
        raise AssertionError("the last try raises")

    async def _wait(self, error: ModelError, attempt: int, wait_s: float) -> None:
        log.info("the model is asked again", turn=self._turn.id, error=error.message)
        self._turn.status = "retrying"
        message = f"{error.message} Trying again in {wait_s:.0f} s."
        self._floor.retry(self._turn, attempt, message, wait_s)
        await asyncio.sleep(wait_s)

    async def _stream(self, dialogue: Dialogue) -> tuple[Answer, bool]:
        turn = self._turn
        turn.status = "thinking"
        left = self._limits.tokens - turn.usage.tokens - dialogue.tokens()
        if left <= 0:
            raise _limit(f"its {self._limits.tokens} tokens", "TOKENS")
        self._parser = TagParser()
        said = _Said(turn)
        got = 0
        stream = self._models.ask(dialogue, min(self._models.answer_tokens, left))
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Answer):
                    said.add(self._parser.end() if self._models.way == "tags" else "")
                    return self._spent(event), said.spoke
                got += len(event.text)
                said.add(self._shown(event.text))
                if got > (left + 1) * CHARS_PER_TOKEN * 2:
                    raise _limit(f"its {self._limits.tokens} tokens", "TOKENS")
        raise ModelError("The model's answer broke off.")

    def _shown(self, delta: str) -> str:
        return self._parser.feed(delta) if self._models.way == "tags" else delta

    def _spent(self, answer: Answer) -> Answer:
        usage = self._turn.usage
        usage.input_tokens += answer.input_tokens
        usage.output_tokens += answer.output_tokens
        if answer.refused:
            raise _failed("The model's provider filtered the answer.")
        if answer.cut:
            raise TurnOver(End("limit", "The model's answer was cut at its longest length."))
        if usage.tokens > self._limits.tokens:
            raise _limit(f"its {self._limits.tokens} tokens", "TOKENS")
        return answer

    # What it wants

    def _wants(self, answer: Answer) -> list[_Want]:
        tagged = [_Want(want.command, want.problem) for want in self._parser.wanted]
        native = [
            _Want(called.command or "", called.problem, (called.id, called.tool))
            for called in answer.calls
        ]
        return tagged + native

    async def _want(self, want: _Want) -> Returned:
        """Run one wanted command, or say why not."""
        command = _command(self._turn.room, want)
        if isinstance(command, str):
            self._malformed += 1
            if self._malformed >= _MALFORMED_MAX:
                message = f"The model asks for commands in a way that cannot be run: {command}."
                raise _failed(message)
            return Returned(self._note(f"not run: {command}"), want.call)
        self._malformed = 0
        text = await self._decide_and_run(command)
        self._check_repeated(want.command, text)
        return Returned(text, want.call)

    async def _decide_and_run(self, command: commands.Exec) -> str:
        turn = self._turn
        if turn.usage.commands >= self._limits.commands:
            raise _limit(f"its {self._limits.commands} commands", "COMMANDS")
        turn.usage.commands += 1
        approval = await self._floor.approval(turn.room)
        wanted = command.command or ""
        call = Call(wanted)
        turn.calls.append(call)
        said = verdict(wanted, approval, self._patterns, always=turn.always)
        if said == "refuse":
            return self._denied(call, "commands of the agent are off in this room")
        if said == "ask":
            decision, words = await self._people(call)
            if decision == "deny":
                return self._denied(call, f"denied by {_name(call.decided)}", words)
        return await self._execute(call, command)

    def _denied(self, call: Call, why: str, words: str | None = None) -> str:
        call.status = "denied"
        call.output = shown_error(call.command, f"{why}: {words}" if words else why)
        return self._note(f"not run, {why}; their words: {words}" if words else f"not run, {why}")

    def _note(self, text: str) -> str:
        return text if self._models.small else note(self._turn.nonce, text)

    async def _people(self, call: Call) -> tuple[Decision, str | None]:
        """Somebody's word on a command; none in time is a denial. The turn's clock stands still."""
        turn = self._turn
        call.status, turn.status = "approval", "approval"
        call.word = asyncio.get_running_loop().create_future()
        call.expires_ts = int((time.time() + self._limits.approval_s) * 1000)
        left_s = self._stop_clock()
        await turn.speech.flush()  # the question must not overtake the words before it
        await self._floor.ask_people(turn, call)
        await asyncio.wait([call.word], timeout=self._limits.approval_s)
        if not call.word.done():
            await self._floor.no_answer(turn, call)
        decision, words = await call.word
        self._start_clock(left_s)
        turn.always = turn.always or decision == "always"
        return decision, words

    def _stop_clock(self) -> float:
        if self._clock is None or (when := self._clock.when()) is None:
            return self._limits.seconds
        self._clock.reschedule(None)
        return when - asyncio.get_running_loop().time()

    def _start_clock(self, left_s: float) -> None:
        if self._clock is not None:
            self._clock.reschedule(asyncio.get_running_loop().time() + left_s)

    async def _execute(self, call: Call, command: commands.Exec) -> str:
        turn = self._turn
        call.status, turn.status = "running", "running"
        await turn.speech.flush()
        try:
            run = await self._floor.execute(turn, command)
        except DuetError as error:
            call.status = "done"
            call.output = shown_error(call.command, error.message)
            return self._note(f"not run: {error.message}")
        call.exec = run.exec
        fields = await self._ended(run)
        call.status, turn.status = "done", "thinking"
        texts, _ = run.texts()
        call.output = shown_output(call.command, fields, texts)
        short, _ = run.texts(RESULT_HEAD_BYTES, RESULT_TAIL_BYTES)
        if self._models.small:
            return small_result(call.command, short)
        return result_text(call.command, fields, short, nonce=turn.nonce)

    async def _ended(self, run: Run) -> dict[str, Any]:
        """The command's end; when the turn is stopped, the command is stopped first."""
        try:
            return await asyncio.shield(run.done)
        except asyncio.CancelledError:
            await self._floor.cancel(run)
            await asyncio.wait([run.done], timeout=KILL_S)
            raise

    def _check_repeated(self, command: str, text: str) -> None:
        self._results.append((command, text))
        last = self._results[-_REPEATED_CALLS:]
        if len(last) == _REPEATED_CALLS and len(set(last)) == 1:
            message = f"The model ran the same command {_REPEATED_CALLS} times with the same result"
            raise _failed(f"{message}; it goes in circles.")


class _Said:
    """What one answer adds to the turn's words: set apart from those before, within the limits."""

    def __init__(self, turn: Turn) -> None:
        self._speech = turn.speech
        self._apart = turn.speech.size > 0
        self._text = ""
        self.spoke = False
        self._next_check = _CHECK_CHARS

    def add(self, text: str) -> None:
        if self._apart:
            text = text.lstrip()
        if not text:
            return
        if self._apart:
            self._apart = False
            self._speech.add("\n\n")
        self.spoke = self.spoke or not text.isspace()
        room = max(0, names.TEXT_CHARS - self._speech.size)
        self._speech.add(text[:room])
        if len(text) > room:
            message = f"The answer reached the {names.TEXT_CHARS} characters of a message."
            raise TurnOver(End("limit", message))
        self._text += text
        if len(self._text) >= self._next_check:
            self._next_check += _CHECK_CHARS
            if repeats(self._text):
                raise _failed("The model repeats itself, so it was stopped.")


def _command(room: str, want: _Want) -> commands.Exec | str:
    """The wanted command as everyone's is checked, or what is wrong with it."""
    if want.problem is not None:
        return want.problem
    try:
        return commands.Exec(room=room, command=clean(want.command))
    except ValidationError as error:
        return "; ".join(str(item["msg"]) for item in error.errors())


def _name(who: Participant | None) -> str:
    return "nobody's answer in time" if who is None else who.name


def _failed(message: str) -> TurnOver:
    return TurnOver(End("failed", message))


def _limit(what: str, setting: str) -> TurnOver:
    return TurnOver(End("limit", f"The turn reached {what} (DUET_AGENT_MAX_{setting})."))


def _broken(error: ModelError, *, said: bool) -> str:
    if not said:
        return error.message
    return f"The answer broke off in the middle; what was said is kept. {error.message}"


def _wait_s(error: ModelError, attempt: int) -> float | None:
    """How long to wait before the next try; None where there is none."""
    if not error.retryable or attempt >= TRIES:
        return None
    wait_s = BACKOFF_S * 2 ** (attempt - 1) if error.retry_after_s is None else error.retry_after_s
    return wait_s if wait_s <= BACKOFF_MAX_S else None
