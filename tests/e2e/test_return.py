"""The connection goes and comes back; what was sent meanwhile is there once."""

import json
import time

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.integration.server.harness import Server, remove_containers

pytestmark = pytest.mark.asyncio(loop_scope="session")

GONE = "WebSocket connection to|ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"
"""What Chromium says on the console while there is no server."""
LATE_S = 8.0
"""A lease is looked at each second, and a stop takes one; the rest is for a busy machine."""


@pytest_asyncio.fixture(loop_scope="session")
async def own(tmp_path):
    """Servers on one data folder, one after the other; `own(port)` starts the next."""
    servers = []

    def begin(port=0, **env):
        servers.append(Server(tmp_path / "data", port, **env))
        return servers[-1].wait_ready()

    try:
        yield begin
    finally:
        for server in servers:
            server.stop()
            remove_containers(server)


async def test_the_server_restarts(own, arrive):
    server = own()
    path = f"/r/{await server.new_room(name='Blue room')}"
    ada, ben = await arrive("Ada", path, at=server), await arrive("Ben", path, at=server)
    await ada.say("before")
    await expect(ben.message("before")).to_be_visible()
    await (await ben.run("echo kept > file; echo printed before")).is_now("ok")
    async with ada.bearing(GONE), ben.bearing(GONE):
        assert server.stop() == 0
        for one in (ada, ben):
            await expect(one.at("banner")).to_be_visible()
            await expect(one.at("banner")).to_contain_text("Connection lost")
        await ada.say("meanwhile")
        await expect(ada.at("outgoing")).to_have_attribute("data-state", "sending")
        await expect(ada.at("outgoing")).to_contain_text("meanwhile")
        own(server.port)
        for one in (ada, ben):
            await expect(one.at("banner")).to_have_count(0)
            await expect(one.message("meanwhile")).to_be_visible()
    await expect(ada.at("outgoing")).to_have_count(0)
    await ben.say("after")
    for one in (ada, ben):
        await expect(one.at("message")).to_have_text(["before", "meanwhile", "after"])
        await expect(one.at("person")).to_have_count(2)
        await one.exec("echo kept > file; echo printed before").is_now("ok")
        await one.exec("echo kept > file; echo printed before").prints("printed before")
    await ada.page.reload()
    await expect(ada.at("message")).to_have_text(["before", "meanwhile", "after"])


async def test_an_answer_lost_on_its_way_does_not_send_twice(arrive, server):
    room = await server.new_room()
    ada = await arrive("Ada")
    cut = []

    def through(socket):
        """Between page and server: the first `say` gets through, its answers do not."""
        upstream = socket.connect_to_server()

        async def up(data):
            upstream.send(data)
            if json.loads(data)["type"] == "say" and not cut:
                cut.append(data)

        async def down(data):
            frame = json.loads(data)
            if len(cut) == 1 and frame["type"] == "message":
                cut.append(frame)
                await upstream.close()
                await socket.close(code=4002, reason="cut by the test")
            elif len(cut) != 1:
                socket.send(data)

        socket.on_message(up)
        upstream.on_message(down)

    await ada.page.route_web_socket("**/ws", through)
    await ada.page.goto(f"{ada.url}/r/{room}")
    await expect(ada.person("Ada")).to_be_visible()
    await ada.say("once and only once")
    await expect(ada.message("once and only once")).to_be_visible()
    await expect(ada.at("outgoing")).to_have_count(0)
    assert len(cut) == 2
    await ada.say("the next")
    await expect(ada.at("message")).to_have_text(["once and only once", "the next"])
    _, page = await server.http("GET", f"/api/rooms/{room}/messages")
    assert [event["text"] for event in page["events"] if event["type"] == "message"] == [
        "once and only once",
        "the next",
    ]


async def test_a_running_command_goes_on_through_a_lost_connection(arrive, server):
    room = await server.new_room()
    ada, ben = await arrive("Ada", f"/r/{room}"), await arrive("Ben", f"/r/{room}")
    waiting = "echo one; until [ -e go ]; do sleep 0.05; done; echo two; sleep 1000"
    await (await ada.run(waiting)).prints("one")
    async with ben.bearing(GONE + "|ERR_INTERNET_DISCONNECTED"):
        await ben.context.set_offline(True)
        await ben.page.evaluate("dispatchEvent(new Event('offline'))")
        await (await ada.run("touch go")).is_now("ok")
        await ada.exec(waiting).prints("two")
        await ben.context.set_offline(False)
        await ben.page.evaluate("dispatchEvent(new Event('online'))")
        await ben.exec("touch go").is_now("ok")
    await expect(ben.exec(waiting).lines).to_have_text(["one", "two"])
    await ben.exec(waiting).at("exec-stop").click()
    await ada.exec(waiting).is_now("cancelled")


async def test_without_an_engine_the_page_says_what_is_missing(own, arrive):
    server = own(DUET_DOCKER_HOST="unix:///nowhere/docker.sock")
    ada = await arrive("Ada", f"/r/{await server.new_room()}", at=server)
    card = await ada.run("echo nobody runs this")
    await card.is_now("sandbox_unavailable")
    await expect(card.at("exec-end")).to_contain_text("no sandbox")
    await expect(card.at("exec-reason")).to_contain_text("Docker")
    await ada.say("chat works")
    await expect(ada.message("chat works")).to_be_visible()


async def test_tabs_left_open_let_the_sandbox_sleep_on_time(own, arrive):
    server = own(DUET_ROOM_SLEEP_AFTER="4s")
    room = await server.new_room()
    path = f"/r/{room}"
    ada, ben = await arrive("Ada", path, at=server), await arrive("Ben", path, at=server)
    await (await ada.run("echo kept > file")).is_now("ok")
    _, told = await server.http("GET", f"/api/rooms/{room}")
    stop_at_s = told["sandbox"]["expectedStopAt"] / 1000
    for step in range(10):  # what a tab sends while somebody looks, scrolls and begins to write
        await ben.page.mouse.move(100 + step, 100)
        await ben.page.mouse.wheel(0, 50)
        await ben.input.press_sequentially("a")
        await ada.page.evaluate("window.dispatchEvent(new Event('focus'))")
    for one in (ada, ben):
        await expect(one.at("sandbox")).to_have_attribute("data-status", "stopped")
    assert -0.1 < time.time() - stop_at_s < LATE_S
    await (await ada.run("cat file")).prints("kept")
