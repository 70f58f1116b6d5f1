"""Sandboxes by id for the Python client: list, start, execute, kill, destroy.

For who leases environments and has no room; a room's own sandbox is used through the room.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from protocol import commands, events
from protocol.client_run import Run, Runs
from protocol.errors import DuetError
from protocol.model import PtySize
from protocol.shapes import Sandbox


class Connection(Protocol):
    """What these calls need of the client."""

    runs: Runs

    async def request(self, command: commands.Command) -> events.Ack: ...


class SandboxCalls:
    """The client's methods for sandboxes. Each raises the contract's errors."""

    async def list_sandboxes(self: Connection) -> list[Sandbox]:
        """Every sandbox of the server, running or saved."""
        found: dict[str, Sandbox] = {}
        ask = commands.SandboxList()
        while True:
            ack = await self.request(ask)
            found |= {one.id: one for one in ack.sandboxes or []}
            if not (ack.more and ack.sandboxes):
                return list(found.values())
            ask = commands.SandboxList(after=ack.sandboxes[-1].id)

    async def start_sandbox(
        self: Connection,
        id: str,  # noqa: A002 - the contract's own name
        *,
        image: str = "workspace",
        instance_type: str = "lite",
        sleep_after: str | int = "10m",
        keep_alive: bool = False,
        startup_command: str = "true",
        startup_timeout_ms: int = 30_000,
        network: str | None = None,
    ) -> Sandbox:
        """Its record, at once; `sandbox` events tell when it is running or in error."""
        asked = commands.SandboxStart(
            id=id,
            image=image,
            instance_type=instance_type,
            sleep_after=sleep_after,
            keep_alive=keep_alive,
            startup_command=startup_command,
            startup_timeout_ms=startup_timeout_ms,
            network=network,
        )
        return _record(await self.request(asked))

    async def execute_command(
        self: Connection,
        sandbox: str,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        stdin: bool = False,
        pty: PtySize | None = None,
        key: str | None = None,
    ) -> Run:
        """Start a command in a sandbox that was started; iterate or `wait` the run."""
        asked = commands.Exec(
            sandbox=sandbox,
            command=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else list(command),
            cwd=cwd,
            env=None if env is None else dict(env),
            timeout_ms=timeout_ms,
            stdin=stdin,
            pty=pty,
            key=key,
        )
        return await self.runs.start(asked)

    async def follow_command(self: Connection, exec_id: str) -> Run:
        """The run of a command without a room that an earlier session began, from its first byte.

        It may have ended meanwhile. Raises UnknownExec for one that is not known (any more).
        """
        run = self.runs.follow(exec_id)
        ack = await self.request(commands.ExecRead(exec=exec_id, at=0, limit=1))
        if ack.exited is not None:
            self.runs.exited(ack.exited)
        return run

    async def kill_sandbox(self: Connection, id: str) -> Sandbox:  # noqa: A002
        """Save and stop it: starting the same id again resumes it."""
        return _record(await self.request(commands.SandboxKill(id=id)))

    async def destroy(self: Connection, id: str) -> None:  # noqa: A002
        """Remove a sandbox with its workspace, for good."""
        await self.request(commands.SandboxDestroy(id=id))

    destroy_sandbox = destroy  # by its whole name, as its siblings have theirs


def _record(ack: events.Ack) -> Sandbox:
    if ack.sandbox is None:
        raise DuetError("The server's answer holds no sandbox.")
    return ack.sandbox
