"""One terminal that several people see and type into, and the sandbox that it runs in."""

import hashlib
import re

import pytest
from playwright.async_api import expect

from tests.e2e.person import NARROW, PHONE, SANDBOX_MS, WIDE
from tests.e2e.test_looks import fits, named, readable, settled
from tests.integration.server.harness import Server, remove_containers

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASTED_LINES = 1_000
PASTED_BYTES = 88_000


async def opened(person) -> None:
    """A terminal is there and its shell asks for a command."""
    await expect(person.at("terminal")).to_have_attribute(
        "data-state", "running", timeout=SANDBOX_MS
    )
    await expect(person.at("terminal-screen")).to_contain_text(re.compile(r"[#$]"))


async def prints(person, text, **options) -> None:
    await expect(person.at("terminal-screen")).to_contain_text(text, **options)


async def has_line(person, pattern) -> None:
    """A whole line of the screen."""
    lines = person.at("terminal-screen").locator(".line")
    await expect(lines.filter(has_text=re.compile(rf"^{pattern}\s*$"))).not_to_have_count(0)


async def types(person, line) -> None:
    await person.at("terminal-input").focus()
    await person.page.keyboard.type(line)
    await person.page.keyboard.press("Enter")


async def test_two_people_in_one_terminal(pair):
    ada, ben = pair
    await ada.at("open-terminal").click()
    await opened(ada)
    await expect(ada.at("terminal-input")).to_be_focused()
    await types(ada, "echo sum $((20 + 22))")
    await prints(ada, "sum 42")
    card = ben.at("terminal-card")
    await expect(card).to_contain_text("bash -l")
    await card.get_by_test_id("terminal-open").click()
    await prints(ben, "sum 42")
    await expect(ben.at("terminal")).to_contain_text("Ada")
    await types(ben, "echo ben=$((40 + 2)) | tr a-z A-Z")
    for one in (ada, ben):
        await prints(one, "BEN=42")
    await types(ada, "tput setaf 1; echo red; tput sgr0")
    await expect(ben.at("terminal-screen").locator(".f1")).to_contain_text("red")
    await types(ada, "exit 3")
    for one in (ada, ben):
        await expect(one.at("terminal")).to_have_attribute("data-state", "ended")
        await expect(one.at("terminal")).to_contain_text("exit 3")
        await prints(one, "BEN=42")
        await one.at("terminal-close").click()
        await expect(one.at("terminal")).to_have_count(0)
        await expect(one.input).to_be_focused()
    await expect(card).to_have_attribute("data-state", "ended")
    await card.get_by_test_id("terminal-printed").click()
    await expect(card.get_by_test_id("exec-output")).to_contain_text("BEN=42")


async def test_keys_reach_the_program(pair):
    ada, _ = pair
    await ada.at("open-terminal").click()
    await opened(ada)
    keyboard = ada.page.keyboard
    await types(ada, "echo waiting; sleep 1000")
    await has_line(ada, r"waiting")
    await keyboard.press("Control+c")
    await prints(ada, "^C")
    await types(ada, "echo first")
    await types(ada, "echo second")
    await has_line(ada, r"second")
    await keyboard.press("ArrowUp")
    await keyboard.press("ArrowUp")
    await keyboard.press("End")
    await keyboard.type("-again")
    await keyboard.press("Enter")
    await has_line(ada, r"first-again")
    await keyboard.type("echo wrong")
    await keyboard.press("Control+u")
    await keyboard.type("echo rightX")
    await keyboard.press("Backspace")
    await keyboard.press("Home")
    await keyboard.press("Alt+d")
    await keyboard.type("printf '%s!\\n'")
    await keyboard.press("Enter")
    await has_line(ada, r"right!")
    await keyboard.type("ech")
    await keyboard.press("Tab")
    await keyboard.type(" äöü 漢字 🎉")
    await keyboard.press("Enter")
    await has_line(ada, r"äöü 漢字 🎉")
    # A program with the whole screen, and back again.
    await types(ada, "seq 500 | less")
    await has_line(ada, "2")
    await keyboard.press("G")
    await has_line(ada, "500")
    await keyboard.press("q")
    await prints(ada, "right!")
    await keyboard.press("Control+Shift+Escape")
    await expect(ada.at("terminal")).to_have_count(0)
    await expect(ada.input).to_be_focused()
    await expect(ada.at("terminal-card")).to_have_attribute("data-state", "running")
    await ada.at("terminal-card").get_by_test_id("terminal-open").click()
    await prints(ada, "right!")
    await ada.at("terminal").get_by_test_id("exec-stop").click()
    await expect(ada.at("terminal")).to_have_attribute("data-state", "ended")
    await expect(ada.at("terminal")).to_contain_text("stopped")


async def test_a_long_paste_arrives_whole(pair):
    ada, _ = pair
    await ada.at("open-terminal").click()
    await opened(ada)
    await types(ada, "stty -echo; echo ready; head -c 88000 | md5sum; stty echo; echo done")
    await has_line(ada, "ready")
    line = "x" * (PASTED_BYTES // PASTED_LINES - 1) + "\n"
    await ada.page.evaluate("(text) => navigator.clipboard.writeText(text)", line * PASTED_LINES)
    await ada.page.keyboard.press("Control+v")
    await prints(ada, hashlib.md5((line * PASTED_LINES).encode()).hexdigest())
    await has_line(ada, r"done")
    await types(ada, "exit")
    await expect(ada.at("terminal")).to_have_attribute("data-state", "ended")


async def test_a_paste_that_is_too_long_says_so(pair):
    ada, _ = pair
    await ada.at("open-terminal").click()
    await opened(ada)
    await ada.page.evaluate("navigator.clipboard.writeText('x'.repeat(300000))")
    await ada.page.keyboard.press("Control+v")
    await expect(ada.at("notice")).to_contain_text("too much to paste")
    await types(ada, "echo still $((40 + 2))")
    await has_line(ada, "still 42")
    await types(ada, "exit")
    await expect(ada.at("terminal")).to_have_attribute("data-state", "ended")


async def test_it_goes_on_over_a_restart_of_the_server(arrive, tmp_path):
    data = tmp_path / "data"
    server = Server(data).wait_ready()
    try:
        path = f"/r/{await server.new_room()}"
        ada, ben = await arrive("Ada", path, at=server), await arrive("Ben", path, at=server)
        await ada.at("open-terminal").click()
        await opened(ada)
        await types(ada, "echo before")
        await ben.at("terminal-card").get_by_test_id("terminal-open").click()
        await has_line(ben, "before")
        async with ada.bearing("ERR_CONNECTION_REFUSED"), ben.bearing("ERR_CONNECTION_REFUSED"):
            server.stop()
            await expect(ada.at("banner")).to_be_visible()
            await expect(ada.at("terminal-offline")).to_be_visible()
            await ada.page.keyboard.type("x")
            await expect(ada.at("notice")).to_contain_text("what you typed was not sent")
            server = Server(data, port=server.port).wait_ready()
            for one in (ada, ben):
                await expect(one.at("banner")).to_have_count(0)
        await types(ada, "echo after $((40 + 2))")
        for one in (ada, ben):
            await has_line(one, "before")
            await has_line(one, "after 42")
        await types(ada, "exit")
        await expect(ben.at("terminal")).to_have_attribute("data-state", "ended")
    finally:
        server.stop()
        remove_containers(server)


async def test_its_size_is_the_openers(pair):
    ada, ben = pair
    await ada.at("open-terminal").click()
    await opened(ada)
    screen = ada.at("terminal").locator(".screen")
    cols = int(await screen.get_attribute("data-cols"))
    await types(ada, "stty size")
    await has_line(ada, rf"\d+ {cols}")
    await ada.page.set_viewport_size({"width": 1000, "height": 700})
    try:
        await expect(screen).not_to_have_attribute("data-cols", str(cols))
        narrower = int(await screen.get_attribute("data-cols"))
        await types(ada, "stty size")
        await has_line(ada, rf"\d+ {narrower}")
        await ben.at("terminal-card").get_by_test_id("terminal-open").click()
        await has_line(ben, rf"\d+ {narrower}")
    finally:
        await ada.page.set_viewport_size(WIDE["viewport"])
    # What others do with their windows changes nothing.
    await ben.page.set_viewport_size({"width": 900, "height": 650})
    try:
        await expect(screen).to_have_attribute("data-cols", str(cols))
        await types(ben, "clear; stty size")
        await has_line(ada, rf"\d+ {cols}")
    finally:
        await ben.page.set_viewport_size(WIDE["viewport"])
    await types(ada, "exit")
    await expect(ben.at("terminal")).to_have_attribute("data-state", "ended")


async def test_somebody_comes_later_and_on_a_phone(arrive, pair):
    ada, _ = pair
    await ada.at("open-terminal").click()
    await opened(ada)
    await types(ada, "echo seen before")
    await has_line(ada, r"seen before")
    cleo = await arrive("Cleo", f"/r/{ada.room}", **PHONE)
    await cleo.at("terminal-card").get_by_test_id("terminal-open").tap()
    await has_line(cleo, r"seen before")
    await expect(cleo.at("terminal")).to_be_in_viewport(ratio=1)
    await types(cleo, "sleep 1000")
    await cleo.at("key-ctrl").tap()
    await cleo.page.keyboard.press("c")
    await prints(ada, "^C")
    await cleo.at("key-ArrowUp").tap()
    await prints(ada, re.compile(r"\^C.*sleep 1000", re.DOTALL))
    await cleo.at("key-ctrl").tap()
    await cleo.page.keyboard.press("u")
    for scheme in ("light", "dark"):
        await cleo.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await settled(cleo)
        await readable(cleo)
    await named(cleo)
    await cleo.at("terminal-close").tap()
    await expect(cleo.at("terminal")).to_have_count(0)
    await fits(cleo)
    await ada.page.reload()
    await ada.at("terminal-card").get_by_test_id("terminal-open").click()
    await has_line(ada, r"seen before")
    await types(ada, "exit")
    await expect(ada.at("terminal")).to_have_attribute("data-state", "ended")


async def test_the_sandbox_is_started_and_stopped_by_hand(arrive, server):
    ada = await arrive("Ada", f"/r/{await server.new_room()}")
    status = ada.at("sandbox")
    await expect(status).to_have_attribute("data-status", "none")
    await ada.at("sandbox-start").click()
    await expect(status).to_have_attribute("data-status", "running", timeout=SANDBOX_MS)
    await expect(status).to_contain_text("Sleeps")
    await (await ada.run("echo kept > file.txt")).is_now("ok")
    await (await ada.run("echo on; sleep 1000")).prints("on")
    await ada.at("sandbox-stop").click()
    await expect(ada.at("sandbox-stop")).to_have_text("Stop 1 running, too")
    await ada.at("sandbox-stop").click()
    await ada.exec("echo on; sleep 1000").is_now("sandbox_terminated")
    await expect(status).to_have_attribute("data-status", "stopped")
    await expect(ada.at("workspace")).to_have_text("saved")
    await ada.at("sandbox-start").click()
    await expect(status).to_have_attribute("data-status", "running", timeout=SANDBOX_MS)
    await (await ada.run("cat file.txt")).prints("kept")


async def test_looks_at_both_widths_and_in_both_themes(arrive, server):
    ada = await arrive("Ada", f"/r/{await server.new_room()}")
    await ada.at("open-terminal").click()
    await opened(ada)
    await types(ada, "ls --color=always /; echo done")
    await has_line(ada, r"done")
    for size in (WIDE, NARROW):
        await ada.page.set_viewport_size(size["viewport"])
        for scheme in ("light", "dark"):
            await ada.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await settled(ada)
            await readable(ada)
        await named(ada)
    await ada.at("terminal").get_by_test_id("exec-stop").click()
    await expect(ada.at("terminal")).to_have_attribute("data-state", "ended")
