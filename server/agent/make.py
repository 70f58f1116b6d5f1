"""The agent as the settings want it. Composition only; `models` imports the model library."""

import re
from contextlib import AsyncExitStack

from protocol.model import Participant
from server.agent.approval import compiled
from server.agent.local import LocalModel
from server.agent.models import Models, make
from server.agent.record import Record
from server.agent.turns import Agent, AgentConfig
from server.agent.wanted import Limits
from server.errors import StartupError
from server.hub import Hub
from server.room import Tasks
from server.roomlog import RoomLog
from server.settings import Settings

LOCAL = "local"
"""`DUET_AGENT_MODEL=local`: the small model that needs no key."""
LOCAL_ANSWER_TOKENS, LOCAL_CONTEXT_TOKENS = 512, 2_000
"""It is small: a longer answer is worse, and its window holds 8,192 tokens for both."""


async def open_models(settings: Settings, stack: AsyncExitStack) -> Models | None:
    """The model of the settings, or None without one; `stack` ends it. Raises StartupError."""
    name = settings.agent_model
    if name is None:
        return None
    if name == LOCAL:
        local = LocalModel()
        stack.push_async_callback(local.close)
        await local.open()
        models = make("openai:smollm2", base_url=local.url, api_key=local.key, tools="tags")
        models.answer_tokens = LOCAL_ANSWER_TOKENS
        models.tells_length = True
        models.small = True
        return models
    key = settings.agent_api_key
    return make(
        name,
        base_url=settings.agent_base_url,
        api_key=None if key is None else key.get_secret_value(),
        tools=settings.agent_tools,
    )


def make_agent(
    settings: Settings,
    models: Models | None,
    *,
    hub: Hub,
    roomlog: RoomLog,
    server: str,
    tasks: Tasks,
) -> Agent:
    """The agent of this server. Raises StartupError for a setting that cannot be used."""
    participant = Participant(id="agent", name=settings.agent_name, kind="agent")
    context_tokens = settings.agent_context_tokens
    if settings.agent_model == LOCAL:
        context_tokens = min(context_tokens, LOCAL_CONTEXT_TOKENS)
    config = AgentConfig(
        participant=participant,
        approval=settings.agent_approval,
        patterns=_patterns(settings),
        limits=Limits(
            steps=settings.agent_max_steps,
            tokens=settings.agent_max_tokens,
            seconds=settings.agent_max_seconds,
            commands=settings.agent_max_commands,
            approval_s=settings.agent_approval_s,
        ),
        context_tokens=context_tokens,
    )
    record = Record(roomlog, participant, server)
    return Agent(hub, record, models, config, tasks)


def _patterns(settings: Settings) -> tuple[re.Pattern[str], ...]:
    try:
        return compiled(settings.agent_always_ask)
    except ValueError as error:
        raise StartupError(f"DUET_AGENT_ALWAYS_ASK: {error}") from None
