"""Stored events as they stand now: messages edited or deleted since, and what repeats their words.

Pure, on events' JSON; which patch belongs to a message is `roomlog`'s.
"""

import json

from protocol.codec import encode_json

_WORDS = (b'{"type":"message",', b'{"type":"message.edited",')
_QUESTIONS = (b'{"type":"agent.queued",', b'{"type":"agent.started",')
DELETED = b"deleted"
"""The patch of a message that was deleted; of one that was edited: its time, and the edit."""


def message_of(body: bytes) -> str | None:
    """The message whose words an event holds, as its own or as a question to the agent."""
    if body.startswith(_WORDS):
        return str(json.loads(body)["id"])
    if body.startswith(_QUESTIONS):
        found: str | None = json.loads(body).get("replyTo")
        return found
    return None


def amended(body: bytes, patch: bytes) -> bytes:
    """An event with its message's edit or deletion; a deleted one's words stand nowhere any more.

    A question keeps what was asked when its message is edited.
    """
    event = json.loads(body)
    if body.startswith(_QUESTIONS):
        event["question"] = "" if patch == DELETED else event["question"]
    elif patch == DELETED:
        event.pop("text", None)
        event |= {"deleted": True} if event["type"] == "message" else {}
    elif event["type"] == "message":
        ts, edit = patch.split(b" ", 1)
        event |= {"text": json.loads(edit)["text"], "editedTs": int(ts)}
    return encode_json(event)
