"""What happens to a room's log when answers are lost, Valkey is killed, or it hangs."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from protocol.errors import Unavailable, UnknownRoom
from server.errors import StartupError
from server.roomlog import RoomLog
from server.store import CALL_S, Store
from server.valkey import EmbeddedValkey
from tests.integration.log.appends import exited, message, started
from tests.integration.log.proxy import Proxy

OWN_VALKEY = True


async def count(log):
    entries, _ = await log.page("blue", before=None, after=0, limit=200)
    return len(entries)


@contextlib.asynccontextmanager
async def watched(node):
    """Valkey is started again when it ends, as in a server."""
    watching = asyncio.create_task(node.valkey.watch())
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def killed(node):
    """Kill Valkey and wait until the next one serves and is known; returns its run id."""
    before = node.valkey.runs.ids()
    node.signal(signal.SIGKILL)
    async with asyncio.timeout(15):
        while node.valkey.runs.ids() == before:  # noqa: ASYNC110 - the watcher tells nobody
            await asyncio.sleep(0.01)
    return node.valkey.runs.ids()[-1]


# Answers that are lost


@pytest.fixture
async def cutting(node, tmp_path, room):
    """A log whose answers get lost when `proxy.cut` says so, with one warm connection."""
    async with Proxy(str(tmp_path / "proxy"), node.valkey.url.removeprefix("unix://")) as proxy:
        log = RoomLog(node.store(proxy.url), history_events=10_000)
        await log.room(room)
        yield log, proxy


async def test_an_append_whose_answer_was_lost_is_sent_again_and_stored_once(cutting, log) -> None:
    through, proxy = cutting
    await through.append("blue", message("first"))
    proxy.cut, before = 1, proxy.forwarded
    done = await through.append("blue", message("second"))
    assert proxy.forwarded >= before + 2
    assert done.offset == 2
    assert await count(log) == 2


async def test_an_append_whose_every_answer_is_lost_is_told_and_stored_once(cutting, log) -> None:
    through, proxy = cutting
    append = message("hi", key="k")
    proxy.cut = 10
    with pytest.raises(Unavailable) as told:
        await through.append("blue", append)
    assert told.value.retryable
    proxy.cut = 0
    assert (await through.append("blue", append)).offset == 1
    assert await count(log) == 1


async def test_an_end_whose_answer_was_lost_is_an_end_once(cutting, log) -> None:
    through, proxy = cutting
    await through.append("blue", started("blue.1"))
    proxy.cut = 1
    assert (await through.append("blue", exited("blue.1"))).offset == 2
    assert (await through.append("blue", exited("blue.1"))).offset == 2
    assert await count(log) == 2


async def test_many_appends_through_a_bad_connection_are_each_there_once(cutting, log) -> None:
    through, proxy = cutting
    proxy.cut = 8
    appends = [message(f"{number}", key=f"k{number}") for number in range(40)]
    told = await asyncio.gather(
        *(through.append("blue", append) for append in appends), return_exceptions=True
    )
    assert all(not isinstance(one, Exception) or isinstance(one, Unavailable) for one in told)
    proxy.cut = 0
    again = await asyncio.gather(*(through.append("blue", append) for append in appends))
    assert sorted(one.offset for one in again) == list(range(1, 41))
    for before, after in zip(told, again, strict=True):
        assert isinstance(before, Unavailable) or before == after
    assert await count(log) == 40


async def test_a_room_whose_creation_was_not_answered_is_not_taken_by_someone_else(cutting) -> None:
    through, proxy = cutting
    await through.append("blue", message("warm"))
    proxy.cut = 1
    assert await through.create("red", "Red", "", "p") > 0
    assert (await through.room("red"))["name"] == "Red"


# Valkey is killed


async def test_killed_and_started_again_it_has_lost_nothing(node, log, room) -> None:
    async with watched(node):
        done = [await log.append(room, message(f"{number}")) for number in range(50)]
        await log.append(room, started("blue.1"))
        run = await node.store().run_id()
        assert await killed(node) != run
        snapshot = await log.snapshot(room, (done[0].epoch, 10))
        assert (snapshot.epoch, snapshot.offset, snapshot.resumed) == (done[0].epoch, 51, True)
        assert [entry.offset for entry in snapshot.entries] == list(range(11, 52))
        assert set(snapshot.running) == {"blue.1"}
        after = await log.append(room, message("after"))
        assert (after.epoch, after.offset) == (done[0].epoch, 52)
        assert after.ts >= done[-1].ts


async def test_an_append_that_was_under_way_is_stored_once_or_told(node, log, room) -> None:
    async with watched(node):
        appends = [message(f"{number}", key=f"k{number}") for number in range(200)]
        tasks = [asyncio.create_task(log.append(room, append)) for append in appends]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await killed(node)
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(not isinstance(one, Exception) or isinstance(one, Unavailable) for one in told)
        again = [await log.append(room, append) for append in appends]
        assert sorted(one.offset for one in again) == list(range(1, 201))
        for before, after in zip(told, again, strict=True):
            assert isinstance(before, Unavailable) or before == after


async def test_a_run_that_is_not_known_to_be_durable_starts_a_new_epoch(node, room) -> None:
    log = RoomLog(node.store(durable_runs=tuple), history_events=10_000)
    before = await log.append(room, message("hi"))
    async with watched(node):
        await killed(node)
        snapshot = await log.snapshot(room, (before.epoch, before.offset))
        assert snapshot.epoch != before.epoch
        assert not snapshot.resumed
        assert [entry.offset for entry in snapshot.entries] == [1]
        with pytest.raises(Unavailable):
            await log.append(room, message("old"), epoch=before.epoch)
        after = await log.append(room, message("new"))
        assert (after.epoch, after.offset) == (snapshot.epoch, 2)
        assert (await log.snapshot(room, None)).epoch == snapshot.epoch


async def test_killed_again_and_again_it_has_still_lost_nothing(node, log, room) -> None:
    async with watched(node):
        done = await log.append(room, message("0"))
        for number in range(1, 3):
            await killed(node)
            again = await log.append(room, message(f"{number}"))
            assert (again.epoch, again.offset) == (done.epoch, number + 1)


def busy(file: Path, until: threading.Event) -> None:
    """Keep the disk busy."""
    while not until.is_set():
        with file.open("wb") as out:
            out.write(bytes(64 * 2**20))
            out.flush()
            os.fsync(out.fileno())


async def test_what_is_answered_is_in_the_file_however_busy_the_disk(
    node, log, room, tmp_path
) -> None:
    """While Valkey's own sync goes on, it would answer before it writes."""
    assert (await node.store().call("CONFIG", "GET", "appendfsync"))[1] == b"no"
    over = threading.Event()
    storm = asyncio.create_task(asyncio.to_thread(busy, tmp_path / "junk", over))
    syncing = asyncio.create_task(node.valkey.sync())
    try:
        for number in range(200):
            await log.append(room, message(f"<{number}>"))
            kept = b"".join(
                file.read_bytes() for file in tmp_path.glob("valkey/appendonlydir/*.incr.aof")
            )
            assert f"<{number}>".encode() in kept
            await asyncio.sleep(0.01)  # a second or two in all: some syncs
    finally:
        over.set()
        syncing.cancel()
        await asyncio.wait([storm, syncing])


async def test_it_is_open_when_it_has_loaded_its_data(tmp_path) -> None:
    first = EmbeddedValkey(tmp_path / "valkey")
    await first.open()
    store = Store(first.url)
    for number in range(40):
        await store.call("SET", f"k{number}", b"x" * 2**20)
    await store.close()
    await first.close()
    second = EmbeddedValkey(tmp_path / "valkey")
    await second.open()
    try:
        store = Store(second.url)
        assert await store.call("STRLEN", "k39") == 2**20
        await store.close()
    finally:
        await second.close()


async def test_stopped_in_order_and_opened_again_it_is_the_same_log(tmp_path) -> None:
    first = EmbeddedValkey(tmp_path / "valkey")
    await first.open()
    store = Store(first.url, durable_runs=first.runs.ids)
    log = RoomLog(store, history_events=100)
    await log.create("blue", "Blue", "", "p")
    done = await log.append("blue", message("hi"))
    await store.close()
    await first.close()
    second = EmbeddedValkey(tmp_path / "valkey")
    await second.open()
    try:
        second.runs._boot = "another boot"  # a clean stop is enough, also over a reboot
        store = Store(second.url, durable_runs=second.runs.ids)
        log = RoomLog(store, history_events=100)
        snapshot = await log.snapshot("blue", (done.epoch, 0))
        assert (snapshot.epoch, snapshot.resumed) == (done.epoch, True)
        await store.close()
    finally:
        await second.close()


# Valkey hangs or is away


async def test_a_valkey_that_hangs_is_unavailable_in_time_and_comes_back(node, log, room) -> None:
    await log.append(room, message("before"))
    node.signal(signal.SIGSTOP)
    began = time.monotonic()
    hanging = [log.append(room, message(f"{number}", key=f"k{number}")) for number in range(40)]
    told = await asyncio.gather(*hanging, log.snapshot(room, None), return_exceptions=True)
    elapsed = time.monotonic() - began
    assert {type(one) for one in told} == {Unavailable}
    assert CALL_S - 0.5 < elapsed < CALL_S + 2
    node.signal(signal.SIGCONT)
    async with asyncio.timeout(CALL_S):
        done = await log.append(room, message("after"))
        snapshot = await log.snapshot(room, (done.epoch, 0))
    entries = [entry.offset for entry in snapshot.entries]
    assert entries == list(range(1, snapshot.offset + 1))


async def test_where_nobody_listens_it_is_unavailable_at_once(tmp_path) -> None:
    store = Store(f"unix://{tmp_path}/nobody")
    log = RoomLog(store, history_events=100)
    async with asyncio.timeout(1):
        for call in (
            log.append("blue", message("hi")),
            log.snapshot("blue", None),
            log.rooms(),
            log.create("blue", "", "", "p"),
            store.run_id(),
            store.connection(),
        ):
            with pytest.raises(Unavailable):
                await call
    await store.close()


async def test_an_unknown_room_is_not_an_absent_redis(log) -> None:
    with pytest.raises(UnknownRoom):
        await log.append("nowhere", message("hi"))


async def test_two_valkeys_do_not_work_in_one_folder(node, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("server.valkey._STOP_S", 0.1)
    other = EmbeddedValkey(tmp_path / "valkey")
    with pytest.raises(StartupError, match="Another Valkey"):
        await other.open()
    await other.close()
    assert await node.store().run_id()


async def test_closing_leaves_no_process_and_no_socket(tmp_path) -> None:
    valkey = EmbeddedValkey(tmp_path / "valkey")
    await valkey.open()
    pid, socket = valkey.pid, valkey.url.removeprefix("unix://")
    await valkey.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not Path(socket).exists()
