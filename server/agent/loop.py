"""The loop of one turn: ask the model, show its words, run what it wants, give back the result.

It ends by returning (done) or by `TurnOver`; who stores the end and who waits is `turns`'s.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing

from protocol import names
from server import logs
from server.agent.context import BYTES_PER_TOKEN
from server.agent.models import Answer, Dialogue, ModelError, Models, Returned
from server.agent.speech import Clean, repeats
from server.agent.tags import TagParser
from server.agent.tags import Wanted as Tagged
from server.agent.turn import End, Turn, TurnOver
from server.agent.wanted import Clock, Floor, Limits, Want, Wanted, at_limit, counted

log = logs.get("agent")

TRIES = 4
BACKOFF_S = 1.0
BACKOFF_MAX_S = 30.0
_CHECK_CHARS = 256
_APART = "\n\n"
"""Between the words of two answers."""


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
        self._clock = Clock(limits.seconds)
        self._wanted = Wanted(turn, floor, limits, patterns, clock=self._clock, small=models.small)
        self._parser = TagParser()
        self._tagged: list[tuple[Tagged, int]] = []
        self._got_bytes = 0
        self._short = False
        """The present answer may be no longer than the turn's tokens that are left."""

    async def run(self, dialogue: Dialogue) -> End:
        """Until the model is done. Raises TurnOver."""
        async with self._clock.running():
            return await self._steps(dialogue)

    async def _steps(self, dialogue: Dialogue) -> End:
        nudged = said = False
        while True:
            answer, spoke = await self._answer(dialogue)
            said = said or spoke
            wants = self._wants(answer)
            over = self._at_its_length(answer)
            if over is not None:
                await self._wanted.refuse(wants, over)
                raise over
            if wants:
                dialogue.answered(answer, await self._wanted.run(wants))
            elif spoke or (nudged and said):
                return End("done")
            elif nudged:
                raise _failed(
                    "The model gave an empty answer, twice. Ask again, or in other words."
                )
            else:
                nudged = True
                note = self._wanted.note("your answer was empty; please answer")
                dialogue.answered(answer, [Returned(note)])

    # The model

    async def _answer(self, dialogue: Dialogue) -> tuple[Answer, bool]:
        """One answer of the model; its words are said on the way. Whether it said anything."""
        usage, limits = self._turn.usage, self._limits
        if usage.steps >= limits.steps:
            raise at_limit(counted(limits.steps, "step"), "STEPS")
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
        self._got_bytes = 0
        try:
            answer, spoke = await self._listen(dialogue)
        except BaseException:
            if self._got_bytes:  # its provider has not told what it cost
                usage = self._turn.usage
                usage.input_tokens += dialogue.tokens()
                usage.output_tokens += self._got_bytes // BYTES_PER_TOKEN
            raise
        return self._spent(answer), spoke

    async def _listen(self, dialogue: Dialogue) -> tuple[Answer, bool]:
        turn = self._turn
        turn.status = "thinking"
        left = self._limits.tokens - turn.usage.tokens - dialogue.tokens()
        if left <= 0:
            raise self._too_many_tokens()
        self._parser = TagParser()
        self._tagged = []
        said = _Said(turn)
        cleaned = Clean(keep_nul=True)
        self._short = left < self._models.answer_tokens
        allowed = min(self._models.answer_tokens, left)
        stream = self._models.ask(dialogue, allowed)
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Answer):
                    said.add(self._parser.end() if self._models.way == "tags" else "")
                    self._tagged = [(tag, said.place(tag.at)) for tag in self._parser.wanted]
                    return event, said.spoke
                self._got_bytes += len(event.text.encode("utf-8", "surrogatepass"))
                said.add(self._shown(cleaned.feed(event.text)))
                if self._got_bytes > (allowed + 1) * BYTES_PER_TOKEN * 2:
                    raise self._cut()
        raise ModelError("The model's answer broke off.")

    def _shown(self, delta: str) -> str:
        text = self._parser.feed(delta) if self._models.way == "tags" else delta
        return text.replace("\0", "")

    def _spent(self, answer: Answer) -> Answer:
        usage = self._turn.usage
        usage.input_tokens += answer.input_tokens
        usage.output_tokens += answer.output_tokens
        if answer.refused:
            raise _failed("The model's provider filtered the answer.")
        return answer

    def _at_its_length(self, answer: Answer) -> TurnOver | None:
        """The limit that an answer has reached, of the turn's tokens or its own."""
        if self._turn.usage.tokens > self._limits.tokens:
            return self._too_many_tokens()
        return self._cut() if answer.cut else None

    def _cut(self) -> TurnOver:
        if self._short:
            return self._too_many_tokens()
        return TurnOver(End("limit", "The model's answer was cut at its longest length."))

    def _too_many_tokens(self) -> TurnOver:
        return at_limit(f"its {self._limits.tokens} tokens", "TOKENS")

    def _wants(self, answer: Answer) -> list[Want]:
        """What an answer wants: its tags where they stood, its native calls after its words."""
        tagged = [Want(want.command, want.problem, at) for want, at in self._tagged]
        native = [
            Want(called.command or "", called.problem, self._turn.speech.size, call)
            for called in answer.calls
            for call in ((called.id, called.tool),)
        ]
        return tagged + native


class _Said:
    """What one answer adds to the turn's words: set apart from those before, within the limits."""

    def __init__(self, turn: Turn) -> None:
        self._speech = turn.speech
        self._before = self._start = turn.speech.size
        self._dropped = 0
        self._apart = turn.speech.size > 0
        self._text = ""
        self.spoke = False
        self._next_check = _CHECK_CHARS

    def place(self, at: int) -> int:
        """Where in the turn's words the answer's own place `at` is, in code points."""
        return self._before if at <= self._dropped else self._start + at - self._dropped

    def add(self, text: str) -> None:
        if self._apart:
            stripped = text.lstrip()
            self._dropped += len(text) - len(stripped)
            text = stripped
        if not text:
            return
        apart = _APART if self._apart else ""
        room = max(0, names.TEXT_CHARS - self._speech.size - len(apart))
        if apart and room:
            self._apart = False
            self._speech.add(apart)
            self._start = self._speech.size
        self.spoke = self.spoke or not text.isspace()
        self._speech.add(text[:room])
        if len(text) > room:
            message = f"The answer reached the {names.TEXT_CHARS} characters of a message."
            raise TurnOver(End("limit", message))
        self._text += text
        if len(self._text) >= self._next_check:
            self._next_check += _CHECK_CHARS
            if repeats(self._text):
                raise _failed("The model repeats itself, so it was stopped.")


def _failed(message: str) -> TurnOver:
    return TurnOver(End("failed", message))


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
