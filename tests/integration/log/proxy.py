"""A proxy between a store and Valkey that cuts connections at the worst moment."""

import asyncio
import contextlib


class Proxy:
    """Listens on a Unix socket. `cut` says how many requests to lose the answers of.

    A request whose answer is lost has reached Valkey: the connection is cut once it answered.
    """

    def __init__(self, path, target):
        self.url = f"unix://{path}"
        self.cut = 0
        self.forwarded = 0
        self._path, self._target = path, target
        self._server = None
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        theirs, ours = await asyncio.open_unix_connection(self._target)
        self._writers.add(ours)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(self._requests(reader, ours), self._answers(theirs, writer, ours))

    async def _requests(self, reader, ours):
        while data := await reader.read(2**16):
            ours.cuts = getattr(ours, "cuts", False) or (b"EVAL" in data and self.cut > 0)
            self.forwarded += b"EVAL" in data
            ours.write(data)
        ours.close()

    async def _answers(self, theirs, writer, ours):
        while data := await theirs.read(2**16):
            if getattr(ours, "cuts", False):
                self.cut -= 1
                break
            writer.write(data)
        writer.close()
        ours.close()
