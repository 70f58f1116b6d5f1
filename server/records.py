"""A sandbox's record as the wire has it, and the ids that belong to rooms."""

from dataclasses import asdict
from typing import Any, Final

from pydantic.alias_generators import to_camel

from sandbox.spec import SandboxRecord

ROOM_PREFIX: Final = "sandbox-"


def sandbox_name(room_id: str) -> str:
    """The id of a room's own sandbox."""
    return ROOM_PREFIX + room_id


def record_fields(record: SandboxRecord) -> dict[str, Any]:
    """camelCase, without what is not known."""
    return {to_camel(name): value for name, value in asdict(record).items() if value is not None}
