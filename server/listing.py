"""Sandboxes as a list that is read in pages: those that are active first, then by id. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from protocol import names
from protocol.codec import JSON
from sandbox.spec import SandboxRecord
from server.records import record_fields

PAGE_BYTES: Final = names.SERVER_FRAME_BYTES - 4 * 1024
"""Of the records in one frame, in JSON, which is never the shorter codec; the rest is its head."""
_IDLE: Final = ("stopped", "error")


def page(
    records: Iterable[SandboxRecord],
    *,
    after: str | None = None,
    limit: int | None = None,
    size_bytes: int | None = None,
) -> tuple[list[dict[str, Any]], bool]:
    """At most `limit` records that fit in `size_bytes`, and whether more follow.

    `after` is the last id of the page before; one that has gone since counts as stopped.
    """
    ordered = sorted(records, key=_place)
    start = 0
    if after is not None:
        last = next((_place(one) for one in ordered if one.id == after), (True, after))
        start = next((at for at, one in enumerate(ordered) if _place(one) > last), len(ordered))
    found: list[dict[str, Any]] = []
    left = size_bytes
    for one in ordered[start:]:
        fields = record_fields(one)
        if left is not None:
            left -= len(JSON.encode(fields)) + 1
        if len(found) == limit or (left is not None and left < 0):
            return found, True
        found.append(fields)
    return found, False


def _place(record: SandboxRecord) -> tuple[bool, str]:
    return record.status in _IDLE, record.id
