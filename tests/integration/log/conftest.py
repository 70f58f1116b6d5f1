"""A real Valkey for each test, and what stands on it."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from server.roomlog import RoomLog
from server.store import Store
from server.valkey import EmbeddedValkey


class Node:
    """One embedded Valkey with stores on it; `kill` and `again` are its accidents."""

    def __init__(self, folder: Path):
        self.valkey = EmbeddedValkey(folder)
        self.durable = self.valkey.runs.ids
        self._stores = []

    def store(self, url=None, durable_runs=None):
        store = Store(url or self.valkey.url, durable_runs=durable_runs or self.durable)
        self._stores.append(store)
        return store

    def signal(self, number):
        os.kill(self.valkey.pid, number)

    async def close(self):
        for store in self._stores:
            await store.close()
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        await self.valkey.close()


@pytest.fixture
async def node(tmp_path):
    """A Valkey of this test's own."""
    node = Node(tmp_path / "valkey")
    await node.valkey.open()
    try:
        yield node
    finally:
        await node.close()


@pytest.fixture
def store(node):
    return node.store()


@pytest.fixture
def log(store):
    return RoomLog(store, history_events=10_000)


@pytest.fixture
async def room(log):
    await log.create("blue", "Blue", "", "p_owner")
    return "blue"
