"""A real browser on a real server with real sandboxes; both are shared, rooms and profiles are not."""

import contextlib

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright, expect

from server.provision_probe import find_browser
from server.static import DIST
from tests.e2e.person import Person
from tests.integration.server.harness import serving

ARGS = [
    "--headless",
    "--no-sandbox",  # tests run as root as well
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 20_000
"""For what is a matter of milliseconds, on a machine that does other things as well."""

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    if not (DIST / "index.html").is_file():
        pytest.fail("web/dist is not built: run `make setup`, or `npm ci && npm run build` in web/")
    with serving(tmp_path_factory.mktemp("duet") / "data") as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    path = find_browser()
    if path is None:
        pytest.fail("no Chromium on this machine: `duet doctor --fix --tests` installs it")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def arrive(browser, server):
    """People come with fresh profiles: `await arrive("Ada", "/r/blue", **options)`.

    Without a name they are asked for one. As they leave, nothing may have gone wrong in
    their browsers: no error on the console, no dialog, no other page, no foreign script.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def come(name=None, path="/", at=server, **options):
            person = await Person.arrive(browser, at.url, name, **options)
            person.page.set_default_timeout(PATIENCE_MS)
            stack.push_async_callback(person.leave)
            await person.page.goto(at.url + path)
            if name is not None:
                await expect(person.at("my-name")).to_have_text(name)
            return person

        yield come


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def couple(browser, server):
    """Ada and Ben, who stay for many tests; use `pair`."""
    two = [await Person.arrive(browser, server.url, name) for name in ("Ada", "Ben")]
    for one in two:
        await one.page.goto(server.url)
    yield two
    for one in two:
        await one.context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def pair(couple, server):
    """Ada and Ben in a new room. They leave their pages open: other tests use them."""
    path = f"/r/{await server.new_room(name='Blue room')}"
    ada, ben = couple
    for one in couple:
        await one.go(path)
        await expect(one.at("empty-room")).to_be_visible()
    await expect(ada.person("Ben")).to_be_visible()
    await expect(ben.person("Ada")).to_be_visible()
    yield ada, ben
    for one in couple:
        await one.well()
