"""An engine of the tests' own: containers as rows, with the states and races a real one can't be
brought to at will. A runner it has not, so nothing runs in it.
"""

import asyncio
import secrets
import time
from contextlib import asynccontextmanager

from sandbox import containers
from sandbox.engine import EngineInfo
from sandbox.errors import EngineError
from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import SandboxSpec

OWNER = "test"
RUNS = ("running", "paused", "restarting")


class FakeEngine:
    """`rows` by container id: name, labels and state. `meanwhile` runs while a list is on its way:
    what it changes the list does not show.
    """

    def __init__(self):
        self.rows, self.volumes = {}, {}
        self.inspected, self.killed = [], []
        self.meanwhile = None
        self.gate = asyncio.Event()  # inspections wait while it is shut
        self.gate.set()
        self.host, self.restores = "unix:///nowhere", False

    def add(self, name="one", state="exited", **spec):
        container = secrets.token_hex(8)
        made = SandboxSpec(name, **spec)
        labels = containers.labels(OWNER, made)
        self.rows[container] = {
            "name": containers.container_name(OWNER, name),
            "labels": labels,
            "state": state,
        }
        return container

    def _find(self, wanted):
        for container, row in self.rows.items():
            if wanted in (container, row["name"]):
                return container, row
        return None, None

    def state(self, name):
        return self._find(containers.container_name(OWNER, name))[1]["state"]

    async def asked(self, count):
        """Returns once so many inspections were asked for."""
        async with asyncio.timeout(5):
            while len(self.inspected) < count:  # noqa: ASYNC110  (turns of the loop)
                await asyncio.sleep(0)

    async def list(self, label):
        assert label == f"{containers.OWNER_LABEL}={OWNER}"
        found = [
            {
                "Id": container,
                "Names": [f"/{row['name']}"],
                "Labels": row["labels"],
                "State": row["state"],
            }
            for container, row in self.rows.items()
        ]
        if self.meanwhile is not None:
            work, self.meanwhile = self.meanwhile, None
            await work()
        return found

    async def inspect(self, wanted, **_):
        self.inspected.append(wanted)
        await self.gate.wait()
        container, row = self._find(wanted)
        if row is None:
            return None
        state = row["state"]
        return {
            "Id": container,
            "Config": {"Labels": row["labels"]},
            "HostConfig": {},
            "Mounts": [],
            "State": {
                "Status": state,
                "Running": state in RUNS,
                "Paused": state == "paused",
                "Restarting": state == "restarting",
                "Dead": state == "dead",
            },
        }

    async def kill(self, wanted, signal="KILL"):
        self.killed.append(wanted)
        _, row = self._find(wanted)
        if row is not None and row["state"] in RUNS:
            row["state"] = "exited"

    async def remove(self, wanted):
        container, row = self._find(wanted)
        if row is not None and row["state"] != "removing":
            del self.rows[container]

    async def remove_with_volumes(self, wanted, label):
        await self.remove(wanted)

    async def volume(self, name):
        return self.volumes.get(name)

    async def remove_volume(self, name):
        self.volumes.pop(name, None)

    async def unpause(self, wanted):
        self._find(wanted)[1]["state"] = "running"

    async def update(self, wanted, limits):
        state = self._find(wanted)[1]["state"]
        if state in ("dead", "removing"):
            raise EngineError(409, "Container is marked for removal and cannot be updated")

    async def create(self, name, config):
        if self._find(name)[1] is not None:
            raise EngineError(409, f"The container name {name} is already in use")
        container = secrets.token_hex(8)
        self.rows[container] = {"name": name, "labels": config["Labels"], "state": "created"}
        return container

    async def ensure_network(self, name, options):
        pass

    async def attach(self, wanted, attachment):
        raise EngineError(409, "this engine runs nothing")

    async def ping(self, timeout_s=2.0):
        pass

    async def info(self, *, fresh=False):
        return EngineInfo("20.10", 2, 2**34, ("runc",), False, "1.1")

    async def close(self):
        pass


@asynccontextmanager
async def managing(engine, monkeypatch, changes, clock=time.time, **fields):
    """A manager on that engine."""
    monkeypatch.setattr("sandbox.manager.Engine", lambda _: engine)
    manager = Manager(ManagerConfig(OWNER, **fields), on_change=changes.append, clock=clock)
    await manager.open()
    try:
        yield manager
    finally:
        await manager.close()
