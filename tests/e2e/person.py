"""A person at a browser: what they do on the page, where they look, and what must not happen there.

Locators go by the page's test ids. The assertions are the tests'.
"""

import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Self

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

WIDE = {"viewport": {"width": 1280, "height": 800}}
NARROW = {"viewport": {"width": 390, "height": 844}}
PHONE = NARROW | {"is_mobile": True, "has_touch": True}
SANDBOX_MS = 60_000
"""For the first command of a room: a container is made."""

# What hostile text tries to reach; a policy violation is told on the console beside Chromium's own.
WATCH = """
window.__ran = [];
window.hit = (what) => { window.__ran.push(String(what)); };
addEventListener('securitypolicyviolation', (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


class Person:
    """One browser context with one page. `problems` is what must stay empty."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.problems: list[str] = []
        self.touches = False
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("dialog", self._dialog)
        page.on("crash", lambda _: self.problems.append("the page crashed"))
        context.on("page", lambda other: self.problems.append(f"opened {other.url}"))

    @classmethod
    async def arrive(cls, browser: Browser, url: str, name: str | None, **options: object) -> Self:
        """Open a blank page in a profile that is fresh but for the name given before, if any."""
        kept = [{"name": "duet.name", "value": name}] if name else []
        context = await browser.new_context(
            storage_state={"cookies": [], "origins": [{"origin": url, "localStorage": kept}]},
            **WIDE | {"color_scheme": "light", "locale": "en-GB"} | options,
        )
        await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        await context.add_init_script(WATCH)
        person = cls(context, await context.new_page(), url)
        person.touches = bool(options.get("has_touch"))
        return person

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    async def _dialog(self, dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    @contextlib.asynccontextmanager
    async def bearing(self, expected: str):
        """Within, problems that match `expected` are part of the story."""
        before = self.problems
        self.problems = []
        try:
            yield
        finally:
            left = [one for one in self.problems if not re.search(expected, one)]
            self.problems = before + left

    async def well(self) -> None:
        """Hold that nothing went wrong here since it was last asked."""
        ran = [] if self.page.is_closed() else await self.page.evaluate("window.__ran.splice(0)")
        problems, self.problems = self.problems, []
        assert not ran, f"scripts ran: {ran}"
        assert not problems, "\n".join(problems)

    async def leave(self) -> None:
        """Close the browser; nothing may have gone wrong in it."""
        try:
            await self.well()
        finally:
            await self.context.close()

    # Where to look

    def at(self, test_id: str) -> Locator:
        return self.page.get_by_test_id(test_id)

    def message(self, text: str) -> Locator:
        return self.at("message").filter(has_text=text)

    def person(self, name: str) -> Locator:
        return self.at("people").locator(f"[data-name={quoted(name)}]")

    def exec(self, command: str) -> "Card":
        """The card of a command; a test's commands differ in their text."""
        has = self.page.locator("[data-testid=exec-command]").filter(
            has_text=re.compile(f"^{re.escape(command)}$")
        )
        return Card(self.at("exec").filter(has=has))

    @property
    def input(self) -> Locator:
        return self.at("composer-input")

    @property
    def room(self) -> str:
        return self.page.url.rpartition("/")[2]

    # What to do

    async def go(self, path: str) -> None:
        """Another place of the page, without loading it again."""
        await self.page.evaluate(
            "(path) => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')); }",
            path,
        )

    async def make_room(self, name: str) -> str:
        """From the home page; the room's path."""
        form = self.at("home").get_by_test_id("new-room-form")
        await form.get_by_test_id("new-room-name").fill(name)
        await form.get_by_test_id("new-room-create").click()
        await expect(self.at("room-title")).to_have_text(name)
        await expect(self.at("empty-room")).to_be_visible()
        return f"/r/{self.room}"

    async def point(self, at: Locator) -> None:
        """Point at what then shows its tools."""
        await (at.tap() if self.touches else at.hover())

    async def say(self, text: str) -> None:
        await self.input.fill(text)
        await self.input.press("Enter")
        await expect(self.input).to_have_value("")

    async def run(self, command: str) -> "Card":
        await self.say(f"!{command}")
        return self.exec(command)


class Card:
    """A command's card on one page."""

    def __init__(self, card: Locator) -> None:
        self.card = card

    def at(self, test_id: str) -> Locator:
        return self.card.get_by_test_id(test_id)

    @property
    def output(self) -> Locator:
        return self.at("exec-output")

    @property
    def lines(self) -> Locator:
        return self.output.locator(".line")

    @property
    def row(self) -> Locator:
        return self.card.locator("xpath=ancestor::article")

    async def is_now(self, state: str) -> None:
        await expect(self.card).to_have_attribute("data-state", state, timeout=SANDBOX_MS)

    async def prints(self, text: str) -> None:
        await expect(self.output).to_contain_text(text, timeout=SANDBOX_MS)


Arrive = Callable[..., Awaitable[Person]]


def quoted(text: str) -> str:
    """A CSS string."""
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'
