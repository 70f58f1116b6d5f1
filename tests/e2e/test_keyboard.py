"""All of it without a mouse."""

import pytest
from playwright.async_api import expect

from tests.e2e.person import NARROW

pytestmark = pytest.mark.asyncio(loop_scope="session")

TABS = 40
"""More than there are places to go."""


async def tab_to(person, test_id, *, back=False) -> None:
    """Press Tab until the focus is there, and hold that a person can see where it is."""
    focused = "() => document.activeElement?.dataset?.testid ?? ''"
    rooms = await person.page.get_by_test_id("room-link").count()  # each is a stop on the way
    for _ in range(TABS + rooms):
        if await person.page.evaluate(focused) == test_id:
            break
        await person.page.keyboard.press("Shift+Tab" if back else "Tab")
    else:
        raise AssertionError(f"no way to {test_id} by Tab")
    shown = """() => { const style = getComputedStyle(document.activeElement);
        const box = getComputedStyle(document.activeElement.closest('.box') ?? document.body);
        return [style, box].some((one) => one.outlineStyle !== 'none' || one.boxShadow !== 'none'); }"""
    assert await person.page.evaluate(shown), f"the focus on {test_id} is not seen"


async def test_from_the_name_to_a_stopped_command(arrive):
    ada = await arrive()
    keyboard = ada.page.keyboard
    await tab_to(ada, "name-input")
    await keyboard.type("Ada")
    await keyboard.press("Enter")
    await expect(ada.at("my-name")).to_have_text("Ada")
    await tab_to(ada, "new-room-name")
    await keyboard.type("Blue room")
    await keyboard.press("Enter")
    await expect(ada.at("room-title")).to_have_text("Blue room")
    await expect(ada.input).to_be_focused()
    await keyboard.type("one line")
    await keyboard.press("Shift+Enter")
    await keyboard.type("and another")
    await keyboard.press("Enter")
    await expect(ada.message("and another")).to_be_visible()
    await expect(ada.message("one line").locator("br")).to_have_count(1)

    command = "echo by hand; sleep 1000"
    await keyboard.type(f"!{command}")
    await expect(ada.at("send")).to_have_text("Run")
    await keyboard.press("Enter")
    await ada.exec(command).prints("by hand")
    await tab_to(ada, "exec-stop", back=True)
    await keyboard.press("Enter")
    await ada.exec(command).is_now("cancelled")

    await tab_to(ada, "message-edit", back=True)
    await keyboard.press("Enter")
    await expect(ada.at("message-edit-input")).to_be_focused()
    await keyboard.press("Escape")
    await expect(ada.at("message-edit-input")).to_have_count(0)
    await tab_to(ada, "composer-input")
    await keyboard.press("ArrowUp")
    await expect(ada.input).to_have_value(f"!{command}")
    await keyboard.press("ArrowUp")
    await expect(ada.input).to_have_value("one line\nand another")
    await tab_to(ada, "new-room", back=True)
    await keyboard.press("Enter")
    await expect(ada.at("new-room-name")).to_be_focused()
    await keyboard.press("Escape")
    await expect(ada.at("new-room-form")).to_have_count(0)


async def test_drawers_open_by_enter_and_close_by_escape(arrive, server):
    room = await server.new_room(name="Blue room")
    ada = await arrive("Ada", f"/r/{room}", **NARROW)
    for which, panel in (("rooms", "rooms-panel"), ("details", "details-panel")):
        await tab_to(ada, f"open-{which}", back=True)
        await ada.page.keyboard.press("Enter")
        await expect(ada.at(panel)).to_be_in_viewport(ratio=1)
        # What lies under the drawer is out of reach.
        await expect(ada.at(panel)).to_be_focused()
        place = f"""() => document.activeElement.closest('#{which}') ? 'drawer'
            : document.activeElement === document.body ? 'browser' : document.activeElement.outerHTML"""
        places = []
        for _ in range(10):
            await ada.page.keyboard.press("Tab")
            places.append(await ada.page.evaluate(place))
        assert places[0] == "drawer"
        assert set(places) <= {"drawer", "browser"}
        await ada.page.keyboard.press("Escape")
        await expect(ada.at(panel)).not_to_be_visible()
        await expect(ada.at(f"open-{which}")).to_be_focused()


async def test_the_skip_link_leads_to_the_composer(arrive, server):
    ada = await arrive("Ada", f"/r/{await server.new_room()}")
    await expect(ada.input).to_be_focused()
    await ada.page.evaluate("document.activeElement.blur()")
    skip = ada.page.get_by_role("link", name="Skip to the composer")
    await skip.focus()
    await expect(skip).to_be_in_viewport(ratio=1)
    await ada.page.keyboard.press("Enter")
    await expect(ada.input).to_be_focused()
    await expect(ada.at("room-title")).to_be_visible()
