"""The engine goes away, hangs and comes back under running commands."""

import asyncio
import time

import pytest

from sandbox.errors import LinkBroken, SandboxUnavailable
from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box
from tests.integration.sandbox.proxy import Proxy

NUMBERS = "for i in $(seq 1 200); do seq $((i*1000)) $((i*1000+999)); sleep 0.01; done"
WANTED = "".join(f"{n}\n" for n in range(1000, 201_000)).encode()


@pytest.fixture
async def proxy(houses, tmp_path):
    made = Proxy(tmp_path / "engine.sock")
    await made.open()
    yield made
    made.flow()
    await asyncio.gather(*(manager.close(keep=False) for manager in houses.managers))
    await made.stop()
    houses.managers.clear()
    await houses.manager()  # cleans up past the proxy


@pytest.fixture
async def box(houses, proxy):
    manager = await houses.manager(docker_host=proxy.host)
    return Box(manager, SandboxSpec("one", instance_type="standard-2"))


async def test_it_goes_away_and_comes_back(houses, proxy, box):
    begun = [await box.begin("echo up; sleep 100") for _ in range(3)]
    for _, sink in begun:
        await sink.until(b"up")
    began = time.monotonic()
    proxy.close()
    for process, _ in begun:
        result = await asyncio.wait_for(process.wait(), 6)
        assert (result.reason, result.retryable) == ("sandbox_unavailable", True)
        assert not result.ok
    assert time.monotonic() - began < 6
    assert box.manager.get("one").status == "error"
    with pytest.raises(SandboxUnavailable) as caught:
        await box.run("true")
    assert "duet doctor" in caught.value.message
    await proxy.open()
    assert await box.text("echo back") == "back\n"
    assert houses.changes[-1].status == "running"


async def test_a_cut_link_is_met_again_without_a_missing_byte(proxy, box):
    process, sink = await box.begin(NUMBERS)
    await sink.beyond("stdout", 100_000)
    proxy.cut()
    other, _ = await box.begin("sleep 0.2; exit 7")
    await sink.beyond("stdout", 800_000)
    proxy.cut()
    result = await asyncio.wait_for(process.wait(), 20)
    assert result.ok
    assert sink.stdout == WANTED
    assert (await other.wait()).exit_code == 7
    assert result.bytes["stdout"] == len(WANTED)


async def test_an_end_while_nobody_listens_is_told_later(proxy, box):
    process, sink = await box.begin("echo up; sleep 0.5; echo end; exit 9")
    await sink.until(b"up")
    proxy.close()
    await asyncio.sleep(0.7)  # it ends meanwhile, and nothing could tell of it
    await proxy.open()
    result = await asyncio.wait_for(process.wait(), 6)
    assert result.exit_code == 9
    assert sink.stdout == b"up\nend\n"


async def test_a_cancel_that_was_lost_is_asked_for_again(proxy, box):
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    proxy.cut()
    await process.cancel()
    result = await asyncio.wait_for(process.wait(), 6)
    assert result.reason == "cancelled"
    assert await box.text("pgrep -c sleep || true") == "0\n"


async def test_it_hangs(proxy, box):
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    began = time.monotonic()
    proxy.stall()
    result = await asyncio.wait_for(process.wait(), 8)
    assert result.reason == "sandbox_unavailable"
    assert time.monotonic() - began < 6
    proxy.flow()
    assert await box.text("pgrep -c sleep || true") == "0\n"


async def test_a_silent_command_is_not_taken_for_a_dead_one(box, monkeypatch):
    monkeypatch.setattr("sandbox.health.PING_EVERY_S", 0.05)
    monkeypatch.setattr("sandbox.health.SILENT_S", 0.0)
    result, _ = await box.run("sleep 1; exit 6")
    assert result.exit_code == 6


async def test_close_does_not_wait_for_an_engine_that_hangs(proxy, box):
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    proxy.stall()
    began = time.monotonic()
    await box.manager.close(keep=False)
    assert time.monotonic() - began < 6.5
    result = await process.wait()
    assert result.reason in ("sandbox_terminated", "sandbox_unavailable")


async def test_a_runner_that_breaks_the_rules_is_not_trusted_again(box, monkeypatch):
    process, sink = await box.begin("echo up; sleep 100")
    await sink.until(b"up")
    other, _ = await box.begin("sleep 100")
    monkeypatch.setattr(process, "on_control", refuse)
    await process.cancel()
    for each in (process, other):
        result = await asyncio.wait_for(each.wait(), 6)
        assert result.reason == "sandbox_terminated"
    assert await box.text("echo anew") == "anew\n"


def refuse(_frame):
    raise LinkBroken("it said nonsense")
