"""How the page looks and reads: both widths, both themes, and what assistive technology is told."""

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.person import NARROW, PHONE, WIDE

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
READABLE = 4.5
"""WCAG 2.2, 1.4.3 (AA), as for small text: nothing here is excused by its size."""
WORDS = (
    "# Head\n\nSome **bold** words, `code`, a [link](https://example.org/), ~~struck~~.\n\n"
    "> quoted\n\n- [x] done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode block\n```"
)
LONG = "unbroken" * 60
COLOURS = (
    r"for c in 31 32 33 34 35 36 37 90 91 92 93 94 95 96 97 2 1; do printf "
    r'"\033[${c}mcolour $c\033[0m\n"; done; echo to stderr >&2; exit 4'
)
NAMED = {"button", "link", "textbox", "searchbox", "checkbox", "combobox", "tab", "menuitem"}


async def readable(person) -> None:
    seen = await person.page.evaluate(CONTRAST, READABLE)
    assert seen["looked"] > 5
    assert seen["found"] == []


async def fits(person) -> None:
    """Nothing is wider than the screen, hidden drawers aside, and the page itself stands still."""
    wide = """() => {
        const limit = document.documentElement.clientWidth;
        const inScroller = (one) => one.closest('.wide, pre, .panel:not(.open)');
        const over = [...document.body.querySelectorAll('*')]
            .filter((one) => one.checkVisibility({checkVisibilityCSS: true}) && !inScroller(one))
            .filter((one) => one.getBoundingClientRect().right > limit + 0.5)
            .map((one) => one.outerHTML.slice(0, 200));
        scrollTo(500, 0);
        const scrollers = [...document.querySelectorAll('.log, html, body')]
            .filter((one) => one.scrollWidth > one.clientWidth + 1)
            .map((one) => one.tagName + '.' + one.className);
        return {over, scrollers, moved: scrollX};
    }"""
    assert await person.page.evaluate(wide) == {"over": [], "scrollers": [], "moved": 0}


async def named(person) -> None:
    """Whatever can be used has a name in the tree that assistive technology reads."""
    session = await person.context.new_cdp_session(person.page)
    nodes = (await session.send("Accessibility.getFullAXTree"))["nodes"]
    await session.detach()
    used = [node for node in nodes if node.get("role", {}).get("value") in NAMED]
    assert used
    nameless = [node for node in used if not node.get("name", {}).get("value", "").strip()]
    assert nameless == []


async def fill_room(person, bot) -> None:
    """Everything that a room can show."""
    await person.say(WORDS)
    await bot.ok("say", room=person.room, text=LONG)
    await bot.ok("say", room=person.room, text=f"`{LONG}` https://example.org/{LONG}")
    said = await bot.ok("say", room=person.room, text="deleted soon")
    await bot.ok("react", room=person.room, id=said["id"], emoji="👍", on=True)
    gone = await bot.ok("say", room=person.room, text="gone")
    await bot.ok("delete", room=person.room, id=gone["id"])
    await bot.ok("edit", room=person.room, id=said["id"], text="edited now")
    await (await person.run("echo fine")).is_now("ok")
    await (await person.run(COLOURS)).is_now("command_failed")
    await bot.ok("exec", room=person.room, command=f"echo {LONG}")
    await bot.ok("exec", room=person.room, command="exec sleep 1000", timeoutMs=50)
    await expect(person.exec("exec sleep 1000").at("exec-reason")).to_be_visible()
    await (await person.run("seq 1 100")).is_now("ok")
    await (await person.run("echo still running; sleep 1000")).prints("still running")


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1280", "390"])
async def test_a_full_room(arrive, server, size):
    room = await server.new_room(name="Blue room", description="Where it is all blue " * 8)
    ada = await arrive("Ada", f"/r/{room}", **size)
    async with server.client(name="Robot with a rather long name", kind="bot") as bot:
        await bot.join(room)
        await fill_room(ada, bot)
        await bot.send("typing", room=room, on=True)
        await expect(ada.at("typing")).to_contain_text("Robot")
        for scheme in ("light", "dark"):
            await ada.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await settled(ada)
            await readable(ada)
            await fits(ada)
        await named(ada)
        for tool in ("Copy output", "Use this command again"):
            fine = ada.exec("echo fine")
            await ada.point(fine.at("exec-command"))
            await fine.card.get_by_role("button", name=tool).click()
        await expect(ada.input).to_have_value("echo fine")
        assert await ada.page.evaluate("navigator.clipboard.readText()") == "fine"
        await ada.point(ada.message("edited now"))
        await ada.message("edited now").get_by_test_id("message-react").click()
        await ada.page.get_by_role("button", name="React with 👀").click()
        await ada.point(ada.message("Head"))
        await ada.message("Head").get_by_test_id("message-delete").click()
        await readable(ada)
        await fits(ada)
        await ada.exec("echo still running; sleep 1000").at("exec-stop").click()
        await ada.exec("echo still running; sleep 1000").is_now("cancelled")
        await readable(ada)


async def test_the_screens_around_a_room(arrive):
    ada = await arrive()
    await ada.at("name-submit").click()
    await expect(ada.page.get_by_role("alert")).to_be_visible()
    await held(ada)
    await ada.at("name-input").fill("Ada")
    await ada.at("name-submit").click()
    await expect(ada.at("home")).to_be_visible()
    await held(ada)
    await ada.make_room("Green room")
    await held(ada)
    await ada.go("/r/no-such-room")
    await expect(ada.at("room-problem")).to_be_visible()
    await held(ada)


async def held(person) -> None:
    """At both widths and in both themes."""
    for size in (NARROW, WIDE):
        await person.page.set_viewport_size(size["viewport"])
        for scheme in ("light", "dark"):
            await person.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await settled(person)
            await readable(person)
        await fits(person)
        await named(person)


async def settled(person) -> None:
    """Colours fade from one to the other; wait for their end."""
    await person.page.evaluate(
        "Promise.allSettled(document.getAnimations()"
        ".filter((one) => one.effect.getTiming().iterations !== Infinity)"
        ".map((one) => one.finished))"
    )


async def test_what_is_wrong_with_the_looks_would_be_found(arrive):
    ada = await arrive("Ada")
    await ada.page.evaluate("""() => {
        const bad = document.createElement('p');
        bad.append('pale');
        bad.style.color = 'rgb(150 150 150)';
        document.getElementById('app').prepend(bad);
    }""")
    seen = await ada.page.evaluate(CONTRAST, READABLE)
    assert [one.partition(" ")[2] for one in seen["found"]] == ['<p class=""> pale']
    await ada.page.evaluate("document.querySelector('#app p').style.color = 'currentcolor'")
    await readable(ada)
    await ada.page.evaluate("document.querySelector('#app p').style.width = '2000px'")
    with pytest.raises(AssertionError):
        await fits(ada)
    await ada.at("theme").evaluate("(one) => { one.ariaLabel = one.title = ''; }")
    with pytest.raises(AssertionError):
        await named(ada)


async def test_the_theme_is_chosen_by_hand_and_kept(arrive):
    ada = await arrive("Ada")
    ground = "getComputedStyle(document.body).backgroundColor"
    system = await ada.page.evaluate(ground)
    grounds = {}
    for theme in ("light", "dark"):
        await ada.at("theme").click()
        await expect(ada.at("theme")).to_have_attribute("title", f"Theme: {theme}")
        await settled(ada)
        await readable(ada)
        grounds[theme] = await ada.page.evaluate(ground)
    assert grounds["light"] == system != grounds["dark"]
    await ada.page.reload()
    await expect(ada.at("theme")).to_have_attribute("title", "Theme: dark")
    assert await ada.page.evaluate(ground) == grounds["dark"]
    await ada.at("theme").click()
    await expect(ada.at("theme")).to_have_attribute("title", "Theme: as the system")


async def test_drawers_on_a_phone(arrive, server):
    room = await server.new_room(name="Blue room")
    other = await server.new_room(name="Other room")
    ada = await arrive("Ada", f"/r/{room}", **PHONE)
    for which, panel in (("rooms", "rooms-panel"), ("details", "details-panel")):
        await expect(ada.at(panel)).not_to_be_visible()
        await ada.at(f"open-{which}").click()
        await expect(ada.at(panel)).to_be_in_viewport(ratio=1)
        await expect(ada.at(f"open-{which}")).to_have_attribute("aria-expanded", "true")
        await settled(ada)
        await readable(ada)
        await named(ada)
        await ada.at(panel).get_by_test_id("close-drawer").click()
        await expect(ada.at(panel)).not_to_be_visible()
        await expect(ada.at(f"open-{which}")).to_be_focused()
    await ada.at("open-details").click()
    await expect(ada.person("Ada")).to_be_visible()
    await ada.page.mouse.click(20, 400)  # beside it
    await expect(ada.at("details-panel")).not_to_be_visible()
    await ada.at("open-rooms").click()
    await ada.at("room-list").locator(f"[data-room={other}]").click()
    await expect(ada.at("room-title")).to_have_text("Other room")
    await expect(ada.at("rooms-panel")).not_to_be_visible()


async def test_output_is_not_read_aloud(arrive, server):
    """The log tells new rows; the lines of a command would drown them."""
    room = await server.new_room()
    ada = await arrive("Ada", f"/r/{room}")
    await (await ada.run("echo loud; sleep 1000")).prints("loud")
    log = ada.page.get_by_role("log")
    await expect(log).to_have_attribute("data-testid", "timeline")
    await expect(log).to_have_attribute("aria-live", "polite")
    for nearest in ("exec-output", "exec-elapsed"):
        closest = "(one) => one.closest('[aria-live]').ariaLive"
        assert await ada.at(nearest).evaluate(closest) == "off"
    await ada.at("exec-stop").click()
    await ada.exec("echo loud; sleep 1000").is_now("cancelled")
    assert await ada.at("exec-end").evaluate(closest) == "polite"


async def test_a_new_room_can_be_made_however_many_there_are(arrive, server):
    rooms = [await server.new_room(name=f"Room number {number}") for number in range(8)]
    ada = await arrive("Ada", f"/r/{rooms[0]}", viewport={"width": 1280, "height": 400})
    await expect(ada.at("room-list").locator(f"[data-room={rooms[-1]}]")).to_have_count(1)
    await expect(ada.at("new-room")).to_be_in_viewport(ratio=1)
    await ada.at("new-room").click()
    await expect(ada.at("rooms-panel").get_by_test_id("new-room-create")).to_be_in_viewport(ratio=1)


async def test_one_clock_in_a_conversation(arrive, server):
    ada = await arrive("Ada", f"/r/{await server.new_room()}", locale="en-US", timezone_id="UTC")
    for text in ("one", "two"):
        await ada.say(text)
    times = ada.at("timeline").locator("time")
    await expect(times).to_have_count(2)
    first, second = sorted(await times.all_text_contents(), key=len, reverse=True)
    assert first.rstrip("APM\u202f ") in (second, first)
    assert int(second.partition(":")[0]) <= 12


async def test_the_tools_of_a_message_leave_the_one_above_readable(arrive, server):
    ada = await arrive("Ada", f"/r/{await server.new_room()}")
    for text in ("above", "below"):
        await ada.say(text)
    above, below = ada.message("above"), ada.message("below")
    await below.hover()
    covered = below.locator(".tools").locator("button").first
    under = await above.bounding_box()
    over = await covered.bounding_box()
    # The line's own leading may be touched, its letters not.
    assert under["y"] + under["height"] - over["y"] < 4
