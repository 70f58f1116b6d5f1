"""What the tests of sandboxes use: a sink that keeps, a box to run in, houses that clean up."""

import asyncio
import itertools
import json
import secrets

from sandbox import containers
from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import ExecSpec

LIMIT_S = 30.0  # of one command of a test; none needs a third of it
WINDOW_BYTES = 256 * 1024


class Sink:
    """Keeps all output, grants and stores as it comes; `until` awaits something in it."""

    def __init__(self, *, keep=True, have=()):
        self.process, self.keep = None, keep
        self.chunks, self.size, self.tail = [], dict(have), b""
        self._news = asyncio.Event()

    def output(self, stream, at, data):
        assert at == self.size.get(stream, 0)
        self.size[stream] = at + len(data)
        if self.keep:
            self.chunks.append((stream, data))
        self.tail = (self.tail + data)[-4096:]
        self._news.set()
        if self.process is not None:
            self.consume(stream)

    def consume(self, stream):
        at = self.size.get(stream, 0)
        self.process.grant(stream, at + WINDOW_BYTES)
        self.process.ack(stream, at)

    def of(self, stream):
        return b"".join(data for name, data in self.chunks if name == stream)

    @property
    def stdout(self):
        return self.of("stdout")

    async def until(self, wanted):
        async with asyncio.timeout(LIMIT_S):
            while wanted not in self.tail:
                self._news.clear()
                await self._news.wait()

    async def beyond(self, stream, size):
        async with asyncio.timeout(LIMIT_S):
            while self.size.get(stream, 0) <= size:
                self._news.clear()
                await self._news.wait()


class Box:
    """One sandbox with the few moves that tests make."""

    _numbers = itertools.count()

    def __init__(self, manager, spec):
        self.manager, self.spec = manager, spec

    async def begin(self, command=None, *, sink=None, **fields):
        sink = sink or Sink()
        spec = ExecSpec(f"x{next(self._numbers)}", command, **fields)
        async with asyncio.timeout(LIMIT_S):
            sink.process = process = await self.manager.execute(self.spec, spec, sink)
        for stream in ("pty",) if spec.pty else ("stdout", "stderr"):
            sink.consume(stream)
        return process, sink

    async def run(self, command=None, **fields):
        process, sink = await self.begin(command, **fields)
        async with asyncio.timeout(LIMIT_S):
            return await process.wait(), sink

    async def text(self, command):
        """What a command that succeeds prints."""
        result, sink = await self.run(command)
        assert result.ok, (result, sink.of("stderr"))
        return sink.stdout.decode()

    async def inspect(self):
        name = containers.container_name(self.manager._config.owner, self.spec.id)
        return await self.manager.engine.inspect(name)

    async def docker(self, *words):
        """The engine from outside, as somebody at a shell would use it."""
        found = await self.inspect()
        process = await asyncio.create_subprocess_exec(
            "docker", *words, found["Id"], stdout=asyncio.subprocess.DEVNULL
        )
        assert await process.wait() == 0


class Houses:
    """Makes managers, and remembers what to clean up."""

    def __init__(self):
        self.owner = f"test-{secrets.token_hex(4)}"
        self.managers = []
        self.changes = []

    async def manager(self, **fields):
        config = ManagerConfig(**{"owner": self.owner, **fields})
        manager = Manager(config, on_change=self.changes.append)
        await manager.open()
        self.managers.append(manager)
        return manager

    async def clean_up(self):
        engine = self.managers[0].engine
        for manager in self.managers:
            await manager.close(keep=False)
        for found in await engine.list(f"{containers.OWNER_LABEL}={self.owner}"):
            await engine.remove(found["Id"])
        filters = json.dumps({"label": [f"{containers.OWNER_LABEL}={self.owner}"]})
        volumes = await engine.call(
            "GET", "volumes", params={"filters": filters}, timeout_s=LIMIT_S
        )
        for volume in volumes["Volumes"] or ():
            await engine.remove_volume(volume["Name"])
        await engine.close()


async def alive(box, word):
    """The command lines in the sandbox that have `word` in them."""
    text = await box.text("ps -eo args")
    return [line for line in text.splitlines() if str(word) in line]
