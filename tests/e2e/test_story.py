"""What two people in two browsers can do together, told in the order in which they would do it."""

import re

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_names_a_room_and_its_link(arrive):
    ada = await arrive()
    await expect(ada.at("name-form")).to_be_visible()
    await ada.at("name-submit").click()
    await expect(ada.page.get_by_role("alert")).to_be_visible()
    await ada.at("name-input").fill("Ada")
    await ada.at("name-submit").click()
    await expect(ada.at("my-name")).to_have_text("Ada")
    await ada.make_room("Blue room")
    assert "/r/" in ada.page.url
    await ada.at("invite").click()
    await expect(ada.at("notice")).to_contain_text("Link copied")
    link = await ada.page.evaluate("navigator.clipboard.readText()")
    ben = await arrive()
    await ben.page.goto(link)
    await ben.at("name-input").fill("Ben")
    await ben.at("name-submit").click()
    await expect(ben.at("room-title")).to_have_text("Blue room")
    await expect(ben.page).to_have_title("Blue room · Duet")
    room = ben.at("room-list").locator(f"[data-room={ada.room}]")
    await expect(room).to_have_attribute("aria-current", "page")
    for one in (ada, ben):
        await expect(one.person("Ada")).to_be_visible()
        await expect(one.person("Ben")).to_be_visible()


async def test_people_come_and_go(arrive, pair):
    ada, _ = pair
    cleo = await arrive("Cleo", f"/r/{ada.room}")
    await expect(ada.at("passing")).to_have_text("Cleo came in")
    await expect(ada.at("faces")).to_have_attribute("aria-label", re.compile("^3 here: .*Cleo"))
    await cleo.page.close()
    await expect(ada.person("Cleo")).to_have_count(0)
    await expect(ada.at("passing")).to_have_text("Cleo left")
    again = await cleo.context.new_page()
    cleo.problems.clear()  # the page that was just opened
    await again.goto(ada.page.url)
    # The profile knows who Cleo is.
    await expect(again.get_by_test_id("my-name")).to_have_text("Cleo")
    await expect(ada.person("Cleo")).to_have_count(1)


async def test_typing_is_seen_until_it_is_sent(pair):
    ada, ben = pair
    await ada.input.press_sequentially("Hello B")
    await expect(ben.at("typing")).to_have_text("Ada is typing…")
    await expect(ada.at("typing")).to_have_text("")
    await ada.input.press("Enter")
    await expect(ben.message("Hello B")).to_be_visible()
    await expect(ben.at("typing")).to_have_text("")


async def test_a_conversation_with_edits_reactions_and_deletions(pair):
    ada, ben = pair
    await ada.say("First words")
    await expect(ben.message("First words")).to_be_visible()
    await expect(ada.at("outgoing")).to_have_count(0)
    row = ben.page.locator("[data-author=Ada]").filter(has=ben.message("First words"))
    await expect(row).to_have_count(1)
    await ben.say("Second words")
    await expect(ada.message("Second words")).to_be_visible()

    await ben.message("First words").hover()
    await ben.message("First words").get_by_test_id("message-react").click()
    await ben.page.get_by_role("button", name="React with 🎉").click()
    await expect(ada.message("First words").locator(".reaction")).to_have_text("🎉 1")
    await expect(ben.message("First words").get_by_test_id("message-edit")).to_have_count(0)

    await ada.message("First words").hover()
    await ada.message("First words").get_by_test_id("message-edit").click()
    await ada.at("message-edit-input").fill("Better words")
    await ada.at("message-edit-input").press("Enter")
    await expect(ben.message("Better words")).to_contain_text("edited")
    await expect(ben.message("First words")).to_have_count(0)

    await ada.message("Better words").hover()
    await ada.message("Better words").get_by_test_id("message-delete").click()
    await ada.at("message-delete-confirm").click()
    for one in (ada, ben):
        await expect(one.page.get_by_text("This message was deleted.")).to_be_visible()
        await expect(one.message("Better words")).to_have_count(0)


async def test_what_opens_on_a_message_can_be_left(pair):
    ada, _ = pair
    await ada.say("Keep me")
    said = ada.message("Keep me")
    react, emoji = (
        said.get_by_test_id("message-react"),
        ada.page.get_by_role("button", name="React with 🎉"),
    )
    await said.hover()
    await react.click()
    await expect(emoji).to_be_visible()
    await ada.page.keyboard.press("Escape")
    await expect(emoji).to_have_count(0)
    await expect(react).to_be_focused()
    await ada.page.keyboard.press("Enter")
    await expect(emoji).to_be_visible()
    await ada.at("room-title").click()
    await expect(emoji).to_have_count(0)
    await said.hover()
    await said.get_by_test_id("message-delete").click()
    await ada.input.focus()
    await expect(ada.at("message-delete-confirm")).to_have_count(0)
    await said.hover()
    await said.get_by_test_id("message-delete").click()
    await ada.page.keyboard.press("Escape")
    await expect(said.get_by_test_id("message-delete")).to_be_focused()
    await expect(said).to_have_text("Keep me")


async def test_markdown_and_code_blocks_render(pair):
    ada, ben = pair
    await ada.say(
        "# Plan\n\nSome **bold**, _slanted_ and `code`, a [link](https://example.org/a?b=1).\n\n"
        "- one\n- two\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "```python\nprint('<b>&amp;</b>')\n```"
    )
    said = ben.message("Plan")
    await expect(said.locator("h1")).to_have_text("Plan")
    await expect(said.locator("strong")).to_have_text("bold")
    await expect(said.locator("em")).to_have_text("slanted")
    await expect(said.locator("p > code")).to_have_text("code")
    await expect(said.locator("li")).to_have_text(["one", "two"])
    await expect(said.locator("blockquote")).to_have_text("quoted")
    await expect(said.locator("td")).to_have_text(["1", "2"])
    await expect(said.locator("pre code")).to_have_text("print('<b>&amp;</b>')\n")
    link = said.get_by_role("link", name="link")
    await expect(link).to_have_attribute("href", "https://example.org/a?b=1")
    await expect(link).to_have_attribute("rel", re.compile("noopener"))
    await said.get_by_role("button", name="Copy").click()
    copied = await ben.page.evaluate("navigator.clipboard.readText()")
    assert copied == "print('<b>&amp;</b>')\n"


async def test_each_line_is_seen_as_it_is_printed(pair):
    ada, ben = pair
    command = "for i in 1 2 3; do echo $i; sleep 1; done"
    await ada.say(f"!{command}")
    for one in (ada, ben):
        card = one.exec(command)
        await card.prints("1")
        await expect(card.output).to_have_text(re.compile(r"^1\s*2?\s*$"))
        await card.is_now("running")
        await expect(card.row).to_have_attribute("data-author", "Ada")
        await expect(one.at("running-exec")).to_contain_text(command)
        await expect(one.at("sandbox")).to_have_attribute("data-status", "running")
    for one in (ada, ben):
        card = one.exec(command)
        await card.is_now("ok")
        await expect(card.lines).to_have_text(["1", "2", "3"])
        await expect(card.at("exec-end")).to_contain_text("exit 0")
        await expect(card.at("exec-duration")).to_have_text(re.compile(r"^[3-9]\.\d s$"))
        await expect(one.at("running-exec")).to_have_count(0)


async def test_others_run_meanwhile_and_share_the_files(pair):
    ada, ben = pair
    waiting = "echo waiting; until [ -e go ]; do sleep 0.05; done; cat go"
    await (await ada.run(waiting)).prints("waiting")
    await ada.say("!echo from Ada > note.txt")
    await ada.exec("echo from Ada > note.txt").is_now("ok")
    listed = await ben.run("ls")
    await listed.prints("note.txt")
    await listed.is_now("ok")
    await ada.exec("ls").prints("note.txt")
    await ben.exec(waiting).is_now("running")
    await (await ben.run("cat note.txt")).prints("from Ada")
    await ben.run("echo from Ben > go")
    await ada.exec(waiting).prints("from Ben")
    for one in (ada, ben):
        await one.exec(waiting).is_now("ok")


async def test_slash_run_and_the_run_button(pair):
    ada, ben = pair
    await ada.say("/run echo by the slash")
    await ben.exec("echo by the slash").is_now("ok")
    await ben.at("mode-run").click()
    await expect(ben.at("mode-run")).to_have_attribute("aria-pressed", "true")
    await ben.input.fill("echo by the button; exit 7")
    await expect(ben.at("send")).to_have_text("Run")
    await ben.at("send").click()
    for one in (ada, ben):
        card = one.exec("echo by the button; exit 7")
        await card.prints("by the button")
        await card.is_now("command_failed")
        await expect(card.at("exec-end")).to_contain_text("exit 7")
    await ben.at("mode-message").click()
    await ben.say("only words")
    await expect(ada.message("only words")).to_be_visible()


async def test_a_new_room_teaches_by_doing(arrive):
    ada = await arrive("Ada")
    await ada.make_room("Green room")
    await ada.at("try-run").click()
    await expect(ada.input).to_be_focused()
    await expect(ada.at("mode-run")).to_have_attribute("aria-pressed", "true")
    await ada.at("try-say").click()
    await expect(ada.input).to_have_value("Hello!")
    await ada.input.press("Enter")
    await expect(ada.message("Hello!")).to_be_visible()
    await expect(ada.at("empty-room")).to_have_count(0)


async def test_either_stops_a_running_command_with_one_click(pair):
    ada, ben = pair
    # The one stops it at its card, the other in the list at the side.
    for stopper, owner, button in ((ben, ada, "exec-stop"), (ada, ben, "running-stop")):
        command = f"echo stop me by {button}; sleep 1000"
        await (await owner.run(command)).prints("stop me")
        await stopper.exec(command).is_now("running")
        at = stopper.exec(command) if button == "exec-stop" else stopper
        await at.at(button).click()
        for one in (ada, ben):
            card = one.exec(command)
            await card.is_now("cancelled")
            await expect(card.at("exec-end")).to_contain_text("stopped")
            await card.prints("stop me")
            await expect(one.at("running-exec")).to_have_count(0)


async def test_a_third_joins_late(arrive, pair):
    ada, ben = pair
    await ada.say("Said before Cleo came")
    await (await ben.run("echo ended before")).is_now("ok")
    waiting = "echo line one; until [ -e go ]; do sleep 0.05; done; echo line two; sleep 1000"
    await (await ada.run(waiting)).prints("line one")
    cleo = await arrive("Cleo", f"/r/{ada.room}")
    await expect(cleo.message("Said before Cleo came")).to_be_visible()
    await cleo.exec("echo ended before").is_now("ok")
    await cleo.exec("echo ended before").prints("ended before")
    card = cleo.exec(waiting)
    await card.is_now("running")
    await card.prints("line one")
    await expect(card.lines).to_have_text(["line one"])
    await cleo.run("touch go")
    for one in (ada, ben, cleo):
        await expect(one.exec(waiting).lines).to_have_text(["line one", "line two"])
    await cleo.exec(waiting).at("exec-stop").click()
    await ada.exec(waiting).is_now("cancelled")


async def test_a_command_over_http_is_seen_live(pair, server):
    ada, ben = pair
    await (await ada.run("echo warm")).is_now("ok")
    path = f"/api/rooms/{ada.room}/sandbox/exec"
    status, answer = await server.http("POST", path, {"cmd": "echo over http; exit 3"})
    assert (status, answer["result"]["exitCode"]) == (200, 3)
    for one in (ada, ben):
        card = one.exec("echo over http; exit 3")
        await card.is_now("command_failed")
        await card.prints("over http")
        await expect(card.row).to_have_attribute("data-author", "HTTP API")


async def test_long_output_is_folded_and_opens(pair):
    ada, ben = pair
    await (await ada.run("seq 1 4000")).is_now("ok")
    for one in (ada, ben):
        card = one.exec("seq 1 4000")
        await card.prints("4000")
        middle = card.lines.get_by_text("2345", exact=True)
        await expect(middle).to_have_count(0)
        await card.at("show-lines").click()
        await expect(middle).to_have_count(1)


async def test_an_unknown_room_says_so_and_offers_to_make_it(arrive):
    ada = await arrive("Ada", "/r/not-there-yet")
    await expect(ada.at("room-problem")).to_have_attribute("data-code", "unknown_room")
    await ada.at("room-problem").get_by_test_id("new-room-create").click()
    await expect(ada.at("empty-room")).to_be_visible()
    assert ada.room == "not-there-yet"


async def test_a_room_that_is_deleted_while_open_says_just_that(arrive, server):
    room = await server.new_room(name="Short room")
    ada = await arrive("Ada", f"/r/{room}")
    await expect(ada.at("empty-room")).to_be_visible()
    await server.http("DELETE", f"/api/rooms/{room}")
    await expect(ada.at("room-problem")).to_have_attribute("data-code", "deleted")
    await expect(ada.at("room-problem")).to_contain_text("was removed while you were here")
    await expect(ada.at("room-problem")).not_to_contain_text("mistyped")


async def test_history_loads_as_one_scrolls_up(arrive, server):
    room = await server.new_room(name="Long room")
    async with server.client() as bot:
        await bot.join(room)
        for number in range(160):
            await bot.ok("say", room=room, text=f"line number {number:03}")
    ada = await arrive("Ada", f"/r/{room}")
    await expect(ada.message("line number 159")).to_be_in_viewport()
    await expect(ada.message("line number 000")).to_have_count(0)
    while await ada.at("load-older").count():
        shown = await ada.at("message").count()
        await ada.at("timeline-scroller").evaluate("(box) => { box.scrollTop = 0 }")
        await expect(ada.at("message")).not_to_have_count(shown)
    await expect(ada.message("line number 000")).to_have_count(1)
    said = await ada.at("message").all_text_contents()
    assert [re.search(r"\d{3}", one)[0] for one in said] == [f"{n:03}" for n in range(160)]
    await ada.at("jump-latest").click()
    await expect(ada.message("line number 159")).to_be_in_viewport()


async def test_a_second_window_is_the_same_person(arrive, pair):
    ada, _ = pair
    cleo = await arrive("Cleo", f"/r/{ada.room}")
    async with cleo.bearing("^opened "):
        second = await cleo.context.new_page()
        await second.goto(ada.page.url)
    await expect(second.get_by_test_id("people").locator("[data-name=Cleo]")).to_have_count(1)
    await cleo.page.close()
    await second.get_by_test_id("composer-input").fill("still here")
    await second.get_by_test_id("composer-input").press("Enter")
    await expect(ada.message("still here")).to_be_visible()
    await expect(ada.person("Cleo")).to_have_count(1)
    await second.close()
    await expect(ada.person("Cleo")).to_have_count(0)


async def test_what_cannot_be_sent_says_why(pair):
    ada, ben = pair
    await ada.input.fill("x" * 200_000)
    await ada.input.press("Enter")
    await expect(ada.at("composer-problem")).to_contain_text("200,000 characters")
    await ada.input.fill("/run ")
    await ada.input.press("Enter")
    await expect(ada.at("composer-problem")).to_contain_text("Type a command")
    for none in ("/bogus", "!"):
        await ada.input.fill(none)
        await ada.input.press("Enter")
        await expect(ada.at("composer-problem")).to_contain_text("space before it")
        await expect(ada.input).to_have_value(none)
    await ada.say(" /bogus")
    await ada.say("short enough")
    await expect(ada.at("composer-problem")).to_have_count(0)
    await expect(ben.at("message")).to_have_text(["/bogus", "short enough"])


async def test_a_flood_leaves_the_room_usable(pair):
    ada, ben = pair
    flood = "yes 'a line of many' | head -c 30000000; echo flood over; yes on and on"
    await (await ada.run(flood)).prints("a line of many")
    await ben.say("still talking")
    await expect(ada.message("still talking")).to_be_visible()
    await ben.exec(flood).prints("on and on")
    await ben.exec(flood).at("exec-stop").click()
    for one in (ada, ben):
        await one.exec(flood).is_now("cancelled")
    await (await ben.run("echo next")).is_now("ok")
    await ada.exec("echo next").prints("next")
