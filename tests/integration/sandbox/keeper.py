"""A server in small, in a process of its own that can be killed: runs commands, stores what they print.

Output goes to files `<folder>/<exec>.<stream>`, an end to `<folder>/<exec>.end`, both as a server
stores them: first there, then acknowledged.
"""

import asyncio
import os
import sys
from pathlib import Path

from sandbox.manager import Manager, ManagerConfig
from sandbox.spec import ExecSpec, SandboxSpec

WINDOW_BYTES = 256 * 1024


class Store:
    def __init__(self, folder, name):
        self.folder, self.name, self.process, self.files = folder, name, None, {}

    def file(self, stream):
        if stream not in self.files:
            self.files[stream] = (self.folder / f"{self.name}.{stream}").open("ab", buffering=0)
        return self.files[stream]

    def output(self, stream, at, data):
        assert self.file(stream).tell() == at
        self.file(stream).write(data)
        if self.process is not None:
            self.process.ack(stream, at + len(data))
            self.process.grant(stream, at + len(data) + WINDOW_BYTES)

    def have(self):
        sizes = {s: self.folder / f"{self.name}.{s}" for s in ("stdout", "stderr", "pty")}
        return {stream: path.stat().st_size for stream, path in sizes.items() if path.exists()}


async def follow(store, process, *, confirm):
    store.process = process
    for stream, size in store.have().items():
        process.ack(stream, size)
        process.grant(stream, size + WINDOW_BYTES)
    result = await process.wait()
    (store.folder / f"{store.name}.end").write_text(f"{result.reason} {result.exit_code}\n")
    if confirm:
        process.confirm()


async def main(owner, folder, *commands):
    manager = Manager(ManagerConfig(owner), on_change=lambda _: None)
    await manager.open()
    async with asyncio.TaskGroup() as group:
        for number, command in enumerate(commands):
            store = Store(Path(folder), f"k{number}")
            spec = ExecSpec(store.name, command, timeout_ms=20_000)
            process = await manager.execute(
                SandboxSpec("kept", instance_type="standard-2"), spec, store
            )
            group.create_task(follow(store, process, confirm=False))
        os.write(1, b"up\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
