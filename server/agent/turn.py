"""One turn of the agent: what it answers, what it has said, what it wants to run. State only."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from protocol.model import Model, Participant
from server.agent.speech import Speech
from server.room import Tasks
from server.run import Run

Status = Literal["queued", "thinking", "approval", "running", "retrying"]
Decision = Literal["allow", "deny", "always"]
VIEW_CHARS = 200
"""Of a question, or of a command that is over, in `joined`: its frame holds 50 turns at most, and
the whole stands in the log. A command that waits for a word is always shown whole."""
OUTPUT_CHARS = 500
"""Of a command's output in an HTTP reply, as the contract says."""


@dataclass(frozen=True, slots=True)
class End:
    """How a turn ended; `message` is for people."""

    status: Literal["done", "stopped", "failed", "limit"]
    message: str | None = None


class TurnOver(Exception):
    """The turn ends here, not done."""

    def __init__(self, end: End) -> None:
        super().__init__(end.message)
        self.end = end


class Word(Model):
    """What somebody said to a command the agent wants."""

    by: Participant
    decision: Decision
    note: str | None = None


@dataclass(slots=True)
class Call:
    """A command the agent wants. What is approved and what runs is this very `command`."""

    command: str
    at: int = 0
    """Its place: the code points of the turn's words before it."""
    call: str = field(default_factory=lambda: f"c_{secrets.token_hex(8)}")
    status: Literal["approval", "running", "done", "denied"] = "running"
    exec: str | None = None
    expires_ts: int | None = None
    decided: Participant | None = None
    word: asyncio.Future[tuple[Decision, str | None]] | None = None
    output: str | None = None
    """As an HTTP reply shows it, once it is known."""

    def view(self) -> dict[str, Any]:
        over = self.status in ("done", "denied")
        command = shortened(self.command) if over else self.command
        fields: dict[str, Any] = {"call": self.call, "command": command, "at": self.at}
        fields["status"] = self.status
        more = {"exec": self.exec, "expiresTs": self.expires_ts}
        return fields | {name: value for name, value in more.items() if value is not None}


@dataclass(slots=True)
class Usage:
    """What a turn has cost so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    commands: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def wire(self) -> dict[str, int]:
        return {
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "steps": self.steps,
            "commands": self.commands,
        }


class Turn:
    """One question to the agent and what becomes of it. A room's `OpenTurn`."""

    def __init__(
        self,
        room: str,
        by: Participant,
        question: str,
        reply_to: str | None,
        say: Callable[["Turn", int, str], Awaitable[None]],
        *,
        tasks: Tasks,
    ) -> None:
        self.id = f"t_{secrets.token_hex(8)}"
        self.room = room
        self.by = by
        self.question = question
        self.reply_to = reply_to
        self.nonce = secrets.token_hex(6)
        """Marks what the server tells the model, from what people and commands wrote."""
        self.offset = 0
        self.status: Status = "queued"
        self.speech = Speech(lambda at, text: say(self, at, text), tasks)
        self.kept_bytes = 0
        """Of its words, as UTF-8, what a server that dies leaves behind."""
        self.calls: list[Call] = []
        self.usage = Usage()
        self.always = False
        self.run: Run | None = None
        self.task: asyncio.Task[End] | None = None
        self.stop: End | None = None
        """Why it was asked to end, once it was."""
        self.end: End | None = None
        self.instead: str | None = None
        """What the agent says in the place of words of a model's."""
        self.answered = 0
        """The offset of its message, once it is stored."""
        self.finished = 0
        """The offset of its end, once it is stored."""
        self.over = asyncio.Event()

    def view(self) -> dict[str, Any]:
        """It as `joined.turns` has it; the text is what the members were sent so far."""
        found = {
            "turn": self.id,
            "by": {"id": self.by.id, "name": self.by.name, "kind": self.by.kind},
            "question": shortened(self.question),
            "status": self.status,
            "text": self.speech.text,
            "calls": [call.view() for call in self.calls],
        }
        return found if self.reply_to is None else {**found, "replyTo": self.reply_to}

    def find(self, call_id: str) -> Call | None:
        return next((call for call in self.calls if call.call == call_id), None)

    def reply(self) -> str:
        """The answer as HTTP's `message` gives it: the words, then each command's output."""
        words = self.speech.text.rstrip()
        if not words:
            words = self.instead or (self.end and self.end.message) or ""
        outputs = [call.output for call in self.calls if call.output is not None]
        return "\n\n".join([words, *outputs])


def shortened(text: str) -> str:
    return text if len(text) <= VIEW_CHARS else f"{text[:VIEW_CHARS]}…"


def shown_output(command: str, fields: dict[str, Any], texts: dict[str, str]) -> str:
    """A command's part of an HTTP reply."""
    if fields.get("reason") in ("sandbox_unavailable", "sandbox_terminated", "internal_error"):
        return shown_error(command, fields["message"])
    printed = texts.get("stdout") or texts.get("stderr") or "[no output]"
    return f"Output ({command}):\n{printed[:OUTPUT_CHARS]}"


def shown_error(command: str, message: str) -> str:
    return f"Error ({command}):\n{message}"
