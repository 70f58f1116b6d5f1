"""The agent on the page: asked, watched, allowed, denied, stopped, queued, joined in the middle.

Its model is a scripted server behind real HTTP; the rest is as people have it.
"""

import asyncio
import contextlib
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.e2e.person import NARROW, SANDBOX_MS
from tests.e2e.test_looks import fits, named, readable, settled
from tests.integration.agent.provider import Provider, provider
from tests.integration.server.harness import Server, remove_containers

pytestmark = pytest.mark.asyncio(loop_scope="session")


HASTE_S = 5
"""For an answer: long enough to see the question, short enough to wait for its end."""


class Desk:
    """A server with an agent, and the script that its model follows."""

    def __init__(self, server: Server, made: Provider) -> None:
        self.server = server
        self.made = made

    def script(self, *answers: object) -> None:
        self.made.answers[:] = answers

    def told(self) -> str:
        """What the model was sent last."""
        return str(self.made.requests[-1][1])

    async def room(self, approval: str = "ask", name: str = "Blue room") -> str:
        room = await self.server.new_room(name=name)
        body = {"agent": {"approval": approval}}
        assert (await self.server.http("PATCH", f"/api/rooms/{room}", body))[0] == 200
        return f"/r/{room}"


@contextlib.asynccontextmanager
async def opened(data, **env):
    """A desk whose agent asks before it runs a command."""
    async with provider() as made:
        env |= {"DUET_AGENT_MODEL": "openai:scripted", "DUET_AGENT_API_KEY": "sk-test"}
        server = Server(data, **env, DUET_AGENT_BASE_URL=made.url, DUET_AGENT_APPROVAL="ask")
        try:
            yield Desk(server.wait_ready(), made)
            assert "Traceback" not in server.log(), server.log()
        finally:
            server.stop()
            remove_containers(server)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def desk(tmp_path_factory):
    async with opened(tmp_path_factory.mktemp("desk") / "data") as desk:
        yield desk


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hasty(tmp_path_factory):
    """A desk that waits a few seconds for people's answers and runs one command in a turn."""
    env = {"DUET_AGENT_APPROVAL_S": str(HASTE_S), "DUET_AGENT_MAX_COMMANDS": "1"}
    async with opened(tmp_path_factory.mktemp("hasty") / "data", **env) as desk:
        yield desk


@pytest_asyncio.fixture(loop_scope="session")
async def two(desk, arrive):
    """Ada and Ben in a new room of a server with an agent: `await two("auto")`."""

    async def come(approval="ask"):
        path = await desk.room(approval)
        ada = await arrive("Ada", path, at=desk.server)
        ben = await arrive("Ben", path, at=desk.server)
        await expect(ada.person("Ben")).to_be_visible()
        return ada, ben

    return come


def turn(person):
    return person.at("turn").last


async def is_now(person, status) -> None:
    await expect(turn(person)).to_have_attribute("data-status", status, timeout=SANDBOX_MS)


async def test_ask_watch_approve(desk, two):
    ada, ben = await two()
    go_on = asyncio.Event()
    command = "echo Hello World > hello.txt && cat hello.txt"
    desk.script(
        ["I will ", go_on, f"create it. <run>{command}</run>"], ["The file holds **Hello World**."]
    )
    await ada.say("@duet create hello.txt with Hello World and show it")
    asked = ada.message("create hello.txt")
    await expect(asked.locator(".mention")).to_have_text("@duet")
    for one in (ada, ben):
        await expect(turn(one).get_by_test_id("turn-text")).to_have_text("I will")
        await expect(one.at("agent-now")).to_contain_text("duet is thinking for Ada")
        row = turn(one).locator("xpath=ancestor::article")
        await expect(row).to_contain_text("answering Ada")
        # The question is a message already.
        await expect(one.at("ask")).to_have_count(0)
    go_on.set()
    for one in (ada, ben):
        await expect(one.at("approval-command")).to_have_text(command)
        await expect(one.at("approval-left")).to_have_text(re.compile(r"^[12]:\d\d left$"))
        await expect(one.at("agent-told")).to_contain_text("needs an answer")
    await ben.at("approval-allow").click()
    for one in (ada, ben):
        card = one.exec(command)
        await card.is_now("ok")
        await card.prints("Hello World")
        await is_now(one, "done")
        await expect(turn(one).get_by_test_id("decided")).to_have_text("Allowed by Ben")
        words = turn(one).get_by_test_id("turn-text")
        await expect(words).to_have_text(["I will create it.", "The file holds Hello World."])
        await expect(words.last.locator("strong")).to_have_text("Hello World")
        await expect(turn(one).get_by_test_id("turn-usage")).to_have_text("30 tokens · 1 command")
        await expect(one.at("agent-now")).to_have_count(0)
        await expect(one.at("approval")).to_have_count(0)
        await expect(one.at("tokens")).to_contain_text("30 tokens")
        # One block: nothing of the turn stands beside it.
        await expect(one.at("exec")).to_have_count(1)
        await expect(one.at("turn").get_by_test_id("exec")).to_have_count(1)
    await ada.page.reload()
    await is_now(ada, "done")
    await expect(turn(ada)).to_contain_text("The file holds Hello World.")
    await ada.exec(command).prints("Hello World")


async def test_deny_with_a_reason(desk, two):
    ada, ben = await two()
    desk.script(["<run>rm -rf important</run>"], ["Then I leave it."])
    await ada.at("mode-ask").click()
    await expect(ada.at("send")).to_have_text("Ask")
    await ada.say("clean up")
    for one in (ada, ben):
        await expect(one.at("ask")).to_have_text("@duet clean up")
    await expect(ada.at("outgoing")).to_have_count(0)
    await ben.at("approval-deny").click()
    await expect(ben.at("deny-note")).to_be_focused()
    await ben.page.keyboard.press("Escape")
    await expect(ben.at("approval-deny")).to_be_focused()
    await ben.page.keyboard.press("Enter")
    await expect(ben.at("deny-note")).to_be_focused()
    await ben.page.keyboard.type("we still need that")
    await ben.page.keyboard.press("Enter")
    for one in (ada, ben):
        await is_now(one, "done")
        await expect(one.at("denied")).to_contain_text("rm -rf important")
        await expect(one.at("denied")).to_contain_text("Denied by Ben: we still need that")
        await expect(one.at("exec")).to_have_count(0)
        await expect(turn(one)).to_contain_text("Then I leave it.")
    assert "we still need that" in desk.told()


async def test_a_question_that_nobody_answers_runs_out(hasty, arrive):
    path = await hasty.room()
    ada, ben = [await arrive(name, path, at=hasty.server) for name in ("Ada", "Ben")]
    hasty.script(
        ["I would like to <run>rm -rf build</run>"],
        ["Then not."],
        ["Now: <run>echo in time</run>"],
        ["It ran."],
    )
    await ada.say("@duet clean up")
    for one in (ada, ben):
        await expect(one.at("approval-left")).to_have_text(re.compile(r"^0:0\d left$"))
    # Somebody is just writing why not.
    await ben.at("approval-deny").click()
    await ben.at("deny-note").fill("we still")
    for one in (ada, ben):
        await expect(one.at("approval")).to_have_count(0)
    await expect(turn(ben)).to_be_focused()  # the keyboard goes on where the card was
    await expect(ada.input).to_be_focused()
    for one in (ada, ben):
        await expect(one.at("denied")).to_contain_text("rm -rf build")
        await expect(one.at("denied")).to_contain_text("No answer in time.")
        await expect(one.at("exec")).to_have_count(0)
        await is_now(one, "done")
        await expect(turn(one)).to_contain_text("Then not.")
        await expect(turn(one).get_by_test_id("turn-usage")).to_have_text("30 tokens")
    assert "No answer in time." in hasty.told()
    await ben.say("@duet then say something")
    await ada.at("approval-allow").click()
    for one in (ada, ben):
        await one.exec("echo in time").is_now("ok")
        await is_now(one, "done")
        await expect(turn(one)).to_contain_text("It ran.")
    await ben.page.reload()
    await expect(ben.at("denied")).to_contain_text("No answer in time.")
    await expect(ben.at("approval")).to_have_count(0)


async def test_a_command_that_is_off_is_seen_and_nobody_is_asked(desk, two):
    ada, ben = await two("off")
    desk.script(["I try. <run>ls /</run>"], ["I may not."])
    await ada.say("@duet look around")
    for one in (ada, ben):
        await is_now(one, "done")
        await expect(one.at("denied")).to_contain_text("ls /")
        await expect(one.at("denied")).to_contain_text("Commands of the agent are off")
        await expect(one.at("approval")).to_have_count(0)
        await expect(turn(one).get_by_test_id("turn-usage")).to_have_text("30 tokens")
        words = turn(one).get_by_test_id("turn-text")
        await expect(words).to_have_text(["I try.", "I may not."])
    await ben.page.reload()
    await expect(ben.at("denied")).to_contain_text("Commands of the agent are off")


async def test_a_command_beyond_the_limit_is_seen(hasty, arrive):
    ada = await arrive("Ada", await hasty.room("auto"), at=hasty.server)
    hasty.script(["Two: <run>echo one</run> and <run>echo two</run>"])
    await ada.say("@duet run two things")
    await is_now(ada, "limit")
    await ada.exec("echo one").is_now("ok")
    await expect(ada.at("denied")).to_contain_text("echo two")
    await expect(ada.at("denied")).to_contain_text("DUET_AGENT_MAX_COMMANDS")
    await expect(turn(ada).get_by_test_id("turn-usage")).to_have_text("15 tokens · 1 command")


async def test_read_back_its_commands_stand_among_its_words(desk, two):
    ada, ben = await two("auto")
    desk.script(
        ["Frist \U0001f389 <run>echo one</run>", " then"], ["and <run>echo two</run>"], ["So."]
    )
    await ada.say("@duet run two things")
    await is_now(ada, "done")
    shown = """(turn) => [...turn.children]
        .map((one) => one.querySelector('[data-testid=exec-command]') ?? one)
        .map((one) => one.dataset.testid + ' ' + one.innerText.replace(/\\s+/g, ' '))"""

    async def order(person):
        await expect(turn(person).get_by_test_id("exec-elapsed")).to_have_count(0)
        await expect(turn(person).get_by_test_id("exec")).to_have_count(2)
        found = await turn(person).evaluate(shown)
        return [one for one in found if one.startswith(("turn-text", "exec"))]

    live = await order(ada)
    assert live == [
        "turn-text Frist \U0001f389",
        "exec-command echo one",
        "turn-text then and",
        "exec-command echo two",
        "turn-text So.",
    ]
    await ben.page.reload()
    await is_now(ben, "done")
    assert await order(ben) == live


async def test_allow_all_of_this_turn(desk, two):
    ada, ben = await two()
    desk.script(["<run>echo one</run>"], ["<run>echo two</run>"], ["Both ran."])
    await ada.say("/ask run two things")
    await ben.at("approval-always").click()
    for one in (ada, ben):
        await is_now(one, "done")
        await one.exec("echo one").is_now("ok")
        await one.exec("echo two").is_now("ok")
        await expect(turn(one).get_by_test_id("decided")).to_contain_text(["Allowed by Ben, like"])
        await expect(turn(one).get_by_test_id("exec-command")).to_have_text(
            ["echo one", "echo two"]
        )


FROM_END = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"


async def test_everyone_stays_at_the_end_while_it_works(desk, two):
    ada, ben = await two("auto")
    await (await ada.run("seq 1 20")).is_now("ok")
    await ada.say("hello")
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight\n\n"]
    for number in range(3):
        desk.script(
            [f"{word} " for word in words] + [f"<run>echo {number}; ls /; seq 1 9</run>"],
            [f"{word} " for word in words],
        )
        await ada.say(f"@duet look at it {number}")
        for one in (ada, ben):
            await is_now(one, "done")
            await expect(turn(one).get_by_test_id("turn-usage")).to_be_in_viewport()
            await expect(one.at("jump-latest")).to_have_count(0)
            assert await one.at("timeline-scroller").evaluate(FROM_END) < 2
    # Who scrolls up stays there, whatever comes.
    await ben.at("timeline-scroller").hover()
    await ben.page.mouse.wheel(0, -400)
    await expect(ben.at("jump-latest")).to_be_visible()
    desk.script(["Read on. <run>seq 1 30</run>"], ["Done."])
    await ada.say("@duet and now")
    await is_now(ada, "done")
    await expect(ada.at("jump-latest")).to_have_count(0)
    await expect(ben.at("jump-latest")).to_have_text(re.compile("new"))
    await ben.at("jump-latest").click()
    await expect(turn(ben).get_by_test_id("turn-usage")).to_be_in_viewport()


async def test_stop_a_command_and_see_who_waits(desk, two):
    ada, ben = await two("auto")
    command = "echo begun; sleep 1000"
    desk.script([f"This takes long. <run>{command}</run>"], ["Next answer."])
    await ada.say("@duet wait for me")
    await ada.exec(command).prints("begun")
    await ben.say("@duet and then me")
    await ben.say("/ask and this is too much")
    for one in (ada, ben):
        await expect(one.at("waiting-turn")).to_have_count(2)
        await expect(one.at("waiting-turn").first).to_contain_text("and then me")
        await expect(one.at("waiting-turn").last).to_contain_text("this is too much")
    await ben.at("waiting-turn").last.get_by_test_id("turn-stop").click()
    await expect(ada.at("waiting-turn")).to_have_count(1)
    await expect(ada.at("turn-outcome").last).to_contain_text("Ben stopped this.")
    await ben.at("turn").first.get_by_test_id("turn-stop").click()
    for one in (ada, ben):
        first = one.at("turn").first
        await expect(first).to_have_attribute("data-status", "stopped")
        await one.exec(command).is_now("cancelled")
        await expect(first.get_by_test_id("turn-outcome")).to_contain_text("Ben stopped this.")
        await expect(first).to_contain_text("This takes long.")
        await expect(one.at("turn").filter(has_text="Next answer.")).to_have_attribute(
            "data-status", "done"
        )
        await expect(one.at("waiting")).to_have_count(0)
    told = ada.at("turn").filter(has_text="Next answer.").locator("xpath=ancestor::article")
    await expect(told).to_contain_text("answering Ben")


async def test_somebody_joins_in_the_middle(desk, two, arrive):
    ada, _ben = await two()
    go_on = asyncio.Event()
    desk.script(["Half of ", go_on, "it. <run>echo late</run>"], ["Done."])
    await ada.say("/ask take your time")
    await expect(turn(ada).get_by_test_id("turn-text")).to_have_text("Half of")
    cleo = await arrive("Cleo", f"/r/{ada.room}", at=desk.server)
    await expect(turn(cleo).get_by_test_id("turn-text")).to_have_text("Half of")
    await expect(cleo.at("ask")).to_have_text("@duet take your time")
    go_on.set()
    await expect(turn(cleo).get_by_test_id("turn-text")).to_have_text("Half of it.")
    await expect(cleo.at("approval-command")).to_have_text("echo late")
    dora = await arrive("Dora", f"/r/{ada.room}", at=desk.server)
    await expect(turn(dora).get_by_test_id("turn-text")).to_have_text("Half of it.")
    await dora.at("approval-allow").click()
    for one in (ada, cleo, dora):
        await is_now(one, "done")
        await one.exec("echo late").is_now("ok")
        words = turn(one).get_by_test_id("turn-text")
        await expect(words).to_have_text(["Half of it.", "Done."])


async def test_failures_are_told_in_words_and_the_next_question_works(desk, two):
    ada, ben = await two("auto")
    desk.script(["It is ", Provider.BREAK], 401, ["Four."])
    await ada.say("/ask what is two and two?")
    for one in (ada, ben):
        await is_now(one, "failed")
        await expect(turn(one)).to_contain_text("It is")
        await expect(turn(one).get_by_test_id("turn-outcome")).to_contain_text("broke off")
        await expect(turn(one).get_by_test_id("turn-outcome")).to_contain_text("is not finished")
    await ada.say("/ask and now?")
    await expect(turn(ada).get_by_test_id("turn-outcome")).to_contain_text("refused the key")
    await ada.say("/ask once more")
    await expect(turn(ben)).to_contain_text("Four.")


async def test_a_busy_model_is_told_while_it_is_tried_again(desk, two):
    ada, ben = await two("auto")
    desk.script(503, ["Here I am."])
    await ada.say("/ask are you busy?")
    for one in (ada, ben):
        await expect(turn(one).get_by_test_id("turn-doing")).to_contain_text("again")
    for one in (ada, ben):
        await expect(turn(one)).to_contain_text("Here I am.")
        await is_now(one, "done")


async def test_a_hidden_character_in_a_wanted_command_is_named(desk, two):
    ada, _ = await two()
    desk.script(["<run>cat \u202egpj.sh</run>"], ["<b onclick=hit(1)>No</b>, then."])
    await ada.say("/ask show it")
    await expect(ada.at("approval-command")).to_have_text("cat U+202Egpj.sh")
    await ada.at("approval-deny").click()
    await ada.at("deny-confirm").click()
    await expect(ada.at("denied")).to_contain_text("U+202E")
    await expect(turn(ada)).to_contain_text("<b onclick=hit(1)>No</b>, then.")


async def test_the_room_decides_whether_it_asks(desk, two):
    ada, ben = await two("auto")
    for one in (ada, ben):
        await expect(one.person("duet")).to_contain_text("runs commands")
    await ada.at("approval-mode-ask").check()
    for one in (ada, ben):
        await expect(one.at("approval-mode")).to_have_attribute("data-mode", "ask")
        await expect(one.person("duet")).to_contain_text("asks first")
        await expect(one.at("approval-mode-ask")).to_be_checked()
    await ben.page.reload()
    await expect(ben.at("approval-mode-ask")).to_be_checked()


async def test_completion_and_history_in_the_composer(desk, two):
    ada, ben = await two("auto")
    desk.script(["Yes."], ["Again yes."])
    await ada.input.press_sequentially("well @du")
    await expect(ada.at("complete-mention")).to_have_text("@duet")
    await ada.input.press("Escape")
    await expect(ada.at("complete-mention")).to_have_count(0)
    await ada.input.fill("")
    await ada.input.press_sequentially("well @d")
    await ada.input.press("Tab")
    await expect(ada.input).to_have_value("well @duet ")
    await expect(ada.input).to_be_focused()
    await ada.input.press_sequentially("are you there?")
    await ada.input.press("Enter")
    await expect(turn(ben)).to_contain_text("Yes.")
    await ben.say("mail me at me@du")
    await ada.say("/ask again")
    await expect(turn(ada)).to_contain_text("Again yes.")
    await ada.input.press("ArrowUp")
    await expect(ada.input).to_have_value("/ask again")
    await expect(ada.at("send")).to_have_text("Ask")


async def test_by_keyboard_and_for_a_screen_reader(desk, two):
    ada, _ = await two()
    desk.script(["I look. <run>echo seen</run>"], ["I have seen it."])
    await ada.say("@duet look")
    await expect(ada.at("agent-told")).to_have_text(
        "duet wants to run a command and needs an answer: echo seen"
    )
    # The words as they come are silent; whole sentences are told.
    assert await turn(ada).evaluate("(one) => one.closest('[aria-live]').ariaLive") == "off"
    await ada.at("agent-show").focus()
    await ada.page.keyboard.press("Enter")
    await expect(ada.at("approval-allow")).to_be_focused()
    await ada.page.keyboard.press("Enter")
    await is_now(ada, "done")
    await expect(ada.at("agent-told")).to_have_text("duet: I look. I have seen it.")


async def test_looks_at_both_widths_and_in_both_themes(desk, two):
    ada, ben = await two()
    never = asyncio.Event()
    desk.script(
        ["I look first. <run>echo fine</run>"],
        ["Now I push. <run>git commit -am 'A rather long message to see' && git push</run>"],
        [never],
    )
    await ada.say("@duet commit and push")
    await ben.at("approval-allow").click()
    await ada.exec("echo fine").is_now("ok")
    await expect(ada.at("approval-command")).to_contain_text("git push")
    await ben.say("/ask and then?")
    await expect(ada.at("waiting-turn")).to_have_count(1)
    for size in (NARROW, None):
        await ada.page.set_viewport_size(
            (size or {"viewport": {"width": 1280, "height": 800}})["viewport"]
        )
        for scheme in ("light", "dark"):
            await ada.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await settled(ada)
            await readable(ada)
        await fits(ada)
        await named(ada)
    await ada.at("waiting-turn").get_by_test_id("turn-stop").click()
    await ada.at("approval-deny").click()
    await readable(ada)
    await ada.at("deny-confirm").click()
    await expect(ada.at("denied")).to_be_visible()
    await ada.at("turn").first.get_by_test_id("turn-stop").click()
    await expect(ada.at("turn").first).to_have_attribute("data-status", "stopped")
    await readable(ada)


async def test_without_a_model_the_page_says_how_to_get_one(arrive, server):
    ada = await arrive("Ada", f"/r/{await server.new_room()}")
    await expect(ada.at("mode-run")).to_be_visible()
    await expect(ada.at("mode-ask")).to_have_count(0)
    await expect(ada.at("approval-mode")).to_have_count(0)
    await ada.say("/ask who are you?")
    await expect(turn(ada)).to_contain_text("DUET_AGENT_MODEL")
    await expect(ada.at("turn-outcome").last).to_contain_text("No model is configured")
