"""HTTP's `message`: said, answered, waited for, and told as the contract's reply."""

from typing import Any

from protocol import names
from protocol.errors import Invalid
from protocol.model import Participant
from server.agent.turn import Turn
from server.agent.turns import Agent
from server.hub import Hub
from server.running import author

CALLER = Participant(id="http", name="HTTP API", kind="bot")
"""Who calls over HTTP without saying for whom."""
_PERSON = "http-"
"""Before a caller's `userId`: nobody over HTTP is a participant that said hello."""


def person(user_id: str | None, agent: Participant) -> Participant:
    """Who speaks over HTTP. Raises Invalid for the agent's own name, as `hello` refuses it."""
    if user_id is None:
        return CALLER
    if user_id.casefold() == agent.name.casefold():
        message = f"{user_id!r} is the agent's name here; choose another."
        raise Invalid(message, details={"userId": ["is the agent's name"]})
    return Participant(id=f"{_PERSON}{user_id}", name=user_id, kind="human")


async def message(
    hub: Hub, agent: Agent, room_id: str, by: Participant, text: str
) -> dict[str, Any]:
    """Say it, let the agent answer, wait. `{reply, messages, turn, status}`.

    What cannot be asked now is not said either: who tries again would say it twice.
    """
    agent.check(room_id)
    said = await hub.say(room_id, by, text, None, None)
    turn_id = await agent.ask(room_id, by, text, reply_to=said.answer)
    turn = await agent.wait(turn_id)
    if turn is None or turn.end is None:
        return {"reply": "", "messages": [], "turn": turn_id, "status": "failed"}
    question = {"by": author(by), "id": said.answer, "text": text, "ts": said.ts}
    answer: dict[str, Any] = {
        "reply": turn.reply(),
        "messages": await _messages(hub, turn, {**question, "offset": said.offset}),
        "turn": turn_id,
        "status": turn.end.status,
    }
    return answer if turn.end.message is None else {**answer, "message": turn.end.message}


async def _messages(hub: Hub, turn: Turn, question: dict[str, Any]) -> list[dict[str, Any]]:
    """The room's newest messages up to the turn's answer, its question always among them."""
    until = turn.answered if turn.answered > question["offset"] else turn.finished
    before = until + 1 if until else None
    page = await hub.page(turn.room, before=before, after=None, limit=names.HISTORY_PAGE_MAX)
    events = page["events"]
    said = [event for event in events if event["type"] == "message" and not event.get("deleted")]
    if not events or events[0]["offset"] > question["offset"]:
        said.insert(0, question)
    return [_told(event) for event in said]


def _told(event: dict[str, Any]) -> dict[str, Any]:
    by, words = event["by"], {"text": event["text"], "ts": event["ts"]}
    if by["kind"] == "agent":
        return {"role": "agent", **words}
    if by["id"] == CALLER.id:
        return {"role": "user", **words}
    return {"role": "user", "userId": by["id"].removeprefix(_PERSON), **words}
