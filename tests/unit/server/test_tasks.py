"""Background work: one failure is logged and stays alone; the end is bounded."""

import asyncio

import pytest

from server.tasks import GuardedTasks
from tests.unit.server.virtual import settle, virtual


def test_a_failure_is_logged_with_an_incident_and_harms_nobody(capsys) -> None:
    async def main():
        done = []

        async def fail():
            raise RuntimeError("broken")

        async def work():
            await asyncio.sleep(1)
            done.append(True)

        async with asyncio.TaskGroup() as group:
            tasks = GuardedTasks(group)
            await tasks.create_task(fail())
            tasks.create_task(work())
        assert done == [True]

    virtual(main())
    assert "incident" in capsys.readouterr().out


def test_what_runs_may_end_and_is_cancelled_when_its_time_is_over() -> None:
    async def main():
        ended = []

        async def work(name, seconds):
            try:
                await asyncio.sleep(seconds)
                ended.append(name)
            except asyncio.CancelledError:
                ended.append(f"{name} cancelled")
                raise

        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            tasks = GuardedTasks(group)
            tasks.create_task(work("short", 1))
            tasks.create_task(work("long", 100))
            began = loop.time()
            await tasks.settle(2)
            assert loop.time() - began == pytest.approx(2)
        assert ended == ["short", "long cancelled"]

    virtual(main())


def test_with_nothing_to_do_settling_takes_no_time() -> None:
    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = GuardedTasks(group)
            began = asyncio.get_running_loop().time()
            await tasks.settle(100)
            await settle()
            assert asyncio.get_running_loop().time() == began

    virtual(main())
