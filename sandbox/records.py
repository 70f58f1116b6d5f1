"""What is known of each sandbox, kept in a folder so that it outlives the server: a file per id.

Only reading and writing; what a record means for a container is the manager's to settle.
"""

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from sandbox.errors import InvalidSpec
from sandbox.spec import STATUSES, SandboxSpec, sandbox_id

log = logging.getLogger(__name__)

VERSION: Final = 1
RECORD_BYTES: Final = 1024 * 1024  # a startup command may have 128 KiB; no record is larger
_SPEC_FIELDS: Final = frozenset(field.name for field in fields(SandboxSpec))


@dataclass(frozen=True, slots=True)
class Kept:
    """A sandbox as it is kept. Times in seconds since the epoch; the size as in SavedWorkspace.

    `doomed`: its removal was begun, and is to be finished.
    """

    spec: SandboxSpec
    status: str
    idle_since: float
    held: bool = False
    saved_at: float | None = None
    size_bytes: int | None = None
    size_exact: bool = True
    last_error: str | None = None
    doomed: bool = False


class Records:
    """`folder` None keeps nothing. `put` and `drop` return at once; `flush` waits for the disk.

    What stands there already is not written again: a server that stops puts every record it has.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._due: dict[str, Kept | None] = {}
        self._there: dict[str, Kept] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> list[Kept]:
        """All that can be read; what cannot is told in the log and left as it is."""
        found = await asyncio.to_thread(_load, self._folder) if self._folder else []
        self._there = {kept.spec.id: kept for kept in found}
        return found

    def put(self, kept: Kept) -> None:
        id = kept.spec.id  # noqa: A001
        if self._folder is not None and kept != self._due.get(id, self._there.get(id)):
            self._due[id] = kept

    def drop(self, id: str) -> None:  # noqa: A002
        if self._folder is not None:
            self._due[id] = None

    @property
    def due(self) -> bool:
        return bool(self._due)

    async def flush(self) -> None:
        """Write what waits, the newest of each id. A disk that fails is told, not raised."""
        async with self._writing:
            due, self._due = self._due, {}
            if due and self._folder is not None:
                for id in due:  # noqa: A001  (until it is known, none of them counts as there)
                    self._there.pop(id, None)
                try:
                    await asyncio.to_thread(_write, self._folder, due)
                except OSError as error:
                    log.error("sandbox records not written: %s", error)  # noqa: TRY400
                    self._due = {**due, **self._due}
                else:
                    self._there |= {name: kept for name, kept in due.items() if kept}


def encode(kept: Kept) -> bytes:
    return json.dumps({"v": VERSION, **asdict(kept)}, ensure_ascii=True).encode()


def decode(raw: bytes) -> Kept:
    """Raises ValueError for what is no record; fields of a later version are not looked at."""
    try:
        found = json.loads(raw)
        spec = {name: value for name, value in found["spec"].items() if name in _SPEC_FIELDS}
        return Kept(
            spec=SandboxSpec(**spec),
            status=_status(found),
            idle_since=float(found["idle_since"]),
            held=bool(found.get("held")),
            saved_at=_optional(found, "saved_at", float),
            size_bytes=_optional(found, "size_bytes", int),
            size_exact=bool(found.get("size_exact", True)),
            last_error=_optional(found, "last_error", str),
            doomed=bool(found.get("doomed")),
        )
    except (InvalidSpec, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a sandbox record: {error!r}") from error


def _status(found: Mapping[str, Any]) -> str:
    status = str(found["status"])
    if status not in STATUSES:
        raise ValueError(f"not a status: {status[:20]!r}")
    return status


def _optional(found: Mapping[str, Any], name: str, kind: type) -> Any:
    value = found.get(name)
    return None if value is None else kind(value)


def _load(folder: Path) -> list[Kept]:
    if not folder.is_dir():
        return []
    kept = []
    for path in sorted(folder.glob("*.json")):
        try:
            if path.stat().st_size > RECORD_BYTES:
                raise ValueError("too large")  # noqa: TRY301
            one = decode(path.read_bytes())
            if one.spec.id != path.stem:
                raise ValueError(f"it is of {one.spec.id}")  # noqa: TRY301
        except (OSError, ValueError) as error:
            log.warning("sandbox record %s is not read: %s", path.name, error)
        else:
            kept.append(one)
    return kept


def _write(folder: Path, due: Mapping[str, Kept | None]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, kept in due.items():
        path = folder / f"{sandbox_id(name)}.json"
        if kept is None:
            path.unlink(missing_ok=True)
            continue
        new = path.with_suffix(".new")
        with open(new, "wb") as file:  # noqa: PTH123  (fsync needs the file)
            file.write(encode(kept))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
