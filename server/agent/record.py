"""The agent's events in the room log, each stored exactly once; the words so far beside it.

An append is sent again with the same key until the log has taken it or its room is gone.
"""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

from protocol.errors import KeyConflict, Unavailable, UnknownRoom, UnknownTurn
from protocol.model import Participant
from server import logs
from server.agent.turn import Call, End, Turn, Word
from server.roomlog import CLIENT_KEY_MS, Append, Appended, RoomLog, new_id
from server.running import author

log = logs.get("agent")

_RETRY_MIN_S, _RETRY_MAX_S = 0.2, 2.0
SERVER = Participant(id="server", name="Duet", kind="bot")


class Record:
    """Appends for one agent participant. `server` tells whose turns are whose in a shared Redis."""

    def __init__(self, roomlog: RoomLog, agent: Participant, server: str) -> None:
        self.agent = agent
        self._roomlog = roomlog
        self._server = server

    def question(self, turn: Turn, key: str | None, once: str | None) -> Append:
        """That a turn is asked for. The answer is the first one's, where the key was used."""
        body = _body("agent.queued", turn, turn.by, question=turn.question, replyTo=turn.reply_to)
        facts = {"server": self._server, "by": author(turn.by), "replyTo": turn.reply_to}
        question = Append(
            body if key is None else {**body, "key": key},
            content={"type": "ask", "text": turn.question},
            key=key,
            answer=turn.id,
            op="ask",
            subject=turn.id,
            value=json.dumps(facts),
        )
        if once is None:
            return question
        # The message may be said again with its key as long as that is kept.
        return replace(question, server_key=once, server_key_ms=CLIENT_KEY_MS)

    async def ask(self, room: str, question: Append) -> Appended:
        """Store a question. Raises Unavailable where it is not known whether it is stored."""
        return await self._roomlog.append(room, question)

    async def ask_again(self, room: str, question: Append) -> Appended:
        """The same, until it is known."""
        return await self._append(room, question)

    async def started(self, turn: Turn) -> Appended:
        body = _body("agent.started", turn, turn.by, question=turn.question, replyTo=turn.reply_to)
        return await self._append(turn.room, Append(body))

    async def approval(self, turn: Turn, call: Call) -> Appended:
        fields = {"call": call.call, "command": call.command, "at": call.at}
        fields["expiresTs"] = call.expires_ts
        return await self._append(
            turn.room, Append(_body("agent.approval", turn, self.agent, **fields))
        )

    async def decided(self, turn: Turn, call: Call, word: Word) -> Word:
        """Store somebody's word on a command; the first that the log has, which may be another's.

        Raises Unavailable where it is not known whether it is stored.
        """
        fields = {"call": call.call, "decision": word.decision, "note": word.note}
        append = Append(
            _body("agent.decided", turn, word.by, **fields),
            content={},
            answer=word.model_dump_json(),
            server_key=f"decided:{call.call}",
        )
        stored = await self._roomlog.append(turn.room, append)
        return Word.model_validate_json(stored.answer)

    async def refused(self, turn: Turn, call: Call, why: str) -> None:
        """Store that a command was wanted and does not run, which nobody was asked about."""
        call.expires_ts = int(time.time() * 1000)
        await self.approval(turn, call)
        body = _body("agent.decided", turn, SERVER, call=call.call, decision="deny", note=why)
        await self._append(turn.room, Append(body))

    async def message(
        self, room: str, turn: str, text: str, *, reply_to: str | None, partial: bool
    ) -> Appended:
        """Store the turn's words, once."""
        body: dict[str, Any] = {
            "type": "message",
            "room": room,
            "by": author(self.agent),
            "id": f"m_{turn}",
            "text": text,
            "turn": turn,
        }
        body |= {"replyTo": reply_to} if reply_to is not None else {}
        body |= {"partial": True} if partial else {}
        message = body["id"]
        append = Append(
            body,
            answer=message,
            op="message",
            subject=message,
            value=turn,
            server_key=f"said:{turn}",
        )
        return await self._append(room, append)

    async def hint(self, room: str, turn: str, text: str) -> int:
        """Say how to configure the agent, once a day in a room. Where it stands, 0 if unknown."""
        message = new_id("m")
        body = {"type": "message", "room": room, "by": author(self.agent), "id": message}
        append = Append(
            {**body, "text": text, "turn": turn},
            content={"text": text},
            key="agent:hint",
            answer=message,
            op="message",
            subject=message,
        )
        try:
            return (await self._append(room, append)).offset
        except KeyConflict:  # another version's words, today
            return 0

    async def finished(
        self, room: str, turn: str, end: End, usage: dict[str, int] | None, *, here: bool
    ) -> Appended | None:
        """Store a turn's one end. None where the room is gone or another end is stored.

        A turn that is at work `here` has its end also where the store has lost that it began.
        """
        body: dict[str, Any] = {
            "type": "agent.finished",
            "room": room,
            "by": author(self.agent),
            "turn": turn,
            "status": end.status,
        }
        body |= {"message": end.message} if end.message is not None else {}
        body |= {"usage": usage} if usage is not None else {}
        append = Append(body, op="finish", subject=turn, server_key=f"finished:{turn}")
        try:
            return await self._append(room, append)
        except UnknownTurn:
            return await self._append(room, replace(append, op="")) if here else None
        except (UnknownRoom, KeyConflict):
            return None

    async def _append(self, room: str, append: Append) -> Appended:
        wait_s = _RETRY_MIN_S
        while True:
            try:
                return await self._roomlog.append(room, append)
            except Unavailable as error:
                log.warning("an event is not stored yet", room=room, error=error.message)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RETRY_MAX_S)

    # The words so far, for the case that the server dies

    async def say(self, turn: Turn, text: str) -> None:
        """Keep the turn's next words: what is shown after this is never lost.

        Returns without where the turn is over or its room gone; nobody asks for them then.
        """
        wait_s = _RETRY_MIN_S
        while True:
            try:
                kept = await self._roomlog.say(turn.room, turn.id, turn.kept_bytes, text)
            except Unavailable as error:
                log.warning("words are not kept yet", turn=turn.id, error=error.message)
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RETRY_MAX_S)
            else:
                if kept is not False:
                    break
                text, turn.kept_bytes = turn.speech.text + text, 0
        turn.kept_bytes += len(text.encode())

    async def settle(self, room: str, end: End, *, ours: set[str]) -> None:
        """End what an earlier life of this server left open; what it had said is kept."""
        for turn, value in (await self._roomlog.turns(room)).items():
            facts = json.loads(value)
            if facts["server"] != self._server or turn in ours:
                continue
            text = await self._roomlog.said(room, turn)
            if text.strip():
                await self.message(room, turn, text, reply_to=facts["replyTo"], partial=True)
            await self.finished(room, turn, end, None, here=False)


def _body(kind: str, turn: Turn, by: Participant, **fields: Any) -> dict[str, Any]:
    body = {"type": kind, "room": turn.room, "by": author(by), "turn": turn.id}
    return body | {name: value for name, value in fields.items() if value is not None}
