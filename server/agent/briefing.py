"""What a model is told at the beginning of a turn: read from the room's log and its facts.

How that is put in words is `context`'s, and for the smallest models `small`'s.
"""

from protocol import names
from sandbox.spec import WORKDIR
from server.agent.approval import Approval
from server.agent.context import Event, Question, conversation, instructions
from server.agent.models import Dialogue, Models
from server.agent.small import SMALL_INSTRUCTIONS, small_conversation
from server.agent.turn import Turn
from server.hub import Hub

_PAGES_MAX = 5


async def briefing(
    turn: Turn, models: Models, hub: Hub, *, name: str, approval: Approval, context_tokens: int
) -> Dialogue:
    """The beginning of a turn's dialogue; `name` is the agent's. Raises the contract's errors."""
    events = await _recent(hub, turn.room, context_tokens)
    question = Question(turn.id, turn.by.id, turn.by.name, turn.question, turn.reply_to)
    if models.small:
        spoken = small_conversation(events, question, name)
        return Dialogue.begin(SMALL_INSTRUCTIONS.format(name=name), spoken, native=False)
    spoken = conversation(events, question, nonce=turn.nonce, budget_tokens=context_tokens)
    facts = await hub.describe(turn.room)
    off = approval == "off"
    told = instructions(
        name=name,
        room=facts["name"],
        sandbox=_sandbox_words(facts["sandbox"]),
        nonce=turn.nonce,
        way="off" if off else models.way,
    )
    return Dialogue.begin(told, spoken, native=models.way == "native" and not off)


async def _recent(hub: Hub, room: str, budget_tokens: int) -> list[Event]:
    """The newest events that may fit the budget, ascending."""
    events: list[Event] = []
    before: int | None = None
    for _ in range(_PAGES_MAX):
        page = await hub.page(room, before=before, after=None, limit=names.HISTORY_PAGE_MAX)
        events = page["events"] + events
        if not page["more"] or sum(len(str(event)) for event in events) > budget_tokens * 8:
            break
        before = page["events"][0]["offset"]
    return events


def _sandbox_words(record: dict[str, str] | None) -> str:
    if record is None:
        return f"It is made with the first command; commands begin in {WORKDIR}."
    return f"Its image is {record['image']}, it is {record['status']}."
