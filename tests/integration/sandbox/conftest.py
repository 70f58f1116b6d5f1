"""Managers on the real engine, their containers under a label of this run, all removed at the end."""

import pytest
import pytest_asyncio

from sandbox.spec import SandboxSpec
from tests.integration.sandbox.houses import Box, Houses


@pytest.fixture
async def houses():
    made = Houses()
    yield made
    await made.clean_up()


@pytest.fixture
async def manager(houses):
    return await houses.manager()


@pytest.fixture
def box_of(manager):
    """Makes boxes of a manager of this test alone."""

    def make(name="one", **fields):
        return Box(manager, SandboxSpec(name, **{"instance_type": "standard-2", **fields}))

    return make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box():
    """A sandbox that is up already, for the tests of a module that leave it as it was."""
    made = Houses()
    try:
        yield Box(await made.manager(), SandboxSpec("warm", instance_type="standard-2"))
    finally:
        await made.clean_up()
