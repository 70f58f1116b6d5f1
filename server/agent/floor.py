"""The room as a turn uses it: its policy, its sandbox, its people, and what they see on the way.

`loop` knows this as its `Floor`; events and execs go through the log and the hub like everyone's.
"""

import asyncio
import time
from contextlib import suppress

from protocol import commands
from protocol.errors import Conflict, Unavailable
from protocol.model import Participant
from server.agent.approval import Approval
from server.agent.record import SERVER, Record
from server.agent.turn import Call, Decision, Turn, Word
from server.hub import Hub
from server.run import Run
from server.wire import Outgoing

_DECIDING_S = 0.05


class RoomFloor:
    """A `Floor` of loops for every room of the hub."""

    def __init__(self, hub: Hub, record: Record, approval: Approval) -> None:
        self._hub = hub
        self._record = record
        self._approval = approval

    async def approval(self, room: str) -> Approval:
        """The room's policy now, else the setting's."""
        facts = await self._hub.roomlog.room(room)
        return facts["approval"] or self._approval

    async def execute(self, turn: Turn, command: commands.Exec, at: int) -> Run:
        """Start a command of the agent's. Raises the contract's errors."""
        room = await self._hub.open(turn.room)
        place = (turn.id, at)
        _, run = await self._hub.execs.start(room, self._record.agent, command, turn=place)
        if run is None:
            raise Unavailable("The command was started and its result is not known here.")
        return run

    async def cancel(self, run: Run) -> None:
        await self._hub.execs.cancel(run.space, run.exec)

    # People

    async def ask_people(self, turn: Turn, call: Call) -> None:
        await self._record.approval(turn, call)

    async def refused(self, turn: Turn, call: Call, why: str) -> None:
        await self._record.refused(turn, call, why)

    async def no_answer(self, turn: Turn, call: Call) -> None:
        """Deny for want of an answer, unless one comes at this very moment."""
        while call.word is not None and not call.word.done():
            if call.decided is None:
                with suppress(Unavailable, Conflict):
                    await self.decided(turn, call, SERVER, "deny", "No answer in time.")
            await asyncio.sleep(_DECIDING_S)

    async def decided(
        self, turn: Turn, call: Call, by: Participant, decision: Decision, note: str | None
    ) -> None:
        """Take the word of somebody; the first that the log has counts. Raises Conflict.

        Where it is not known whether it is stored, whoever comes next finds out.
        """
        call.decided = by
        try:
            word = await self._record.decided(turn, call, Word(by=by, decision=decision, note=note))
        except BaseException:
            call.decided = None
            raise
        call.decided = word.by
        if call.word is not None and not call.word.done():
            call.word.set_result((word.decision, word.note))
        if (word.by.id, word.decision) != (by.id, decision):
            raise decided_already(word.by)

    # What is seen on the way

    async def say(self, turn: Turn, at: int, text: str) -> None:
        """Keep words, then send them to the members: they have them when this returns."""
        await self._record.say(turn, text)
        self._broadcast(turn, {"type": "agent.delta", "at": at, "text": text})

    def retry(self, turn: Turn, attempt: int, message: str, wait_s: float) -> None:
        fields = {"attempt": attempt, "message": message}
        retry_ts = int((time.time() + wait_s) * 1000)
        self._broadcast(turn, {"type": "agent.retry", **fields, "retryTs": retry_ts})

    def _broadcast(self, turn: Turn, fields: dict[str, object]) -> None:
        room = self._hub.rooms.get(turn.room)
        if room is not None:
            room.broadcast(Outgoing({**fields, "room": turn.room, "turn": turn.id}))


def decided_already(by: Participant | None) -> Conflict:
    """That somebody's word came too late."""
    who = "Somebody" if by is None else by.name
    return Conflict(f"{who} decided about this command already.")
