"""What the sandboxes of one manager have in common. Only held here; who makes it is the manager."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox.engine import Engine
from sandbox.provision import Provider
from sandbox.spec import SandboxRecord

if TYPE_CHECKING:
    from sandbox.instance import Instance


@dataclass(slots=True)
class Shared:
    engine: Engine
    provider: Provider
    owner: str
    clock: Callable[[], float]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    changed: Callable[[SandboxRecord], None]
    admit: Callable[["Instance"], None]  # raises SandboxLimit
