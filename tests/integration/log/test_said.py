"""Words of open turns beside the log: kept before they are shown, and no longer than needed."""

import json

import pytest

from protocol.model import Participant
from server.agent.record import Record
from server.agent.turn import End, Turn
from server.roomlog import Append
from tests.unit.agent.floor import ALICE, Tasks

AGENT = Participant(id="agent", name="duet", kind="agent")
BODY = {"room": "blue", "by": {"id": "agent", "name": "duet", "kind": "agent"}, "turn": "t"}


@pytest.fixture
async def turn(log, room):
    value = json.dumps({"server": "s", "replyTo": None})
    asked = {**BODY, "type": "agent.queued", "question": "?"}
    await log.append(room, Append(asked, op="ask", subject="t", value=value))
    return "t"


async def test_words_are_kept_after_those_before_them(log, room, turn):
    assert await log.said(room, turn) == ""
    assert await log.say(room, turn, 0, "wörd ") is True
    assert await log.say(room, turn, 6, "\U0001f389") is True
    assert await log.said(room, turn) == "wörd \U0001f389"


async def test_words_that_are_sent_again_stand_once(log, room, turn):
    for _ in range(3):
        await log.say(room, turn, 0, "one ")
    for _ in range(3):
        await log.say(room, turn, 4, "two")
    assert await log.said(room, turn) == "one two"


async def test_a_turn_that_is_not_open_keeps_nothing(log, store, room):
    assert await log.say(room, "other", 0, "words") is None
    assert await log.say("nowhere", "t", 0, "words") is None
    assert await store.call("EXISTS", "duet:{blue}:said", "duet:{nowhere}:said") == 0


async def test_words_that_were_lost_are_told_and_kept_anew(log, store, room):
    record = Record(log, AGENT, "s")
    turn = Turn(
        room, ALICE, "?", None, lambda turn, _at, text: record.say(turn, text), tasks=Tasks()
    )
    await record.ask(room, record.question(turn, None, None))
    turn.speech.add("It ")
    await turn.speech.flush()
    await store.call("DEL", "duet:{blue}:said")
    assert await log.say(room, turn.id, 3, "is ") is False
    turn.speech.add("is.")
    await turn.speech.flush()
    assert await log.said(room, turn.id) == "It is."


@pytest.mark.parametrize("op", ["message", "finish"])
async def test_they_go_with_the_message_and_with_the_end(log, store, room, turn, op):
    await log.say(room, turn, 0, "words")
    if op == "message":
        body = {**BODY, "type": "message", "id": "m_t", "text": "words"}
        await log.append(room, Append(body, op="message", subject="m_t", value=turn))
    else:
        body = {**BODY, "type": "agent.finished", "status": "done"}
        await log.append(room, Append(body, op="finish", subject=turn))
        assert await log.say(room, turn, 5, "late") is None
    assert await store.call("EXISTS", "duet:{blue}:said") == 0


async def test_a_deleted_room_leaves_none_and_they_do_not_stay_for_ever(log, store, room, turn):
    await log.say(room, turn, 0, "words")
    assert 0 < await store.call("TTL", "duet:{blue}:said") <= 7 * 24 * 60 * 60
    await log.delete(room)
    assert await log.say(room, turn, 5, "late") is None
    assert await store.call("KEYS", "*said*") == []


async def test_a_message_that_was_stored_is_not_said_again_by_the_next_life(log, room):
    record = Record(log, AGENT, "s")
    turn = Turn(
        room, ALICE, "?", None, lambda turn, _at, text: record.say(turn, text), tasks=Tasks()
    )
    await record.ask(room, record.question(turn, None, None))
    turn.speech.add("Four.")
    text = await turn.speech.end()
    await record.message(room, turn.id, text, reply_to=None, partial=False)
    await record.settle(room, End("failed", "restarted"), ours=set())
    entries, _ = await log.page(room, before=None, after=0, limit=9)
    assert [entry.event()["type"] for entry in entries] == [
        "agent.queued",
        "message",
        "agent.finished",
    ]
