"""The CPU limit of a start: raised until its runner is up, then the type's own, or it does not run."""

import asyncio

import pytest

from sandbox.spec import INSTANCE_TYPES
from tests.integration.sandbox.houses import Box

LITE = INSTANCE_TYPES["lite"].nano_cpus


@pytest.fixture
def limits_at_start(manager, monkeypatch):
    """The CPU limit of each container as it is started, in order."""
    seen = []
    start = manager.engine.start

    async def started(container):
        seen.append((await manager.engine.inspect(container))["HostConfig"]["NanoCpus"])
        await start(container)

    monkeypatch.setattr(manager.engine, "start", started)
    return seen


@pytest.mark.parametrize("profile", ["default", "strict"])
async def test_every_start_runs_at_a_raised_limit_until_it_is_ready(
    manager, box_of, limits_at_start, profile
):
    box = box_of(instance_type="lite", profile=profile)
    await box.text("true")
    for _ in range(2):
        await manager.settled("one")
        assert (await box.inspect())["HostConfig"]["NanoCpus"] == LITE
        await manager.kill("one")
        await box.text("true")
    cpus = (await manager.engine.info()).cpus
    assert limits_at_start == [min(2, cpus) * 10**9] * 3


async def test_one_that_would_run_without_its_limits_is_stopped(box_of, monkeypatch):
    monkeypatch.setattr("sandbox.provision.LIMIT_AGAIN_S", 0.05)
    box = box_of(instance_type="lite")
    update = box.manager.engine.update

    async def forget(container, limits):
        """As an engine that answers 200 and takes nothing."""
        if limits["NanoCpus"] != LITE:
            await update(container, limits)

    with monkeypatch.context() as patch:
        patch.setattr(box.manager.engine, "update", forget)
        process, _ = await box.begin("sleep 100")
        result = await asyncio.wait_for(process.wait(), 15)
        assert result.reason == "sandbox_terminated"
        assert "limits could not be set" in result.message
    assert await Box(box.manager, box.spec).text("echo later") == "later\n"
