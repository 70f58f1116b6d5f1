"""Models through pydantic-ai: made from settings, asked for one streamed answer at a time.

The one module that knows the library, which is imported only when a model is made. What comes out
is `Text`, then one `Answer`; whatever goes wrong is a `ModelError` in words for people.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from server.agent.context import Spoken, tokens
from server.agent.speech import paired
from server.errors import StartupError

if TYPE_CHECKING:
    from pydantic_ai import messages as m
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

Way = Literal["native", "tags"]
TOOL = "run"
ANSWER_TOKENS = 8_192
"""Most that one answer may have: beyond it a model tells tales."""
_NATIVE = ("openai", "openai-chat", "openai-responses", "anthropic")


class ModelError(Exception):
    """The model did not answer; `message` is for people. `retry_after_s` where it may be tried."""

    def __init__(
        self, message: str, *, retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Text:
    """A delta of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A native tool call. `command` is None where it was malformed, and `problem` says how."""

    id: str
    tool: str
    command: str | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: its calls, what it cost, and whether it was cut at its length."""

    calls: list[Called]
    input_tokens: int
    output_tokens: int
    cut: bool = False
    refused: bool = False
    raw: Any = None


@dataclass(frozen=True, slots=True)
class Returned:
    """What goes back for one wanted command; `call` is a native call's id and its tool."""

    text: str
    call: tuple[str, str] | None = None


@dataclass(slots=True)
class Dialogue:
    """The messages of one turn, growing with each step."""

    instructions: str
    native: bool
    messages: list["m.ModelMessage"] = field(default_factory=list)

    @classmethod
    def begin(cls, instructions: str, spoken: list[Spoken], *, native: bool) -> "Dialogue":
        from pydantic_ai import messages as m  # noqa: PLC0415 - only with a model

        dialogue = cls(instructions, native)
        for part in spoken:
            if part.role == "agent":
                dialogue.messages.append(m.ModelResponse(parts=[m.TextPart(part.text)]))
            else:
                dialogue.say(part.text)
        return dialogue

    def say(self, text: str) -> None:
        from pydantic_ai import messages as m  # noqa: PLC0415 - only with a model

        part = m.UserPromptPart(text)
        self.messages.append(m.ModelRequest(parts=[part], instructions=self.instructions))

    def answered(self, answer: Answer, returned: list[Returned]) -> None:
        """Add an answer and what came of it."""
        from pydantic_ai import messages as m  # noqa: PLC0415 - only with a model

        self.messages.append(answer.raw)
        parts: list[m.ModelRequestPart] = [
            m.ToolReturnPart(tool_name=item.call[1], content=item.text, tool_call_id=item.call[0])
            for item in returned
            if item.call is not None
        ]
        words = "\n".join(item.text for item in returned if item.call is None)
        if words:
            parts.append(m.UserPromptPart(words))
        self.messages.append(m.ModelRequest(parts=parts, instructions=self.instructions))

    def tokens(self) -> int:
        """About how many tokens the next request sends."""
        parts = [part for message in self.messages for part in message.parts]
        return tokens(self.instructions) + sum(_part_tokens(part) for part in parts)


Told = Literal["reason", "reason or tokens", "nothing"]
"""What of an answer tells that it is whole: not every server says why it ended, but then what it
cost; Anthropic's counts tokens from the beginning."""


class Models:
    """The configured model."""

    def __init__(
        self, model: "Model", *, way: Way, whole: Told, answer_tokens: int = ANSWER_TOKENS
    ) -> None:
        self._model = model
        self.way = way
        self.answer_tokens = answer_tokens
        self.tells_length = True
        """The model is asked for no more than an answer's tokens; where not, `loop` counts."""
        self.small = False
        """It follows no rules: it is given examples (see `small`)."""
        self._whole = whole

    async def ask(self, dialogue: Dialogue, max_tokens: int) -> AsyncGenerator[Text | Answer, None]:
        """Deltas of text, then the answer. Raises ModelError."""
        try:
            async with aclosing(self._events(dialogue, max_tokens)) as events:
                async for event in events:
                    yield event
        except (ModelError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            raise trouble(error) from error

    async def _events(
        self, dialogue: Dialogue, max_tokens: int
    ) -> AsyncGenerator[Text | Answer, None]:
        from pydantic_ai import direct  # noqa: PLC0415 - only with a model
        from pydantic_ai import messages as m  # noqa: PLC0415
        from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415

        parameters = ModelRequestParameters(function_tools=[_tool()] if dialogue.native else [])
        async with direct.model_request_stream(
            self._model,
            dialogue.messages,
            model_settings=self._settings(max_tokens),
            model_request_parameters=parameters,
            instrument=False,
        ) as stream:
            async for event in stream:
                text = _text(event, m)
                if text:
                    yield Text(text)
            response = stream.get()
        yield self._answer(response, dialogue)

    def _settings(self, max_tokens: int) -> "ModelSettings":
        settings: ModelSettings = {"max_tokens": max_tokens} if self.tells_length else {}
        if self.small:
            settings["temperature"] = 0.0  # what is likely is bad enough
        return settings

    def _answer(self, response: "m.ModelResponse", dialogue: Dialogue) -> Answer:
        from pydantic_ai import messages as m  # noqa: PLC0415 - only with a model

        if not _ended(response, self._whole):
            raise ModelError("The model's answer broke off.")
        calls = [_called(part) for part in response.parts if isinstance(part, m.ToolCallPart)]
        usage = response.usage
        return Answer(
            calls=calls,
            input_tokens=usage.input_tokens or dialogue.tokens(),
            output_tokens=usage.output_tokens or sum(map(_part_tokens, response.parts)),
            cut=response.finish_reason == "length",
            refused=response.finish_reason == "content_filter",
            raw=_sendable(response, m),
        )


def _ended(response: "m.ModelResponse", whole: Told) -> bool:
    """Whether it was told that the answer is over: the library takes a stream that just ends for
    a whole one.
    """
    if (response.provider_details or {}).get("finish_reason") is not None or whole == "nothing":
        return True
    return whole == "reason or tokens" and response.usage.output_tokens > 0


def _part_tokens(part: Any) -> int:
    return tokens(str(getattr(part, "content", "") or getattr(part, "args", "")))


def _text(event: Any, m: Any) -> str:
    """The text that an event of the stream adds; thinking is not shown."""
    if isinstance(event, m.PartStartEvent) and isinstance(event.part, m.TextPart):
        return str(event.part.content)
    if isinstance(event, m.PartDeltaEvent) and isinstance(event.delta, m.TextPartDelta):
        return str(event.delta.content_delta)
    return ""


def _sendable(response: "m.ModelResponse", m: Any) -> "m.ModelResponse":
    """An answer that can go back: a provider refuses empty ones and calls that are not JSON.

    Nor can halves of surrogate pairs be encoded, which models say when they split a character.
    """
    for part in response.parts:
        if isinstance(part, m.ToolCallPart):
            part.args = _sendable_args(part.args)
        elif isinstance(part, m.TextPart | m.ThinkingPart):
            part.content = paired(part.content)
    if not response.parts:
        response.parts = [m.TextPart("(nothing)")]
    return response


def _sendable_args(args: "str | dict[str, Any] | None") -> dict[str, Any]:
    try:
        found = json.loads(args or "{}") if not isinstance(args, dict) else args
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {"malformed": str(args)[:500]}
    cleaned: dict[str, Any] = json.loads(paired(json.dumps(found, ensure_ascii=False)))
    return cleaned


def _called(part: "m.ToolCallPart") -> Called:
    """A call as it was wanted, or what is wrong with it."""
    call = part.tool_call_id or f"call_{secrets.token_hex(6)}"
    if part.tool_name != TOOL:
        problem = f"there is no tool {part.tool_name!r}; the one tool is {TOOL!r}"
        return Called(call, part.tool_name, None, problem)
    try:
        arguments = json.loads(part.args or "{}") if not isinstance(part.args, dict) else part.args
    except ValueError:
        return Called(call, TOOL, None, "the arguments were not JSON")
    command = arguments.get("command") if isinstance(arguments, dict) else None
    if not isinstance(command, str) or not command.strip():
        return Called(call, TOOL, None, 'the argument "command" must be a text that is not empty')
    return Called(call, TOOL, command)


def _tool() -> Any:
    from pydantic_ai.tools import ToolDefinition  # noqa: PLC0415 - only with a model

    schema = {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command, for sh -c."}},
        "required": ["command"],
        "additionalProperties": False,
    }
    text = "Run a shell command in the room's sandbox; everybody in the room sees it."
    return ToolDefinition(name=TOOL, description=text, parameters_json_schema=schema)


def trouble(error: Exception) -> ModelError:
    """What went wrong, in words for people. The provider's own words may hold anything: no."""
    from pydantic_ai import exceptions as x  # noqa: PLC0415 - only with a model

    after = getattr(error, "retry_after", None)
    table: list[tuple[type[Exception], str, bool]] = [
        (x.ModelRateLimitError, "The model's provider asks for fewer requests", True),
        (x.ModelQuotaExceededError, "The quota at the model's provider is used up", False),
        (x.ModelOverloadedError, "The model is overloaded", True),
        (x.ModelUnavailableError, "The model is not available now", True),
        (x.ModelServerError, "The model's server had an error", True),
        (x.ModelTimeoutError, "The model did not answer in time", True),
        (x.ModelRequestTimeout, "The model did not answer in time", True),
        (x.ModelConnectionError, "The model's server cannot be reached", True),
        (x.ModelContextWindowExceededError, "The conversation is too long for this model", False),
        (x.ModelAuthenticationError, "The model's provider refused the key", False),
        (x.ModelNotFoundError, "The model's provider does not know this model", False),
        (x.ModelRequestRejectedError, "The model's provider refused the request", False),
        (x.ContentFilterError, "The model's provider filtered the answer", False),
        (x.ModelAPIError, "The model's provider answered with an error", False),
        (x.UnexpectedModelBehavior, "The model's answer was not understood", False),
    ]
    for kind, words, retryable in table:
        if isinstance(error, kind):
            status = getattr(error, "status_code", None)
            told = f"{words} (HTTP {status})." if status else f"{words}."
            return ModelError(told, retryable=retryable, retry_after_s=after)
    if _is_connection(error):
        return ModelError("The connection to the model broke off.", retryable=True)
    return ModelError("The model's answer broke off with an error.")


def _is_connection(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) or type(error).__module__.split(".")[0].startswith("http"):
            return True
        error = error.__cause__
    return False


def make(name: str, *, base_url: str | None, api_key: str | None, tools: str) -> Models:
    """The model of the settings. Raises StartupError with what to do."""
    provider, colon, model = name.partition(":")
    if not colon or not model:
        raise StartupError(f"DUET_AGENT_MODEL is {name!r}; write PROVIDER:NAME, e.g. openai:NAME.")
    try:
        made = _make(provider, model, base_url, api_key)
    except ImportError as error:
        raise StartupError(f"DUET_AGENT_MODEL needs a package: {error}") from None
    native = provider in _NATIVE if tools == "auto" else tools == "native"
    if tools == "auto" and base_url is not None and provider.startswith("openai"):
        native = False
    whole: Told = "reason" if provider == "anthropic" else "reason or tokens"
    models = Models(made, way="native" if native else "tags", whole=whole)
    # A server of one's own may refuse what its model's window cannot hold beside the question.
    models.tells_length = base_url is None or provider == "anthropic"
    return models


def _make(provider: str, model: str, base_url: str | None, api_key: str | None) -> "Model":
    if provider in ("openai", "openai-chat"):
        return _openai(model, base_url, api_key)
    if provider == "anthropic":
        return _anthropic(model, base_url, api_key)
    message = f"DUET_AGENT_MODEL names the provider {provider!r}; Duet knows openai and anthropic."
    raise StartupError(f"{message} Others: openai:NAME with their DUET_AGENT_BASE_URL.")


def _openai(model: str, base_url: str | None, api_key: str | None) -> "Model":
    from openai import AsyncOpenAI  # noqa: PLC0415 - only with a model
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    if not api_key and base_url is None:
        raise StartupError("DUET_AGENT_MODEL is set, but DUET_AGENT_API_KEY is not.")
    key = api_key or "none"  # servers of one's own ask for none; the client insists on one
    client = AsyncOpenAI(api_key=key, base_url=base_url, max_retries=0)
    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))


def _anthropic(model: str, base_url: str | None, api_key: str | None) -> "Model":
    from anthropic import AsyncAnthropic  # noqa: PLC0415 - only with a model
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

    if not api_key:
        raise StartupError("DUET_AGENT_MODEL is set, but DUET_AGENT_API_KEY is not.")
    client = AsyncAnthropic(api_key=api_key, base_url=base_url, max_retries=0)
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))
