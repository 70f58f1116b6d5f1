"""The container engine: the one module that knows aiodocker and the engine's HTTP.

Every call is bounded in time and fails with EngineUnavailable (no answer) or EngineError (the
engine said no). What containers look like is decided in `containers.py`, the wire inside the
attached stdio in `link.py`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import aiodocker
import aiohttp

from sandbox.attach import Attachment
from sandbox.errors import EngineError, EngineUnavailable

DEFAULT_HOST = "unix:///var/run/docker.sock"
CALL_S = 10.0  # an engine under load answers in well under a second; a hung one never
START_S = 30.0  # a start sets up network and mounts, and queues behind others
_NO_CONNECTION = 900  # aiodocker's own status for "cannot connect"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    version: str
    cpus: int
    memory_bytes: int
    runtimes: tuple[str, ...]
    live_restore: bool
    runc: str
    driver: str = ""
    backing: str = ""  # the file system under a driver that has one


def resolve_host(configured: str | None) -> str:
    """The engine's address: the setting, else DOCKER_HOST, else the usual socket."""
    return configured or os.environ.get("DOCKER_HOST") or DEFAULT_HOST


class Engine:
    """Cheap to make and needs no engine to be there; connects at the first call."""

    def __init__(self, host: str | None = None) -> None:
        self.host = resolve_host(host)
        self._docker: aiodocker.Docker | None = None
        self._info: EngineInfo | None = None

    async def close(self) -> None:
        docker, self._docker = self._docker, None
        if docker is not None:
            await docker.close()
            await docker.connector.close()  # ours, so aiodocker leaves it open

    async def call(
        self, method: str, path: str, *, timeout_s: float = CALL_S, **kwargs: Any
    ) -> Any:
        """One request; the decoded JSON or text. Raises EngineUnavailable, EngineError."""
        return await self._bounded(
            lambda docker: docker._query_json(path, method, **kwargs),  # noqa: SLF001
            timeout_s,
        )

    async def ping(self, timeout_s: float = 2.0) -> None:
        await self.call("GET", "_ping", versioned_api=False, timeout_s=timeout_s)

    async def info(self, *, fresh: bool = False) -> EngineInfo:
        if self._info is None or fresh:
            raw = await self.call("GET", "info")
            self._info = EngineInfo(
                version=str(raw.get("ServerVersion", "")),
                cpus=int(raw.get("NCPU") or 1),
                memory_bytes=int(raw.get("MemTotal") or 0),
                runtimes=tuple(raw.get("Runtimes") or {}),
                live_restore=bool(raw.get("LiveRestoreEnabled")),
                runc=str((raw.get("RuncCommit") or {}).get("ID", "")),
                driver=str(raw.get("Driver") or ""),
                backing=dict(raw.get("DriverStatus") or []).get("Backing Filesystem", ""),
            )
        return self._info

    async def runc(self) -> str:
        """The version of its runc; empty where it uses none or does not say."""
        said = await self.call("GET", "version", versioned_api=False)
        parts = {one.get("Name"): one.get("Version") for one in said.get("Components") or ()}
        return str(parts.get("runc") or "")

    @property
    def restores(self) -> bool:
        """Whether containers outlive the engine, as far as it has told."""
        return self._info is not None and self._info.live_restore

    # --- containers -----------------------------------------------------------------------------

    async def create(self, name: str, config: Mapping[str, Any]) -> str:
        made = await self.call(
            "POST", "containers/create", params={"name": name}, data=dict(config)
        )
        return str(made["Id"])

    async def start(self, container: str) -> None:
        await self.call("POST", f"containers/{container}/start", timeout_s=START_S)

    async def kill(self, container: str, signal: str = "KILL") -> None:
        """Idempotent: a container that does not run, or is not there, is killed."""
        await _unless(
            (404, 409), self.call("POST", f"containers/{container}/kill", params={"signal": signal})
        )

    async def unpause(self, container: str) -> None:
        await _unless((404, 409), self.call("POST", f"containers/{container}/unpause"))

    async def stop(self, container: str, grace_s: int, *, timeout_s: float = CALL_S) -> None:
        """TERM, then KILL after `grace_s`; answers when it is down. Idempotent as `kill`."""
        path = f"containers/{container}/stop"
        await _unless(
            (304, 404),
            self.call("POST", path, params={"t": str(grace_s)}, timeout_s=grace_s + timeout_s),
        )

    async def remove(self, container: str) -> None:
        """Kill and remove with its anonymous volumes. Idempotent."""
        params = {"force": "1", "v": "1"}
        await _unless(
            (404, 409),
            self.call("DELETE", f"containers/{container}", params=params, timeout_s=START_S),
        )

    async def remove_with_volumes(self, container: str, label: str) -> None:
        """The same with those of its volumes that carry `label`, which are ours."""
        found = await self.inspect(container)
        await self.remove(container)
        for mount in (found or {}).get("Mounts") or ():
            volume = await self.volume(mount["Name"]) if mount.get("Type") == "volume" else None
            if label in ((volume or {}).get("Labels") or {}):
                await self.remove_volume(mount["Name"])

    async def volume(self, name: str) -> dict[str, Any] | None:
        found = await _unless((404,), self.call("GET", f"volumes/{name}"))
        return dict(found) if found else None

    async def rename(self, container: str, name: str) -> None:
        await self.call("POST", f"containers/{container}/rename", params={"name": name})

    async def remove_volume(self, name: str) -> None:
        await _unless((404,), self.call("DELETE", f"volumes/{name}"))

    async def inspect(
        self, container: str, *, size: bool = False, timeout_s: float = CALL_S
    ) -> dict[str, Any] | None:
        """Everything the engine knows of a container; None when there is none.

        With `size` it looks through all its files, which takes a while.
        """
        path = f"containers/{container}/json" + ("?size=1" if size else "")
        found = await _unless((404,), self.call("GET", path, timeout_s=timeout_s))
        return dict(found) if found else None

    async def list(self, label: str) -> list[dict[str, Any]]:
        filters = json.dumps({"label": [label]})
        found = await self.call("GET", "containers/json", params={"all": "1", "filters": filters})
        return list(found)

    async def update(self, container: str, limits: Mapping[str, Any]) -> None:
        await self.call("POST", f"containers/{container}/update", data=dict(limits))

    async def attach(self, container: str, attachment: Attachment) -> None:
        """Connect `attachment` to the container's stdio, started or not."""
        async with _translated(self.host):
            async with asyncio.timeout(CALL_S):
                await attachment.connect(self.host, container)

    async def ensure_network(self, name: str, options: Mapping[str, str]) -> None:
        """A bridge of that name; another server on this engine may have made it meanwhile."""
        if await _unless((404,), self.call("GET", f"networks/{name}")):
            return
        config = {
            "Name": name,
            "Driver": "bridge",
            "CheckDuplicate": True,
            "Options": dict(options),
            "Labels": {"duet.network": "1"},
        }
        await _unless((409,), self.call("POST", "networks/create", data=config, timeout_s=START_S))

    # --- images ---------------------------------------------------------------------------------

    async def image(self, name: str) -> dict[str, Any] | None:
        found = await _unless((404,), self.call("GET", f"images/{name}/json"))
        return dict(found) if found else None

    async def pull(self, name: str, tag: str, *, first_answer_s: float) -> None:
        """Raises EngineUnavailable too when no registry begins to answer in time."""
        params = {"fromImage": name, "tag": tag}
        lines = self._lines("images/create", params=params)
        try:
            async with asyncio.timeout(first_answer_s):
                await anext(lines, None)
        except TimeoutError:
            raise EngineUnavailable("No image registry answers.") from None
        async for _ in lines:
            pass

    def build(
        self,
        context: bytes,
        *,
        tag: str,
        target: str,
        args: Mapping[str, str],
        labels: Mapping[str, str],
    ) -> AsyncIterator[dict[str, Any]]:
        """Build from `context`, a tar with a Dockerfile. Progress as decoded lines."""
        params = {
            "t": tag,
            "target": target,
            "buildargs": json.dumps(dict(args)),
            "labels": json.dumps(dict(labels)),
            "rm": "1",
            "forcerm": "1",
            "networkmode": "host",  # name servers on loopback answer there only
        }
        headers = {"Content-Type": "application/x-tar"}
        return self._lines("build", params=params, headers=headers, data=context)

    def import_image(
        self, tar: AsyncIterator[bytes], *, repo: str, tag: str, changes: tuple[str, ...]
    ) -> AsyncIterator[dict[str, Any]]:
        """`docker import`: a root file system becomes an image. Progress as decoded lines."""
        params = [("fromSrc", "-"), ("repo", repo), ("tag", tag)]
        params += [("changes", change) for change in changes]
        headers = {"Content-Type": "application/x-tar"}
        # aiodocker's own parameters can't repeat a name.
        return self._lines(f"images/create?{urlencode(params)}", headers=headers, data=tar)

    async def _lines(self, path: str, **kwargs: Any) -> AsyncIterator[dict[str, Any]]:
        async with _translated(self.host):
            docker = await self._client()
            forever = aiohttp.ClientTimeout(total=None)
            async with docker._query(path, "POST", timeout=forever, **kwargs) as response:  # noqa: SLF001
                async for line in response.content:
                    fields = json.loads(line)
                    if "error" in fields:
                        raise EngineError(500, str(fields["error"]))
                    yield fields

    # --- calling --------------------------------------------------------------------------------

    async def _client(self) -> aiodocker.Docker:
        if self._docker is None:
            if not self.host.startswith(("unix://", "tcp://", "http://")):
                raise EngineUnavailable(
                    f"The engine's address {self.host} is neither unix:// nor tcp://."
                )
            # Without a limit: attachments and waits would use up aiohttp's hundred connections.
            connector = (
                aiohttp.UnixConnector(self.host.removeprefix("unix://"), limit=0)
                if self.host.startswith("unix://")
                else None
            )
            self._docker = aiodocker.Docker(url=self.host, connector=connector)
            if connector is not None:
                self._docker.docker_host = "unix://localhost"
        return self._docker

    async def _bounded(
        self, request: Callable[[aiodocker.Docker], Awaitable[Any]], timeout_s: float
    ) -> Any:
        async with _translated(self.host), asyncio.timeout(timeout_s):
            return await request(await self._client())


class _translated:  # noqa: N801  (reads as a word at its uses)
    """The engine's errors as ours."""

    def __init__(self, host: str) -> None:
        self._host = host

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, TimeoutError):
            raise EngineUnavailable(
                f"The container engine at {self._host} does not answer. "
                "Run `duet doctor` to see what is wrong."
            ) from error
        if isinstance(error, aiodocker.DockerError) and error.status != _NO_CONNECTION:
            raise EngineError(error.status, str(error.message)) from error
        if isinstance(error, (aiodocker.DockerError, aiohttp.ClientError, OSError)):
            raise EngineUnavailable(
                f"No container engine answers at {self._host}. "
                "Start Docker, or run `duet doctor --fix` to install it."
            ) from error


async def _unless(statuses: tuple[int, ...], call: Awaitable[Any]) -> Any:
    """The call's answer, or None when the engine refused with one of `statuses`."""
    try:
        return await call
    except EngineError as error:
        if error.status in statuses:
            return None
        raise
