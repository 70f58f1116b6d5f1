"""The sandboxes of one server by id: made, admitted, remembered on disk, told of when they change.

Nothing here asks the engine; the manager and its helpers do.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from sandbox.disk import Usage
from sandbox.errors import SandboxLimit
from sandbox.instance import Instance
from sandbox.records import Kept, Records
from sandbox.shared import Shared
from sandbox.spec import SandboxRecord, SandboxSpec, SavedWorkspace

log = logging.getLogger(__name__)

# A lease that moves with every command is told when it has come to rest, and written down, for a
# server that is killed, as often meanwhile.
REST_S: Final = 5.0
NOT_MET: Final = "The server was restarted and has not met this sandbox again yet."


class Registry:
    def __init__(
        self,
        records: Records,
        *,
        max_running: int,
        on_change: Callable[[SandboxRecord], None],
        clock: Callable[[], float],
    ) -> None:
        self.records = records
        self.shared: Shared  # given by the manager, which the instances call back
        self.doomed: dict[str, SandboxSpec] = {}  # whose removal an earlier server had begun
        self._dooming: set[str] = set()  # and those whose removal this one has begun
        self._max_running = max_running
        self._on_change = on_change
        self._clock = clock
        self._instances: dict[str, Instance] = {}
        self._holds: defaultdict[str, set[str]] = defaultdict(set)
        self._told: dict[str, int | None] = {}
        self._moved: dict[str, tuple[int | None, float]] = {}
        self._written: dict[str, tuple[int | None, float]] = {}

    def __iter__(self) -> Iterator[Instance]:
        return iter(list(self._instances.values()))

    def get(self, id: str) -> Instance | None:  # noqa: A002
        return self._instances.get(id)

    def make(self, spec: SandboxSpec) -> Instance:
        instance = self._instances[spec.id] = Instance(self.shared, spec)
        for holder in self._holds.get(spec.id, ()):
            instance.lease.hold(holder)
        return instance

    def is_going(self, id: str) -> bool:  # noqa: A002
        """It is being removed, and too far gone to be spared."""
        instance = self._instances.get(id)
        return instance is not None and instance.status == "stopping" and id in self._dooming

    def forget(self, instance: Instance) -> None:
        id = instance.spec.id  # noqa: A001
        if self._instances.get(id) is instance:
            del self._instances[id]
            self._told.pop(id, None)
            self._moved.pop(id, None)
            self._written.pop(id, None)
        self._dooming.discard(id)
        self.doomed.pop(id, None)
        self.records.drop(id)

    def saved(self) -> list[SavedWorkspace]:
        """What stopped sandboxes left on disk, the oldest first."""
        found = [
            SavedWorkspace(
                id=one.spec.id,
                size_bytes=one.usage.size_bytes if one.usage else None,
                saved_at_ms=round(one.saved_at * 1000),
                image=one.spec.image,
                exact=one.usage is None or one.usage.exact,
            )
            for one in self
            if one.saved_at is not None
        ]
        return sorted(found, key=lambda one: one.saved_at_ms)

    async def remove(
        self,
        instance: Instance,
        *,
        error: str | None = None,
        still: Callable[[], bool] = lambda: True,
    ) -> None:
        """Destroy it, and forget it; a later server finishes what this one can't.

        Raises EngineUnavailable, EngineError.
        """
        self._dooming.add(instance.spec.id)
        self.keep(instance)
        await self.records.flush()
        try:
            await instance.destroy(error=error, still=still)
        finally:
            if instance.destroyed:
                self.forget(instance)
            elif not still():
                self._spare(instance)
            await self.records.flush()

    def _spare(self, instance: Instance) -> None:
        """It is wanted after all."""
        self._dooming.discard(instance.spec.id)
        self.keep(instance)

    # --- the limit ------------------------------------------------------------------------------

    def admit(self, wanted: Instance | None) -> None:
        """Raises SandboxLimit when one more would be too many; never stops another instead."""
        running = sum(1 for one in self._instances.values() if one.active and one is not wanted)
        if running >= self._max_running:
            raise SandboxLimit(
                f"{running} sandboxes run already, as many as this server allows. "
                "Stop one, then try again."
            )

    def admitted(self, spec: SandboxSpec) -> Instance:
        """The active sandbox of this id, or a place for one. Raises SandboxLimit."""
        instance = self._instances.get(spec.id)
        stopping = instance is not None and instance.status == "stopping"
        if instance is None or not instance.active or (stopping and not self.is_going(spec.id)):
            self.admit(instance)
            instance = instance or self.make(spec)
            instance.request()
            self._dooming.discard(spec.id)
        return instance

    # --- what holds leases open -----------------------------------------------------------------

    def hold(self, id: str, holder: str) -> None:  # noqa: A002
        self._holds[id].add(holder)
        if instance := self._instances.get(id):
            instance.lease.hold(holder)

    def release(self, id: str, holder: str) -> None:  # noqa: A002
        self._holds[id].discard(holder)
        if not self._holds[id]:
            del self._holds[id]
        if instance := self._instances.get(id):
            instance.lease.release(holder)

    # --- told and written down ------------------------------------------------------------------

    def changed(self, record: SandboxRecord) -> None:
        if instance := self._instances.get(record.id):
            self.keep(instance)
        self._told[record.id] = record.expected_stop_at
        try:
            self._on_change(record)
        except Exception:  # the boundary to whoever listens; a sandbox must not stop half way
            log.exception("telling of sandbox %s failed", record.id)

    def keep(self, instance: Instance) -> None:
        stop_at = instance.record().expected_stop_at
        self._written[instance.spec.id] = (stop_at, self._clock())
        self.records.put(
            Kept(
                spec=instance.spec,
                status=instance.status,
                idle_since=instance.lease.idle_since,
                held=instance.lease.held,
                saved_at=instance.saved_at,
                size_bytes=instance.usage.size_bytes if instance.usage else None,
                size_exact=instance.usage is None or instance.usage.exact,
                last_error=instance.last_error,
                doomed=instance.spec.id in self._dooming,
            )
        )

    def tell_leases(self) -> None:
        """Tell of leases that were moved, once they have come to rest."""
        now = self._clock()
        for instance in self:
            record = instance.record()
            id, stop_at = record.id, record.expected_stop_at  # noqa: A001
            if instance.status != "running" or stop_at == self._told.get(id):
                self._moved.pop(id, None)
            elif self._moved.get(id, (0, 0))[0] != stop_at or id not in self._moved:
                self._moved[id] = (stop_at, now)
            elif now - self._moved[id][1] >= REST_S:
                del self._moved[id]
                self.changed(record)
            written, at = self._written.get(id, (None, 0.0))
            if instance.status == "running" and written != stop_at and now - at >= REST_S:
                self.keep(instance)

    async def load(self) -> None:
        """What earlier servers knew; whether it still holds is for the engine to say."""
        for kept in await self.records.load():
            if kept.doomed:
                self.doomed[kept.spec.id] = kept.spec
                continue
            instance = self.make(kept.spec)
            instance.lease.restore(kept.idle_since, held=kept.held)
            instance.saved_at = kept.saved_at
            if kept.size_bytes is not None:
                instance.usage = Usage(kept.size_bytes, exact=kept.size_exact)
            instance.last_error = kept.last_error
            if kept.status not in ("stopped", "error"):
                instance.status, instance.last_error = "error", NOT_MET
            else:
                instance.status = kept.status
