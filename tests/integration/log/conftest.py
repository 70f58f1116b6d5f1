"""A real Valkey, shared by tests that only use it, and what stands on it."""

import asyncio
import contextlib
import os
import signal

import pytest

from server.roomlog import RoomLog
from server.store import Store
from server.valkey import EmbeddedValkey


class Node:
    """An embedded Valkey with stores on it, which are closed when the test ends."""

    def __init__(self, valkey):
        self.valkey = valkey
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


@pytest.fixture(scope="session")
def shared_valkey(tmp_path_factory):
    """One Valkey for all tests that do not harm it."""
    with asyncio.Runner() as runner:
        valkey = EmbeddedValkey(tmp_path_factory.mktemp("shared") / "valkey")
        runner.run(valkey.open())
        try:
            yield valkey
        finally:
            runner.run(valkey.close())


@pytest.fixture
async def node(request, tmp_path, shared_valkey):
    """A Valkey with nothing in it; a module's own where it sets OWN_VALKEY."""
    own = getattr(request.module, "OWN_VALKEY", False)
    valkey = EmbeddedValkey(tmp_path / "valkey") if own else shared_valkey
    if own:
        await valkey.open()
    node = Node(valkey)
    try:
        await node.store().call("FLUSHALL")
        yield node
    finally:
        await node.close()
        if own:
            with contextlib.suppress(ProcessLookupError):
                node.signal(signal.SIGCONT)
            await valkey.close()


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
