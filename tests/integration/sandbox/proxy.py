"""The engine's socket with a switch on it: cut, stalled or whole, without touching the engine."""

import asyncio

ENGINE = "/var/run/docker.sock"


class Proxy:
    def __init__(self, path):
        self.path = path
        self._server = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks = set()
        self._writers = set()

    @property
    def host(self):
        return f"unix://{self.path}"

    async def open(self):
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def cut(self):
        """Every connection breaks; new ones are taken while it is open."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def close(self):
        self._server.close()
        self.path.unlink(missing_ok=True)
        self.cut()

    def stall(self):
        """Connections stay and are taken, and nothing goes through."""
        self._flowing.clear()

    def flow(self):
        self._flowing.set()

    async def stop(self):
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        theirs, ours = await asyncio.open_unix_connection(ENGINE)
        self._writers |= {writer, ours}
        await asyncio.gather(
            self._pump(reader, ours), self._pump(theirs, writer), return_exceptions=True
        )
        self._tasks.discard(task)

    async def _pump(self, reader, writer):
        try:
            while data := await reader.read(65_536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
