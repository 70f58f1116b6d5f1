"""What is known of one sandbox: its spec, status, lease, container, and the files it left.

Pure but for its clock. What moves it from one state to the next is `instance.py`'s.
"""

from collections.abc import Callable
from dataclasses import replace

from sandbox.disk import Usage
from sandbox.lease import Lease
from sandbox.spec import SandboxRecord, SandboxSpec


class Place:
    """`changed` is told of each change that others should know."""

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        clock: Callable[[], float],
        changed: Callable[[SandboxRecord], None],
    ) -> None:
        self.spec = spec
        self.status = "stopped"
        self.lease = Lease(clock, spec.sleep_after, keep_alive=spec.keep_alive)
        self.container: str | None = None
        self.saved_at: float | None = None  # of the files that are there and not in use
        self.usage: Usage | None = None  # of those files on disk, once measured
        self.last_error: str | None = None
        self.destroyed = False
        self._clock = clock
        self._changed = changed

    @property
    def active(self) -> bool:
        return self.status in ("requested", "starting", "running", "stopping")

    def record(self) -> SandboxRecord:
        stop_at = self.lease.stop_at if self.status == "running" else None
        return SandboxRecord(
            id=self.spec.id,
            status=self.status,
            workspace_saved=self.saved_at is not None,
            image=self.spec.image,
            instance_type=self.spec.instance_type,
            expected_stop_at=None if stop_at is None else round(stop_at * 1000),
            last_error=self.last_error,
            saved_at=None if self.saved_at is None else round(self.saved_at * 1000),
            workspace_bytes=self.usage.size_bytes if self.usage else None,
        )

    def tell(self) -> None:
        self._changed(self.record())

    def move(self, status: str) -> None:
        if status != self.status:
            self.status = status
            self.tell()

    def request(self) -> None:
        """A start was admitted: from now on it counts as active, also while it still stops."""
        self.status, self.last_error = "requested", None

    def respec(self, spec: SandboxSpec) -> None:
        """What a later start asks for; image, network, profile and runtime stay as they are.

        Of an active one only the lease changes, and only where it is asked for another.
        """
        if self.active and self.status != "stopping":
            self.spec = replace(self.spec, sleep_after=spec.sleep_after, keep_alive=spec.keep_alive)
        else:
            self.spec = replace(
                spec,
                image=self.spec.image,
                network=self.spec.network,
                profile=self.spec.profile,
                runtime=self.spec.runtime,
            )
        if self.lease.change(spec.sleep_after, keep_alive=spec.keep_alive):
            self.tell()

    def up(self, container: str) -> None:
        """It runs, so its files are in use."""
        self.container = container
        self.last_error = self.saved_at = self.usage = None

    def saved(self) -> None:
        self.saved_at, self.usage = self._clock(), None

    def stopped(self) -> None:
        """A stop is done; a start that was asked for meanwhile goes on from here."""
        if self.status == "requested":
            self.tell()
        else:
            self.move("stopped")

    def adopt(self, container: str) -> None:
        """A container of ours that was left, stopped."""
        self.container, self.status = container, "stopped"
        self.saved_at = self.saved_at or self._clock()

    def lost(self, message: str) -> None:
        """Its container is gone."""
        self.container = self.saved_at = self.usage = None
        self.status, self.last_error = "stopped", message
