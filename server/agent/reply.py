"""HTTP's `message`: said, answered, waited for, and told as the contract's reply."""

from typing import Any

from protocol import names
from protocol.model import Participant
from server.agent.turns import Agent
from server.hub import Hub

_PERSON = "http-"
"""Before a caller's `userId`: nobody over HTTP is a participant that said hello."""


def person(user_id: str | None, otherwise: Participant) -> Participant:
    """Who speaks over HTTP."""
    if user_id is None:
        return otherwise
    return Participant(id=f"{_PERSON}{user_id}", name=user_id, kind="human")


async def message(
    hub: Hub, agent: Agent, room_id: str, by: Participant, text: str
) -> dict[str, Any]:
    """Say it, let the agent answer, wait. `{reply, messages, turn, status}`."""
    said = await hub.say(room_id, by, text, None, None)
    turn_id = await agent.ask(room_id, by, text, reply_to=said.answer)
    turn = await agent.wait(turn_id)
    if turn is None or turn.end is None:
        return {"reply": "", "messages": [], "turn": turn_id, "status": "failed"}
    until = turn.finished or None
    page = await hub.page(room_id, before=until, after=None, limit=names.HISTORY_PAGE_MAX)
    said_events = [event for event in page["events"] if event["type"] == "message"]
    answer: dict[str, Any] = {
        "reply": turn.reply(),
        "messages": [_told(event) for event in said_events if not event.get("deleted")],
        "turn": turn_id,
        "status": turn.end.status,
    }
    return answer if turn.end.message is None else {**answer, "message": turn.end.message}


def _told(event: dict[str, Any]) -> dict[str, Any]:
    by = event["by"]
    if by["kind"] == "agent":
        return {"role": "agent", "text": event["text"], "ts": event["ts"]}
    user_id = by["id"].removeprefix(_PERSON)
    return {"role": "user", "userId": user_id, "text": event["text"], "ts": event["ts"]}
