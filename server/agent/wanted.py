"""The commands that a turn wants: allowed or not, run in the room, their results for the model.

Every one is seen by people: those that run by their start, the others as asked for and denied.
What the model says around them is `loop`'s.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from protocol import commands
from protocol.errors import DuetError, Unavailable, UnknownRoom
from protocol.model import Participant
from server.agent.approval import Approval, verdict
from server.agent.context import note, result_text
from server.agent.models import Returned
from server.agent.small import small_result
from server.agent.turn import Call, Decision, End, Turn, TurnOver, shown_error, shown_output
from server.run import Run

KILL_S = 10.0
"""What a command gets to end after the turn was stopped; longer, and it ends without us."""
RESULT_HEAD_BYTES, RESULT_TAIL_BYTES = 3 * 1024, 5 * 1024
OFF = "Commands of the agent are off in this room."
_REPEATED_CALLS = 3
_MALFORMED_MAX = 3
_REFUSED_MAX = 3
"""Commands beyond a limit that people are shown: more would only fill the room."""


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
    async def execute(self, turn: Turn, command: commands.Exec, at: int) -> Run: ...
    async def cancel(self, run: Run) -> None: ...
    async def ask_people(self, turn: Turn, call: Call) -> None: ...
    async def no_answer(self, turn: Turn, call: Call) -> None: ...
    async def refused(self, turn: Turn, call: Call, why: str) -> None: ...
    def retry(self, turn: Turn, attempt: int, message: str, wait_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Want:
    """A command of an answer, native or tagged, or why it is none.

    `at` is its place: the code points of the turn's words before it.
    """

    command: str
    problem: str | None
    at: int
    call: tuple[str, str] | None = None


class Clock:
    """A turn's time, which stands still while people decide."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within, the time goes by; at its end TurnOver is raised."""
        try:
            async with asyncio.timeout(self._seconds) as self._timeout:
                yield
        except TimeoutError:
            if self._timeout is None or not self._timeout.expired():
                raise
            raise at_limit(f"its time, {self._seconds:g} seconds", "SECONDS") from None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within, it does not."""
        timeout = self._timeout
        if timeout is None or (when := timeout.when()) is None:
            yield
            return
        loop = asyncio.get_running_loop()
        left_s = when - loop.time()
        timeout.reschedule(None)
        try:
            yield
        finally:
            timeout.reschedule(loop.time() + left_s)


class Wanted:
    """Runs what one turn wants. `small` tells that the model follows no rules (see `small`)."""

    def __init__(
        self,
        turn: Turn,
        floor: Floor,
        limits: Limits,
        patterns: Sequence[re.Pattern[str]],
        *,
        clock: Clock,
        small: bool,
    ) -> None:
        self._turn = turn
        self._floor = floor
        self._limits = limits
        self._patterns = patterns
        self._clock = clock
        self._small = small
        self._results: list[tuple[str, str]] = []
        self._malformed = 0
        self._tried = 0

    async def run(self, wants: Sequence[Want]) -> list[Returned]:
        """All that one answer wants, in order. Raises TurnOver at the limit of commands."""
        returned: list[Returned] = []
        for number, want in enumerate(wants):
            command = _command(self._turn.room, want)
            if isinstance(command, str):
                returned.append(self._broken(want, command))
                continue
            if self._tried >= self._limits.commands:
                over = at_limit(counted(self._limits.commands, "command"), "COMMANDS")
                await self.refuse(wants[number:], over)
                raise over
            self._malformed = 0
            self._tried += 1
            text = await self._decide_and_run(command, want.at)
            self._check_repeated(want.command, text)
            returned.append(Returned(text, want.call))
        return returned

    async def refuse(self, wants: Sequence[Want], over: TurnOver) -> None:
        """Show the commands of an answer that a limit keeps from running."""
        checked = [(_command(self._turn.room, want), want.at) for want in wants]
        fine = [(command, at) for command, at in checked if not isinstance(command, str)]
        for command, at in fine[:_REFUSED_MAX]:
            await self._refused(self._call(command, at), over.end.message or "")

    def note(self, text: str) -> str:
        """What the server itself tells the model."""
        return text if self._small else note(self._turn.nonce, text)

    def _broken(self, want: Want, problem: str) -> Returned:
        self._malformed += 1
        if self._malformed >= _MALFORMED_MAX:
            message = f"The model asks for commands in a way that cannot be run: {problem}."
            raise TurnOver(End("failed", message))
        return Returned(self.note(f"not run: {problem}"), want.call)

    def _call(self, command: commands.Exec, at: int) -> Call:
        call = Call(command.command or "", at)
        self._turn.calls.append(call)
        return call

    async def _decide_and_run(self, command: commands.Exec, at: int) -> str:
        turn = self._turn
        approval = await self._floor.approval(turn.room)
        call = self._call(command, at)
        said = verdict(call.command, approval, self._patterns, always=turn.always)
        if said == "refuse":
            return await self._off(call)
        if said == "ask":
            decision, words = await self._people(call)
            if decision == "deny":
                return self._denied(call, f"denied by {_name(call.decided)}", words)
            if await self._floor.approval(turn.room) == "off":  # switched while people decided
                return await self._off(self._call(command, at))
        return await self._execute(call, command)

    async def _off(self, call: Call) -> str:
        await self._refused(call, OFF)
        return self.note("not run, commands of the agent are off in this room")

    def _denied(self, call: Call, why: str, words: str | None) -> str:
        call.status = "denied"
        call.output = shown_error(call.command, f"{why}: {words}" if words else why)
        return self.note(f"not run, {why}; their words: {words}" if words else f"not run, {why}")

    async def _refused(self, call: Call, why: str) -> None:
        """Show a command that nobody was asked about and that does not run."""
        call.status = "denied"
        call.output = shown_error(call.command, why)
        await self._turn.speech.flush()
        await self._floor.refused(self._turn, call, why)

    async def _people(self, call: Call) -> tuple[Decision, str | None]:
        """Somebody's word on a command; none in time is a denial. The turn's clock stands still."""
        turn = self._turn
        call.status, turn.status = "approval", "approval"
        call.word = asyncio.get_running_loop().create_future()
        call.expires_ts = int((time.time() + self._limits.approval_s) * 1000)
        with self._clock.stopped():
            await turn.speech.flush()  # the question must not overtake the words before it
            await self._floor.ask_people(turn, call)
            await asyncio.wait([call.word], timeout=self._limits.approval_s)
            if not call.word.done():
                await self._floor.no_answer(turn, call)
            decision, words = await call.word
        turn.always = turn.always or decision == "always"
        return decision, words

    async def _execute(self, call: Call, command: commands.Exec) -> str:
        turn = self._turn
        call.status, turn.status = "running", "running"
        await turn.speech.flush()
        try:
            run = await self._floor.execute(turn, command, call.at)
        except DuetError as error:
            await self._not_started(call, command, error)
            return self.note(f"not run: {error.message}")
        turn.usage.commands += 1
        call.exec = run.exec
        fields = await self._ended(run)
        call.status, turn.status = "done", "thinking"
        texts, _ = run.texts()
        call.output = shown_output(call.command, fields, texts)
        short, _ = run.texts(RESULT_HEAD_BYTES, RESULT_TAIL_BYTES)
        if self._small:
            return small_result(call.command, short)
        return result_text(call.command, fields, short, nonce=turn.nonce)

    async def _not_started(self, call: Call, command: commands.Exec, error: DuetError) -> None:
        """Show that it was refused, unless its own end does so or there is no room to show it in.

        What was allowed keeps its answer; that it did not run is a call of its own.
        """
        call.status = "done"
        if isinstance(error, Unavailable | UnknownRoom):
            call.output = shown_error(call.command, error.message)
            return
        shown = call if call.decided is None else self._call(command, call.at)
        await self._refused(shown, error.message)

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
            raise TurnOver(End("failed", f"{message}; it goes in circles."))


def at_limit(what: str, setting: str) -> TurnOver:
    """The end of a turn at one of its limits, which it names."""
    return TurnOver(End("limit", f"The turn reached {what} (DUET_AGENT_MAX_{setting})."))


def counted(number: int, what: str) -> str:
    """A limit in words."""
    return f"its one {what}" if number == 1 else f"its {number} {what}s"


def _command(room: str, want: Want) -> commands.Exec | str:
    """The wanted command as everyone's is checked, or what is wrong with it."""
    if want.problem is not None:
        return want.problem
    try:
        return commands.Exec(room=room, command=want.command)
    except ValidationError as error:
        return "; ".join(str(item["msg"]) for item in error.errors())


def _name(who: Participant | None) -> str:
    return "nobody's answer in time" if who is None else who.name
