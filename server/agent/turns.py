"""The agent of all rooms: one turn at a time in each, the rest waiting in order; asked, stopped,
decided by people. What a turn does is `loop`'s, how its events are stored `record`'s.
"""

import asyncio
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace

from protocol import commands
from protocol.errors import DuetError, LimitReached, Unavailable, UnknownRoom, UnknownTurn
from protocol.model import Participant
from server import logs
from server.agent.approval import Approval
from server.agent.briefing import briefing
from server.agent.floor import RoomFloor, decided_already
from server.agent.loop import Loop
from server.agent.models import Models
from server.agent.record import Record
from server.agent.turn import End, Turn, TurnOver
from server.agent.wanted import Limits
from server.hub import Hub
from server.records import sandbox_name
from server.room import Room, Tasks
from server.roomlog import Append

log = logs.get("agent")

WAITING_MAX = 50
"""Questions that may wait in a room: more than people will wait for."""
_DELIVERY_S = 30.0
_CLOSE_S = 2.0
_STORING_S = 1.0
HINT = (
    "I have no model yet, so I cannot answer. Whoever runs this server can give me one: set "
    "`DUET_AGENT_MODEL` (such as `openai:NAME` or `anthropic:NAME`) and `DUET_AGENT_API_KEY`, or "
    "`DUET_AGENT_BASE_URL` for a server that speaks OpenAI's API, or start it with "
    "`duet serve --agent local` to try a small model without a key. Everything else works."
)
NO_MODEL = End("failed", "No model is configured; DUET_AGENT_MODEL names one.")
RESTARTED = End("failed", "The server was restarted in the middle of this; ask again.")
STOPPING = End("failed", "The server is stopping; ask again when it is back.")
UNASKED = End("failed", "The history store did not answer in time; ask again.")
CLEARED = End("stopped", "The room was cleaned up.")


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What the settings say of the agent."""

    participant: Participant
    approval: Approval
    patterns: tuple[re.Pattern[str], ...]
    limits: Limits
    context_tokens: int


@dataclass(slots=True)
class _Line:
    """The turns of one room."""

    room: Room
    waiting: list[Turn] = field(default_factory=list)
    current: Turn | None = None
    worker: asyncio.Task[None] | None = None


class Agent:
    """The agent. With `models` None it only tells how to configure one."""

    def __init__(
        self, hub: Hub, record: Record, models: Models | None, config: AgentConfig, tasks: Tasks
    ) -> None:
        self.participant = config.participant
        self.enabled = models is not None
        self._hub = hub
        self._record = record
        self._models = models
        self._config = config
        self._tasks = tasks
        self._lines: dict[str, _Line] = {}
        self._turns: dict[str, Turn] = {}
        self._floor = RoomFloor(hub, record, config.approval)
        self._storing: dict[str, set[asyncio.Event]] = {}
        self._closing = False
        name = re.escape(config.participant.name)
        self._mention = re.compile(rf"(?<![\w@./-])@{name}(?![\w-])", re.IGNORECASE)

    # What people do

    def mentioned(self, text: str) -> bool:
        """Whether a message asks the agent: its @name stands in it, outside of code."""
        return self._mention.search(_CODE.sub(" ", text)) is not None

    async def ask(
        self,
        room_id: str,
        by: Participant,
        text: str,
        *,
        key: str | None = None,
        reply_to: str | None = None,
    ) -> str:
        """Ask it; the turn's id, the first one's where the key was used. Raises LimitReached."""
        if key is None and reply_to is None:
            self.check(room_id)
        if self._closing:
            raise _stopping()
        room = await self._hub.open(room_id)
        full = self._full(room_id)
        turn = Turn(room_id, by, text, reply_to, self._floor.say, tasks=self._tasks)
        stored = asyncio.Event()
        self._storing.setdefault(room_id, set()).add(stored)
        try:
            return await self._store(turn, room, key, full)
        finally:
            stored.set()
            self._storing[room_id].discard(stored)
            if not self._storing[room_id]:
                del self._storing[room_id]

    def check(self, room_id: str) -> None:
        """Raises LimitReached or Unavailable where no new question may be asked now."""
        if self._closing:
            raise _stopping()
        full = self._full(room_id)
        if full is not None:
            raise full

    def _full(self, room_id: str) -> LimitReached | None:
        """Why no further question may wait. What was asked before is answered even so."""
        line = self._lines.get(room_id)
        if (0 if line is None else len(line.waiting)) < WAITING_MAX:
            return None
        return LimitReached(f"{WAITING_MAX} questions wait here already; wait for an answer.")

    async def _store(
        self, turn: Turn, room: Room, key: str | None, full: LimitReached | None
    ) -> str:
        """Store that it was asked, and line it up; the id of the first with this key."""
        self._turns[turn.id] = room.turns[turn.id] = turn
        mention = turn.reply_to is not None and key is None
        question = self._record.question(turn, key, f"ask:{turn.reply_to}" if mention else None)
        question = replace(question, full=full)
        try:
            stored = await self._record.ask(turn.room, question)
        except BaseException as error:
            if isinstance(error, Unavailable | asyncio.CancelledError):
                # The answer is lost, not the question: what the log may hold must have its end.
                self._tasks.create_task(self._end_unasked(turn, room, question))
            else:
                self._forget(turn, room)
            raise
        if stored.answer != turn.id:
            self._forget(turn, room)
            return stored.answer
        turn.offset = stored.offset
        self._line_up(turn, room)
        return turn.id

    async def _end_unasked(self, turn: Turn, room: Room, question: Append) -> None:
        """Find out whether a question was stored after all, and tell that it gets no answer."""
        try:
            stored = await self._record.ask_again(turn.room, question)
        except DuetError:
            self._forget(turn, room)
            return
        if stored.answer != turn.id:
            self._forget(turn, room)
            return
        await self._finish(turn, room, turn.stop or UNASKED)

    def _line_up(self, turn: Turn, room: Room) -> None:
        """Let it wait at its place in the log's order; the line that was there may have ended."""
        line = self._lines.setdefault(room.id, _Line(room))
        line.room = room  # it may have been deleted and made again
        line.waiting.append(turn)
        line.waiting.sort(key=lambda waiting: waiting.offset)
        if line.worker is None:
            line.worker = self._tasks.create_task(self._serve(line))

    def stop(self, room_id: str, turn_id: str, by: Participant) -> None:
        """End a turn, waiting or at work. Raises UnknownTurn."""
        self._stop(self._find(room_id, turn_id), End("stopped", f"{by.name} stopped this."))

    async def decide(self, room_id: str, by: Participant, command: commands.AgentDecide) -> None:
        """Somebody's word on a wanted command; the first counts. Raises Conflict, UnknownTurn."""
        turn = self._find(room_id, command.turn)
        call = turn.find(command.call)
        if call is None or call.word is None:
            raise UnknownTurn("There is no such command to decide about in this turn.")
        if call.decided is not None or call.word.done():
            raise decided_already(call.decided)
        await self._floor.decided(turn, call, by, command.decision, command.note)

    async def wait(self, turn_id: str) -> Turn | None:
        """The turn once it is over; None for one that this server does not know (any more)."""
        turn = self._turns.get(turn_id)
        if turn is not None:
            await turn.over.wait()
        return turn

    async def stop_room(self, room_id: str) -> None:
        """End all turns of a room, and wait a little until their ends are stored."""
        turns = self._stop_line(room_id, CLEARED)
        if turns:
            over = [asyncio.ensure_future(turn.over.wait()) for turn in turns]
            _, late = await asyncio.wait(over, timeout=_CLOSE_S)
            for waiting in late:
                waiting.cancel()

    def facts(self, approval: Approval | None) -> dict[str, object]:
        """The agent as a room's facts have it."""
        chosen = approval or self._config.approval
        return {"enabled": self.enabled, "name": self.participant.name, "approval": chosen}

    # Life

    async def settle(self, room_id: str) -> None:
        """End what an earlier life of this server left open."""
        await self._record.settle(room_id, RESTARTED, ours=set(self._turns))

    async def close(self) -> None:
        """Stop all turns and wait, bounded, until their ends are stored."""
        self._closing = True
        workers = [line.worker for line in self._lines.values() if line.worker is not None]
        for room_id in list(self._lines):
            self._stop_line(room_id, STOPPING)
        if workers:
            await asyncio.wait(workers, timeout=_CLOSE_S)

    def _find(self, room_id: str, turn_id: str) -> Turn:
        turn = self._turns.get(turn_id)
        if turn is None or turn.room != room_id or turn.end is not None:
            raise UnknownTurn("There is no such turn of the agent, or it is over.")
        return turn

    def _stop_line(self, room_id: str, end: End) -> list[Turn]:
        line = self._lines.get(room_id)
        if line is None:
            return []
        turns = [*line.waiting, *([line.current] if line.current else [])]
        for turn in turns:
            self._stop(turn, end)
        return turns

    def _stop(self, turn: Turn, end: End) -> None:
        turn.stop = turn.stop or end
        if turn.task is not None:
            turn.task.cancel()
            return
        line = self._lines.get(turn.room)
        if line is not None and turn in line.waiting:
            line.waiting.remove(turn)
            self._tasks.create_task(self._finish(turn, line.room, turn.stop))

    # One room's turns

    async def _serve(self, line: _Line) -> None:
        """Turn after turn, in the order asked."""
        try:
            while line.waiting:
                await self._earlier_stored(line.room.id)
                if not line.waiting:
                    break
                line.current = line.waiting.pop(0)
                try:
                    await self._one(line.current, line.room)
                except Exception:  # the next question must not wait for this one's trouble
                    incident = secrets.token_hex(4)
                    log.exception("a turn was lost", turn=line.current.id, incident=incident)
                    self._forget(line.current, line.room)
                line.current = None
        finally:
            line.worker = None
            if not line.waiting:
                self._lines.pop(line.room.id, None)

    async def _earlier_stored(self, room_id: str) -> None:
        """Wait for questions that are being stored: one of them may stand before the first."""
        storing = [stored.wait() for stored in self._storing.get(room_id, ())]
        with suppress(TimeoutError):
            async with asyncio.timeout(_STORING_S):
                await asyncio.gather(*storing)

    async def _one(self, turn: Turn, room: Room) -> None:
        turn.status = "thinking"
        try:
            started = await self._record.started(turn)
        except UnknownRoom:
            self._forget(turn, room)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_DELIVERY_S):
                await room.reached(started.epoch, started.offset)
        if turn.stop is not None:
            await self._finish(turn, room, turn.stop)
            return
        turn.task = asyncio.ensure_future(self._answer(turn))
        try:
            with self._hub.manager.hold(sandbox_name(room.id), "turn"):
                await asyncio.wait([turn.task])
        finally:
            turn.task.cancel()
        await self._finish(turn, room, await _outcome(turn))

    async def _answer(self, turn: Turn) -> End:
        """Let the model answer; every end is one of these."""
        try:
            if self._models is None:
                turn.instead = HINT
                turn.answered = await self._record.hint(turn.room, turn.id, HINT)
                return NO_MODEL
            config = self._config
            approval = await self._floor.approval(turn.room)
            dialogue = await briefing(
                turn,
                self._models,
                self._hub,
                name=self.participant.name,
                approval=approval,
                context_tokens=config.context_tokens,
            )
            loop = Loop(turn, self._floor, self._models, config.limits, config.patterns)
            return await loop.run(dialogue)
        except TurnOver as over:
            return over.end
        except DuetError as error:
            return End("failed", error.message)
        except Exception:
            incident = secrets.token_hex(4)
            log.exception("a turn failed", room=turn.room, turn=turn.id, incident=incident)
            return End("failed", f"Something went wrong on the server; incident {incident}.")

    async def _finish(self, turn: Turn, room: Room, end: End) -> None:
        """Say the rest, store the words, store the end; then the turn is over."""
        turn.end = end
        finished = None
        try:
            text = await turn.speech.end()
            if room.deleted:  # nor may its words come up in another one of that name
                return
            if text.strip():
                partial = end.status != "done"
                said = await self._record.message(
                    turn.room, turn.id, text, reply_to=turn.reply_to, partial=partial
                )
                turn.answered = said.offset
            usage = turn.usage.wire() if turn.usage.steps else None
            finished = await self._record.finished(turn.room, turn.id, end, usage, here=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_DELIVERY_S):
                    if finished is not None:
                        await room.reached(finished.epoch, finished.offset)
        except DuetError as error:
            log.warning("a turn's end is not stored", turn=turn.id, error=error.message)
        finally:
            turn.finished = finished.offset if finished is not None else 0
            self._forget(turn, room)
        log.info("a turn ended", room=turn.room, turn=turn.id, status=end.status)

    def _forget(self, turn: Turn, room: Room) -> None:
        self._turns.pop(turn.id, None)
        room.turns.pop(turn.id, None)
        turn.over.set()
        line = self._lines.get(room.id)
        if line is not None and line.worker is None and not line.waiting:
            del self._lines[room.id]


_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)


def _stopping() -> Unavailable:
    return Unavailable("The server is stopping.", retry_after_ms=1000)


async def _outcome(turn: Turn) -> End:
    """How a turn's task ended; being cancelled is being stopped."""
    if turn.task is None:
        return STOPPING
    try:
        end = await turn.task
    except asyncio.CancelledError:
        return turn.stop or STOPPING
    return turn.stop if turn.stop is not None and end.status != "done" else end
