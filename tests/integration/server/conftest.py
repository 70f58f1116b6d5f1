"""One server for most tests, with real Valkey and the real container engine; more on demand."""

import contextlib

import pytest

from tests.integration.server.harness import JSON, MSGPACK, Server, remove_containers, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The server that tests share. They make their own rooms in it."""
    with serving(tmp_path_factory.mktemp("duet") / "data") as server:
        yield server


@pytest.fixture
def start(tmp_path):
    """Start servers with settings of their own; they are stopped when the test ends."""
    with contextlib.ExitStack() as stack:

        def begin(data="data", **env):
            server = Server(tmp_path / data, **env)
            stack.callback(remove_containers, server)
            stack.callback(server.stop)
            return server.wait_ready()

        yield begin


@pytest.fixture(params=[JSON, MSGPACK], ids=["json", "msgpack"])
def codec(request):
    """Each story is told in both subprotocols."""
    return request.param


@pytest.fixture
async def room(server):
    return await server.new_room()


@pytest.fixture
async def pair(server, codec, room):
    """Ada (in the test's subprotocol) and Ben (in JSON), both in a new room."""
    async with server.client(codec, "Ada") as ada, server.client(JSON, "Ben") as ben:
        await ada.join(room)
        await ben.join(room)
        await ada.until(
            lambda f: f["type"] == "participant.joined" and f["participant"]["id"] == ben.id
        )
        yield ada, ben
