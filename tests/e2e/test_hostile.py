"""Whatever a person or a command writes is text on another's page, and never runs there.

The attackers speak the wire themselves: what the page refuses to send is not what protects.
"""

import re

import pytest
from playwright.async_api import expect

from tests.integration.server.harness import JSON

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAYLOADS = [
    "<script>hit('script')</script>",
    "<img src=x onerror=hit('img')>",
    "<svg/onload=hit('svg')>",
    "<svg><script href='data:,hit(1)' /></svg>",
    "<iframe srcdoc=\"<script>parent.hit('srcdoc')</script>\"></iframe>",
    "<iframe src=javascript:parent.hit('iframe')>",
    "<details open ontoggle=hit('toggle')>x",
    "<input autofocus onfocus=hit('focus')>",
    "<form action=javascript:hit('form')><button>Send</button></form>",
    "<a href=\"javascript:hit('a')\">click me</a>",
    "[click me](javascript:hit('markdown'))",
    "[click me](JaVaScRiPt:hit('case'))",
    "[click me](java\tscript:hit('tab'))",
    "[click me](&#106;avascript:hit('entity'))",
    "[click me](data:text/html,<script>opener.hit('data')</script>)",
    "[click me](vbscript:hit('vb'))",
    "![pic](javascript:hit('image'))",
    "![pic](https://example.invalid/spy.png)",
    "[x]: javascript:hit('reference)\n[click me][x]",
    "<javascript:hit('autolink')>",
    '[x](https://example.org "onmouseover=\'hit(1)")',
    "`</code><img src=x onerror=hit('code')>`",
    "```html\n</code></pre><img src=x onerror=hit('fence')>\n```",
    "```\" onmouseover=hit('info') x=\"\nlanguage\n```",
    "<math><mtext><table><mglyph><style><img src=x onerror=hit('mxss')></style></table></math>",
    "<noscript><p title=\"</noscript><img src=x onerror=hit('noscript')>\">",
    "<style>@import 'https://example.invalid/spy.css'; * { display: none }</style>",
    "<base href=https://example.invalid/>",
    "<meta http-equiv=refresh content='0;url=javascript:hit(1)'>",
    "<p id=composer name=__ran class=banner style='position:fixed;inset:0'>over it all</p>",
    "{{constructor.constructor('hit(1)')()}} ${hit(1)}",
    "\u202egnihton si siht\u202c <b>\u2066x",
]
SHORT = [one for one in PAYLOADS if len(one) <= 64 and one.isprintable()]
ESCAPES = {
    "title": r"\033]0;hit title\007\033]2;hit title\033\\",
    "link": r"\033]8;;javascript:hit(1)\007click me\033]8;;\007",
    "clipboard": r"\033]52;c;aGl0IGNsaXBib2FyZA==\007",
    "colour": r"\033[38;2;1;2;3;4mtrue\033[0m \033[31;1;4mred\033[0m \033[48;5;999mx\033[0m",
    "questions": r"\033[6n\033[c\033[>c\033[5n\033[18t\033]10;?\007\033P$qm\033\\",
    "far away": r"\033[999999;999999Hfar\033[2J\033[H\033[999999Babove\033[999999Abelow",
    "other screen": r"\033[?1049hother screen\033[?1049l",
    "unended": r"\033]0;never ended \033P never ended \033[",
    "characters": r"\0\001\002\007\010\013\014\016\017\0177\0205\0233",
    "not utf-8": r"\377\376\300\200\355\240\200",
}
FOREIGN = (
    "script, iframe, object, embed, base, meta, style, img, form:not(.composer):not(.new-room)"
)
"""What no text may bring into the page."""
PAINT = {
    "color",
    "background-color",
    "contain-intrinsic-width",
    "contain-intrinsic-height",
}
"""What the page itself sets on lines of output."""


async def assert_harmless(person):
    """Nothing foreign stands in the page, and clicking on what looks like a link does nothing."""
    inside = person.page.locator("#app")
    assert await inside.locator(FOREIGN).count() == 0
    handlers = """(app) => [...app.querySelectorAll('*')].flatMap((one) => [...one.attributes])
        .filter((one) => /^on|^srcdoc$/.test(one.name)).map((one) => one.ownerElement.outerHTML)"""
    assert await inside.evaluate(handlers) == []
    styles = """(app) => [...app.querySelectorAll('.md [style], .out [style]')]
        .flatMap((one) => [...one.style])"""
    assert set(await inside.evaluate(styles)) <= PAINT
    links = "(app) => [...app.querySelectorAll('a')].map((one) => one.href)"
    for href in await inside.evaluate(links):
        assert re.match(r"https?:|mailto:|$", href), href
    for text in await person.page.get_by_text("click me").all():
        await text.dispatch_event("click")


async def test_as_messages_and_edits(arrive, server):
    room = await server.new_room(name="Blue room")
    victim = await arrive("Vera", f"/r/{room}")
    async with server.client(JSON, "Mallory") as mallory:
        await mallory.join(room)
        first = await mallory.ok("say", room=room, text="harmless")
        for payload in PAYLOADS:
            await mallory.ok("say", room=room, text=payload, replyTo=first["id"])
        await mallory.ok("edit", room=room, id=first["id"], text="\n\n".join(PAYLOADS))
        await mallory.ask("react", room=room, id=first["id"], emoji="<b>x", on=True)
        await mallory.ok("say", room=room, text="the last one")
    await expect(victim.message("the last one")).to_be_visible()
    await expect(victim.at("message")).to_have_count(len(PAYLOADS) + 2)
    # Written HTML is shown as it was written.
    await expect(victim.message("<img src=x onerror=hit('img')>").last).to_be_visible()
    await assert_harmless(victim)
    await victim.page.reload()  # and read from the history
    await expect(victim.message("the last one")).to_be_visible()
    await assert_harmless(victim)


async def test_as_names_of_people_and_rooms(arrive, server):
    room = await server.new_room(name=SHORT[0], description=PAYLOADS[1])
    victim = await arrive("Vera", f"/r/{room}")
    for payload in SHORT:
        async with server.client(JSON, payload) as mallory:
            await mallory.join(room)
            await expect(victim.person(payload)).to_be_visible()
            await mallory.send("typing", room=room, on=True)
            await expect(victim.at("typing")).to_have_text(f"{payload} is typing…")
            await mallory.ok("say", room=room, text="hello")
            status, _ = await server.http("PATCH", f"/api/rooms/{room}", {"name": payload})
            assert status == 200
            await expect(victim.at("room-title")).to_have_text(payload)
            await expect(victim.page).to_have_title(f"{payload} · Duet")
        await expect(victim.person(payload)).to_have_count(0)
    await expect(victim.at("message")).to_have_count(len(SHORT))
    await assert_harmless(victim)
    await victim.page.goto(victim.url)
    await expect(victim.at("home").get_by_text(SHORT[-1])).to_be_visible()
    await assert_harmless(victim)


async def test_a_name_does_not_turn_its_line_around(arrive, server):
    """Names may be written from right to left; what stands after them is not."""
    room = await server.new_room()
    victim = await arrive("Vera", f"/r/{room}")
    async with server.client(JSON, "\u05d1\u05df \u05d0\u05d3\u05dd") as mallory:
        await mallory.join(room)
        await mallory.send("typing", room=room, on=True)
        await expect(victim.at("typing")).to_contain_text("is typing…")
        assert await name_stands_first(victim.at("typing"))
        await mallory.ok("say", room=room, text="hello")
        await expect(victim.message("hello")).to_be_visible()
        assert await name_stands_first(victim.page.locator(".who"))


async def name_stands_first(line) -> bool:
    return await line.evaluate(
        """(line) => { const range = document.createRange();
            range.selectNode(line.lastChild);
            const name = line.querySelector('bdi').getBoundingClientRect();
            return range.getBoundingClientRect().left >= name.right - 1; }"""
    )


async def test_as_commands_and_their_output(arrive, server):
    room = await server.new_room()
    victim = await arrive("Vera", f"/r/{room}")
    await victim.page.evaluate("navigator.clipboard.writeText('untouched')")
    text = "\n".join(PAYLOADS)
    async with server.client(JSON, "Mallory") as mallory:
        await mallory.join(room)
        shown = f"cat <<'END'\n{text}\nEND"
        await mallory.ok("exec", room=room, command=shown)
        await mallory.ok("exec", room=room, command="printf '%s' \"$HTML\"", env={"HTML": text})
        for name, escape in ESCAPES.items():
            command = f"printf '{escape}'; printf '\\n{name} over\\n'"
            await mallory.ok("exec", room=room, command=command)
        await mallory.ok("exec", room=room, command=f"echo {'x' * 5000}; {PAYLOADS[1]}")
    # What fails is the last, whose payload is no command.
    await expect(victim.at("exec")).to_have_count(len(ESCAPES) + 3)
    await expect(victim.page.locator("[data-testid=exec][data-state=ok]")).to_have_count(
        len(ESCAPES) + 2, timeout=60_000
    )
    card = victim.exec("printf '%s' \"$HTML\"")
    await card.at("show-lines").click()
    lines = await card.lines.all_text_contents()
    assert [line.rstrip() for line in text.replace("\t", " " * 5).split("\n")][:5] == lines[:5]
    await assert_harmless(victim)
    await expect(victim.page).to_have_title(re.compile(" · Duet$"))
    assert "hit" not in await victim.page.title()
    assert await victim.page.evaluate("navigator.clipboard.readText()") == "untouched"
    await victim.page.reload()
    await expect(victim.at("exec")).to_have_count(len(ESCAPES) + 3)
    await assert_harmless(victim)


async def test_the_policy_stops_what_got_through_all_else(arrive):
    victim = await arrive("Vera")
    inject = """() => {
        const script = document.createElement('script');
        script.textContent = "hit('inline')";
        document.body.append(script);
        const host = document.createElement('div');
        host.innerHTML = '<img src="https://example.invalid/spy.png" onerror="hit(1)">';
        document.body.append(host);
    }"""
    stopped = set()

    def all_three(message) -> bool:
        # The page's own line on a violation comes after Chromium's.
        if told := re.match(r"policy: (\S+)", message.text):
            stopped.add(told[1])
        return stopped >= {"script-src-elem", "img-src", "script-src-attr"}

    async with (
        victim.bearing("Content Security Policy|^console: policy: "),
        victim.page.expect_console_message(all_three),
    ):
        await victim.page.evaluate(inject)
