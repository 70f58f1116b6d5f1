"""A sandbox's record as the wire has it, and the ids that belong to rooms."""

from dataclasses import fields
from typing import Any, Final

from pydantic.alias_generators import to_camel

from sandbox.spec import SandboxRecord

ROOM_PREFIX: Final = "sandbox-"
_NAMES: Final = {field.name: to_camel(field.name) for field in fields(SandboxRecord)}


def sandbox_name(room_id: str) -> str:
    """The id of a room's own sandbox."""
    return ROOM_PREFIX + room_id


def record_fields(record: SandboxRecord) -> dict[str, Any]:
    """camelCase, without what is not known."""
    found = {wire: getattr(record, name) for name, wire in _NAMES.items()}
    return {wire: value for wire, value in found.items() if value is not None}
