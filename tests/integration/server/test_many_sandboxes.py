"""Thousands of saved sandboxes are listed in frames of the usual size, and whole over HTTP."""

import pytest

from protocol.client import connect
from sandbox.records import Kept, encode
from sandbox.spec import SandboxSpec
from tests.integration.server.harness import JSON, MSGPACK, Server

COUNT = 3000
IDS = [f"{n:04}-{'s' * 70}" for n in range(COUNT)]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A server that knows of so many, and has no engine to ask whether they are still there."""
    folder = tmp_path_factory.mktemp("duet") / "data"
    (folder / "sandboxes").mkdir(parents=True)
    for name in IDS:
        kept = Kept(SandboxSpec(name), "stopped", 1.7e9, saved_at=1.7e9, last_error="ä" * 60)
        (folder / "sandboxes" / f"{name}.json").write_bytes(encode(kept))
    server = Server(folder, DUET_DOCKER_HOST=f"unix://{folder}/nowhere")
    yield server.wait_ready()
    server.stop()


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
async def test_page_by_page(crowded, codec):
    found, after, asked = [], {}, 0
    async with crowded.client(codec, "Ada") as ada:
        while True:
            ack = await ada.ok("sandbox.list", **after)
            found += [one["id"] for one in ack["sandboxes"]]
            asked += 1
            if "more" not in ack:
                break
            after = {"after": found[-1]}
        assert found == IDS
        assert 2 < asked < 8
        few = await ada.ok("sandbox.list", after=IDS[5], limit=2)
        assert [one["id"] for one in few["sandboxes"]] == IDS[6:8]
        assert few["more"]
        assert (await ada.refused("sandbox.list", limit=0))["code"] == "invalid"


async def test_the_python_client_has_them_all(crowded):
    async with connect(crowded.url, name="Bot") as bot:
        assert [one.id for one in await bot.list_sandboxes()] == IDS


async def test_over_http_all_at_once_or_in_pages(crowded):
    status, body = await crowded.http("GET", "/api/sandboxes")
    assert (status, [one["id"] for one in body["sandboxes"]]) == (200, IDS)
    assert "more" not in body
    status, body = await crowded.http("GET", f"/api/sandboxes?limit=2&after={IDS[-3]}")
    assert (status, [one["id"] for one in body["sandboxes"]]) == (200, IDS[-2:])
    assert "more" not in body
    status, body = await crowded.http("GET", "/api/sandboxes?limit=none")
    assert (status, list(body["details"])) == (400, ["limit"])
