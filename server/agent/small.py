"""What the smallest models are told: examples instead of rules, names instead of markers. Pure.

They follow neither rules nor markers; what the others are told is `context`'s.
"""

from collections.abc import Mapping, Sequence

from server.agent.context import Event, Question, Spoken, cut

_RECENT = 6
"""Messages of the room that such a model gets: more confuses it."""
_CHARS = 600

SMALL_INSTRUCTIONS = (
    "You are {name}, an assistant in a chat room with a Linux computer. To run a command, answer "
    "with it in a tag, like <run>ls</run>. Else answer in one sentence."
)
_EXAMPLES = (
    ("Eve: hello!", "Hello Eve, how can I help?"),
    ("Eve: list the files", "<run>ls</run>"),
    ("Result of ls:\na.txt\nb.txt", "There are two files, a.txt and b.txt."),
    ("Eve: what is the capital of Italy?", "The capital of Italy is Rome."),
    ("Eve: what is the date?", "<run>date</run>"),
    ("Result of date:\nMon Jan 5 2026", "It is Monday, 5 January 2026."),
)


def small_result(command: str, texts: Mapping[str, str]) -> str:
    """A finished command, as the examples tell one."""
    printed = texts.get("stdout") or texts.get("stderr") or "(nothing)"
    return f"Result of {command}:\n{cut(printed.strip(), _CHARS, _CHARS)}"


def small_conversation(events: Sequence[Event], question: Question, name: str) -> list[Spoken]:
    """Examples, the last messages, and the question, each with its speaker's name before it."""
    found: list[Spoken] = []
    for asked, answered in _EXAMPLES:
        found += [Spoken("room", asked), Spoken("agent", answered)]
    messages = [event for event in events if event["type"] == "message" and "text" in event]
    for event in messages[-_RECENT:]:
        if event["id"] == question.message:
            continue
        text = cut(event["text"], _CHARS, 0)
        if event["by"]["kind"] == "agent":
            found.append(Spoken("agent", text))
        else:
            found.append(Spoken("room", f"{event['by']['name']}: {text}"))
    asked = question.text.replace(f"@{name}", "").strip()
    return [*found, Spoken("room", f"{question.asker}: {cut(asked, 4 * _CHARS, 0)}")]
