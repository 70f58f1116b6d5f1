"""Sandboxes by id, for those who have no room: start, execute, kill, destroy, list.

How sandboxes live is `sandbox`'s; this knows whose ids are whose and speaks the contract's words.
"""

from dataclasses import replace
from typing import Any

from pydantic.alias_generators import to_camel

from protocol.commands import Exec, SandboxStart
from protocol.errors import DuetError, Invalid, LimitReached, Unavailable, UnknownSandbox
from protocol.model import Participant
from sandbox import errors
from sandbox.lease import parse_sleep_after
from sandbox.manager import Manager
from sandbox.spec import SandboxRecord, SandboxSpec, sandbox_id
from server.listing import page
from server.records import ROOM_PREFIX, record_fields
from server.room import Listener
from server.roomlog import RoomLog
from server.run import Run
from server.settings import Settings
from server.solo import SoloExecs
from server.wire import Outgoing

_ACTIVE = ("requested", "starting", "running")


class Sandboxes:
    """The provider. Sessions that ask for a sandbox are told of its changes from then on."""

    def __init__(
        self, settings: Settings, manager: Manager, solo: SoloExecs, roomlog: RoomLog
    ) -> None:
        self.solo = solo
        self._settings = settings
        self._manager = manager
        self._roomlog = roomlog
        self._watchers: dict[str, set[Listener]] = {}

    def spec_of_room(self, room_id: str) -> SandboxSpec:
        """A room's own sandbox: as it was started, or as the settings have it."""
        name = ROOM_PREFIX + room_id
        record = self._manager.get(name)
        return SandboxSpec(
            id=name,
            image=record.image if record else self._settings.room_image,
            instance_type=record.instance_type if record else self._settings.room_instance_type,
            network=self._settings.sandbox_network,
            profile=self._settings.sandbox_profile,
            runtime=self._settings.sandbox_runtime,
            sleep_after=parse_sleep_after(self._settings.room_sleep_after),
        )

    async def start(self, wanted: SandboxStart, listener: Listener | None) -> dict[str, Any]:
        """The record, at once.

        Raises Invalid with what is allowed, UnknownRoom, LimitReached, Unavailable.
        """
        name = _named(wanted.id)
        await self._check_room(name)
        try:
            spec = self._spec(name, wanted)
            self._watch(name, listener)
            return record_fields(await self._manager.start(spec))
        except errors.SandboxError as error:
            raise in_words(error) from None

    def _spec(self, name: str, wanted: SandboxStart) -> SandboxSpec:
        """What was asked for; a room's sandbox is as the settings say where nothing was asked."""
        given = wanted.model_fields_set
        image, kind, sleep_after = wanted.image, wanted.instance_type, wanted.sleep_after
        if name.startswith(ROOM_PREFIX):
            image = image if "image" in given else self._settings.room_image
            kind = kind if "instance_type" in given else self._settings.room_instance_type
            sleep_after = sleep_after if "sleep_after" in given else self._settings.room_sleep_after
        return SandboxSpec(
            id=name,
            image=image,
            instance_type=kind,
            network=wanted.network or self._settings.sandbox_network,
            profile=self._settings.sandbox_profile,
            runtime=self._settings.sandbox_runtime,
            sleep_after=parse_sleep_after(sleep_after),
            keep_alive=wanted.keep_alive,
            startup_command=wanted.startup_command,
            startup_timeout_ms=wanted.startup_timeout_ms,
        )

    async def kill(self, raw: str, listener: Listener | None) -> dict[str, Any]:
        """Save and stop; the record then. Raises UnknownSandbox, Unavailable."""
        name = _named(raw)
        if self._manager.get(name) is None:
            raise _unknown(raw)
        self._watch(name, listener)
        try:
            return record_fields(await self._manager.kill(name))
        except errors.SandboxError as error:
            raise in_words(error) from None

    async def destroy(self, raw: str, listener: Listener | None) -> dict[str, Any]:
        """Remove it with its workspace, for good; its last record. Raises UnknownSandbox."""
        name = _named(raw)
        record = self._manager.get(name)
        if record is None:
            raise _unknown(raw)
        self._watch(name, listener)
        try:
            await self._manager.destroy(name)
        except errors.SandboxError as error:
            raise in_words(error) from None
        gone = replace(
            record,
            status="stopped",
            workspace_saved=False,
            expected_stop_at=None,
            saved_at=None,
            workspace_bytes=None,
        )
        return record_fields(gone)

    def list(
        self, *, after: str | None = None, limit: int | None = None, size_bytes: int | None = None
    ) -> "tuple[list[dict[str, Any]], bool]":
        """A page, as `listing.page` makes it, and whether more follow."""
        return page(self._manager.list(), after=after, limit=limit, size_bytes=size_bytes)

    async def execute(
        self, raw: str, by: Participant, request: Exec, listener: Listener | None
    ) -> Run | str:
        """Run a command in a sandbox that was started. Raises UnknownSandbox, Invalid."""
        record = self.without_room(raw)
        name, refused = record.id, None
        if record.status not in _ACTIVE:
            refused = f"The sandbox {name!r} does not run ({record.status}); start it first."
        self._watch(name, listener)
        spec = SandboxSpec(id=name, image=record.image, instance_type=record.instance_type)
        return await self.solo.start(spec, by, request, listener, refused=refused)

    def without_room(self, raw: str) -> SandboxRecord:
        """The record of a sandbox that is no room's. Raises UnknownSandbox, Invalid."""
        name = _named(raw)
        if name.startswith(ROOM_PREFIX):
            message = "This sandbox belongs to a room; its commands are run and listed there."
            raise Invalid(message, details={"sandbox": [message]})
        record = self._manager.get(name)
        if record is None:
            raise _unknown(raw)
        return record

    # Who is told

    def changed(self, record: SandboxRecord) -> None:
        """Tell the sessions that asked for a sandbox how it is now."""
        frame = Outgoing({"type": "sandbox", **record_fields(record)})
        for listener in self._watchers.get(record.id, ()):
            listener.send(frame)

    def forget_listener(self, listener: Listener) -> None:
        self.solo.forget_listener(listener)
        for name in [name for name, some in self._watchers.items() if listener in some]:
            self._watchers[name].discard(listener)
            if not self._watchers[name]:
                del self._watchers[name]

    def _watch(self, name: str, listener: Listener | None) -> None:
        if listener is not None and not name.startswith(ROOM_PREFIX):  # its room is told
            self._watchers.setdefault(name, set()).add(listener)

    async def _check_room(self, name: str) -> None:
        """Ids `sandbox-*` belong to rooms: the room must be there."""
        if name.startswith(ROOM_PREFIX):
            await self._roomlog.room(name.removeprefix(ROOM_PREFIX))


def _named(raw: str) -> str:
    try:
        return sandbox_id(raw)
    except errors.InvalidSpec as error:
        raise in_words(error) from None


def _unknown(raw: str) -> UnknownSandbox:
    return UnknownSandbox(f"There is no sandbox {raw[:100]!r}; start it first.")


def in_words(error: errors.SandboxError) -> DuetError:
    """An error of the sandboxes as the contract has it."""
    if isinstance(error, errors.InvalidSpec):
        return Invalid(error.message, details={to_camel(error.field): [error.message]})
    if isinstance(error, errors.UnknownSandbox):
        return UnknownSandbox(error.message)
    if isinstance(error, errors.SandboxLimit):
        return LimitReached(error.message)
    return Unavailable(error.message, retry_after_ms=1000)
