"""What commands leave behind: listed, killed, or, when it was part of a kill, not there at all."""

import asyncio
import time

import pytest

from sandbox.errors import UnknownSandbox
from tests.integration.sandbox.houses import alive

pytestmark = pytest.mark.asyncio(loop_scope="module")


ASK = """\
for i in $(seq 50); do
  python3 -c 'import urllib.request as r; print(r.urlopen("http://localhost:8123").status)' \\
    2>/dev/null && break
  sleep 0.1
done"""


async def until_gone(box, word):
    await box.text(
        f"for i in $(seq 50); do pgrep -f '[{word[0]}]{word[1:]}' || break; sleep 0.1; done"
    )
    assert await alive(box, word) == []


async def test_a_server_in_the_background_lives_on_is_listed_and_killed(box):
    began = time.monotonic()
    started_ms = time.time() * 1000
    command = "cd /tmp && python3 -m http.server 8123 2>&1 & (setsid sleep 311 &) ; echo started"
    process, _ = await box.begin(command)
    assert (await asyncio.wait_for(process.wait(), 5)).ok
    assert time.monotonic() - began < 2  # its child holds stdout, and does not delay the end
    other, _ = await box.begin("sleep 312 & disown")
    assert (await asyncio.wait_for(other.wait(), 5)).ok
    assert await box.text(ASK) == "200\n"
    found = {child.command: child for child in await box.manager.children(box.spec.id)}
    assert {"python3 -m http.server 8123", "sleep 311", "sleep 312"} <= set(found)
    server = found["python3 -m http.server 8123"]
    assert (server.exec, found["sleep 312"].exec) == (process.exec, other.exec)
    assert abs(server.started_ms - started_ms) < 2000
    assert await box.manager.kill_children(box.spec.id, process.exec) >= 2
    await until_gone(box, "http.server")
    left = [child.command for child in await box.manager.children(box.spec.id)]
    assert "sleep 311" not in left
    assert "sleep 312" in left
    assert await box.manager.kill_children(box.spec.id, other.exec) == 1
    assert await box.manager.kill_children(box.spec.id, "never-was") == 0
    await until_gone(box, "sleep 312")


async def test_what_runs_is_nobody_s_child(box):
    process, sink = await box.begin("echo up; sleep 313")
    await sink.until(b"up")
    assert await box.manager.kill_children(box.spec.id, process.exec) == 0
    assert not [c for c in await box.manager.children(box.spec.id) if "313" in c.command]
    await process.cancel()
    assert (await process.wait()).reason == "cancelled"


async def test_children_of_a_sandbox_that_does_not_run(box):
    with pytest.raises(UnknownSandbox):
        await box.manager.children("nobody")


async def test_nothing_of_it_is_left(box):
    command = "setsid sleep 300 & env -i setsid sleep 302 & wait"
    result, _ = await box.run(command, timeout_ms=1000)
    assert result.reason == "timeout"
    assert await alive(box, "sleep 30") == []


async def test_a_pool_under_a_timeout_again_and_again(box):
    pool = "from multiprocessing import Pool; import time; Pool(64).map(time.sleep, [60] * 64)"
    for _ in range(5):
        result, _ = await box.run(argv=("python3", "-c", pool), timeout_ms=1000)
        assert result.reason == "timeout"
        assert await alive(box, "multiprocessing") == []
    assert await box.text("date")


async def test_a_cancelled_one_does_not_go_on_to_its_next_word(box):
    process, _ = await box.begin("sleep 1 && touch PROOF")
    await asyncio.sleep(0.2)
    await process.cancel()
    assert (await process.wait()).reason == "cancelled"
    await asyncio.sleep(1)
    assert "PROOF" not in await box.text("ls")
