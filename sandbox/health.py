"""Whether a link still carries, and what became of a container whose link was lost.

Questions to the engine and the runner only; what follows from the answers is `instance.py`'s.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sandbox.containers import GOING
from sandbox.engine import Engine
from sandbox.errors import EngineError, EngineUnavailable
from sandbox.link import Link

# Every command's end must be told within five seconds. A lost link: the engine is asked every
# ASK_EVERY_S, for ASK_FOR_S, so that one that restarts quickly is met again.
ASK_EVERY_S: Final = 0.3
ASK_FOR_S: Final = 3.5
# Where live-restore is on, an engine that is away ends nothing: it is worth waiting for.
ASK_RESTORED_FOR_S: Final = 20.0
# A silent one: a second until it is asked, two until it counts as silent, then the engine itself
# is asked, twice, so that a pause of our own is not taken for its silence.
PING_EVERY_S: Final = 1.0
SILENT_S: Final = 2.0
PINGS: Final = 2
PING_S: Final = 0.7
KILLED_EXIT: Final = 137
OUT_OF_MEMORY: Final = "The sandbox ended while it ran, perhaps because its memory was used up."


@dataclass(frozen=True, slots=True)
class Fate:
    """`status` is the sandbox's from now on; `runs` says that the container still does, `exists`
    that it is there, `files` that what was written is.
    """

    reason: str
    message: str
    status: str
    runs: bool = False
    exists: bool = True
    files: bool = True


async def what_became(engine: Engine, container: str, volume: str | None) -> Fate:
    """What to tell those who ran in `container`, whose files are in `volume` or else in itself.

    Bounded by ASK_FOR_S and two calls, or, where containers outlive the engine, by
    ASK_RESTORED_FOR_S.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (ASK_RESTORED_FOR_S if engine.restores else ASK_FOR_S)
    while True:
        try:
            found = await engine.inspect(container, timeout_s=1.0)
            break
        except EngineUnavailable as error:
            if loop.time() >= deadline:
                return engine_lost(error.message)
            await asyncio.sleep(ASK_EVERY_S)
        except EngineError as error:
            return engine_lost(error.message)
    if found is None or found["State"].get("Status") in GOING:
        message = "The sandbox was removed while it ran."
        files = volume is not None and await _is_there(engine, volume)
        return Fate("sandbox_terminated", message, "stopped", exists=False, files=files)
    state = found["State"]
    # The flag may be of an earlier end in the same container, so it is only a hint.
    short = bool(state.get("OOMKilled")) and state.get("ExitCode") == KILLED_EXIT
    message = OUT_OF_MEMORY if short else "The sandbox ended while it ran."
    return Fate("sandbox_terminated", message, "stopped", runs=bool(state.get("Running")))


async def _is_there(engine: Engine, volume: str) -> bool:
    with suppress(EngineError, EngineUnavailable):
        return await engine.volume(volume) is not None
    return False


def engine_lost(why: str) -> Fate:
    return Fate("sandbox_unavailable", f"The sandbox was lost: {why}", "error")


async def until_silent(engine: Engine, container: str, link: Link, busy: Callable[[], bool]) -> str:
    """Returns, with why, once neither runner nor engine answers; for ever while one does.

    A runner may be slow, since the commands share its CPU limit; an engine may not. One that
    somebody paused goes on.
    """
    while True:
        await asyncio.sleep(PING_EVERY_S)
        if busy():
            link.ping()
            if link.silent_s() > SILENT_S:
                if why := await _unreachable(engine):
                    return why
                await _thaw(engine, container)


async def _thaw(engine: Engine, container: str) -> None:
    with suppress(EngineError, EngineUnavailable):  # it is asked again a second later
        found = await engine.inspect(container)
        if found is not None and found["State"].get("Paused"):
            await engine.unpause(container)


async def _unreachable(engine: Engine) -> str:
    why = ""
    for _ in range(PINGS):
        try:
            await engine.ping(PING_S)
        except EngineUnavailable as error:
            why = error.message
        except EngineError:
            return ""
        else:
            return ""
    return why
