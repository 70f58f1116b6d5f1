"""POST /message: said, answered, waited for; several at once; a client that hangs up."""

import asyncio

import aiohttp
import pytest

from server.agent import turns
from tests.integration.agent.conftest import finished, two
from tests.integration.server.harness import SANDBOX_S


async def post(opened, room, text="Q?", **fields):
    return await opened.http("POST", f"/api/rooms/{room}/message", {"text": text, **fields})


async def test_the_reply_has_the_words_then_each_commands_output(house):
    opened = await house(
        ["I try.\n<run>echo Hello; echo no >&2</run>"],
        ["<run>echo only >&2; exit 3</run><run>true</run>Then this."],
        ["Done."],
    )
    async with two(opened) as (room, alice, _bob):
        status, answer = await post(opened, room, "Do it", userId="carol")
        assert status == 200
        assert answer["reply"] == (
            "I try.\n\n\nThen this.\n\nDone."
            "\n\nOutput (echo Hello; echo no >&2):\nHello\n"
            "\n\nOutput (echo only >&2; exit 3):\nonly\n"
            "\n\nOutput (true):\n[no output]"
        )
        assert [(m["role"], m.get("userId"), m["text"]) for m in answer["messages"]] == [
            ("user", "carol", "Do it"),
            ("agent", None, "I try.\n\n\nThen this.\n\nDone."),
        ]
        assert all(isinstance(m["ts"], int) for m in answer["messages"])
        await alice.until("agent.finished")
        assert alice.of("message")[0]["by"]["name"] == "carol"
        assert alice.of("agent.queued")[0]["replyTo"] == alice.of("message")[0]["id"]


async def test_output_is_cut_at_500_characters(house):
    opened = await house(["<run>seq 1 1000</run>"], ["ok"])
    room = await opened.new_room()
    _, answer = await post(opened, room)
    output = answer["reply"].partition("Output (seq 1 1000):\n")[2]
    assert len(output) == 500
    assert output.startswith("1\n2\n")


async def test_what_could_not_run_is_an_error_in_the_reply(house):
    opened = await house(["<run>x</run>"], ["ok"], agent_approval="off")
    room = await opened.new_room()
    _, answer = await post(opened, room)
    assert answer["reply"].startswith("ok\n\nError (x):\n")


async def test_without_an_engine_the_command_is_an_error_and_the_turn_goes_on(house):
    opened = await house(["<run>x</run>"], ["No sandbox."], docker_host="unix:///nowhere.sock")
    room = await opened.new_room()
    status, answer = await post(opened, room)
    assert (status, answer["status"]) == (200, "done")
    assert answer["reply"].startswith("No sandbox.\n\nError (x):\n")
    assert "sandbox_unavailable" in opened.script.told()


async def test_several_at_once_queue(house):
    opened = await house(*[[f"answer {n}"] for n in range(5)])
    async with two(opened) as (room, alice, _bob):
        asked = [post(opened, room, f"question {n}") for n in range(5)]
        answers = [answer for _, answer in await asyncio.gather(*asked)]
        assert sorted(a["reply"] for a in answers) == [f"answer {n}" for n in range(5)]
        await alice.until(lambda _: len(alice.of("agent.finished")) == 5)
        open_turn = None
        for event in alice.log(room):
            if event["type"] == "agent.started":
                assert open_turn is None
                open_turn = event["turn"]
            elif event["type"] == "agent.finished":
                assert event["turn"] == open_turn
                open_turn = None


async def test_a_client_that_hangs_up_does_not_stop_the_turn(house):
    gate = asyncio.Event()
    opened = await house(["It ", gate, "goes on."])
    async with two(opened) as (room, alice, _bob):
        async with aiohttp.ClientSession() as http:
            url = f"{opened.url}/api/rooms/{room}/message"
            request = asyncio.ensure_future(http.post(url, json={"text": "Q?"}))
            delta = await alice.until("agent.delta")
            request.cancel()
        gate.set()
        end = await finished(alice, delta["turn"], limit_s=SANDBOX_S)
        assert end["status"] == "done"
        assert alice.of("message")[-1]["text"] == "It goes on."


async def test_callers_are_answered_when_their_room_is_deleted(house):
    opened = await house(["Hm", asyncio.Event()])
    async with two(opened) as (room, alice, _bob):
        asked = [asyncio.ensure_future(post(opened, room, f"{n}")) for n in range(3)]
        await alice.until("agent.delta")
        await alice.until(lambda _: len(alice.of("agent.queued")) == 3)
        assert (await opened.http("DELETE", f"/api/rooms/{room}"))[0] == 200
        for status, answer in await asyncio.gather(*asked):
            # They may be told before the room is gone, or after.
            assert status == 404 or (status, answer["status"]) == (200, "stopped"), answer
        assert opened.app.agent._turns == {}


@pytest.mark.parametrize("name", ["duet", "Duet", " DUET "])
async def test_nobody_speaks_over_http_by_the_agents_name(house, name):
    opened = await house()
    async with two(opened) as (room, alice, _bob):
        status, answer = await post(opened, room, userId=name)
        assert (status, list(answer["details"])) == (400, ["userId"])
        await alice.settle()
        assert alice.of("message") == []


async def test_what_cannot_be_asked_is_not_said_either(house, monkeypatch):
    """Or who tries again, as 429 says, says it again and again."""
    monkeypatch.setattr(turns, "WAITING_MAX", 0)
    opened = await house()
    async with two(opened) as (room, alice, _bob):
        status, answer = await post(opened, room)
        assert (status, "questions wait" in answer["error"]) == (429, True)
        await alice.settle()
        assert alice.of("message") == []


async def test_a_failed_turn_is_told_in_words(house):
    opened = await house([""], [""])
    room = await opened.new_room()
    status, answer = await post(opened, room)
    assert (status, answer["status"]) == (200, "failed")
    assert "empty answer" in answer["reply"]
    assert "empty answer" in answer["message"]


def told(answer):
    return [(m["role"], m.get("userId"), m["text"]) for m in answer["messages"]]


async def test_without_a_model_the_reply_is_what_the_room_is_told(house):
    opened = await house(models=False)
    async with two(opened) as (room, alice, _bob):
        status, answer = await post(opened, room, "Hello?", userId="carol")
        assert (status, answer["status"]) == (200, "failed")
        await alice.until("agent.finished")
        said = alice.of("message")[-1]
        assert said["by"]["kind"] == "agent"
        assert "DUET_AGENT_MODEL" in said["text"]
        assert answer["reply"] == said["text"]
        assert told(answer) == [("user", "carol", "Hello?"), ("agent", None, said["text"])]
        # The room is told once; who asks over HTTP has no other way to know.
        _, again = await post(opened, room, "And now?", userId="dan")
        assert again["reply"] == said["text"]
        assert told(again) == [*told(answer), ("user", "dan", "And now?")]


async def test_the_messages_are_the_rooms_up_to_this_answer(house):
    gate = asyncio.Event()
    opened = await house(["First."], ["Second", gate, "."], ["Third."])
    async with two(opened) as (room, alice, bob):
        await alice.ok("say", room=room, text="Good morning")
        gone = await alice.ok("say", room=room, text="Oops")
        await alice.ok("delete", room=room, id=gone["id"])
        await post(opened, room, "One?", userId="carol")
        second = asyncio.ensure_future(post(opened, room, "Two?", userId="carol"))
        await alice.until(lambda f: f["type"] == "agent.delta" and f["text"] == "Second")
        await bob.ok("say", room=room, text="By the way")
        third = asyncio.ensure_future(post(opened, room, "Three?"))
        await alice.until(lambda _: len(alice.of("agent.queued")) == 3)
        gate.set()
        before = [
            ("user", alice.id, "Good morning"),
            ("user", "carol", "One?"),
            ("agent", None, "First."),
            ("user", "carol", "Two?"),
            ("user", bob.id, "By the way"),
            ("user", None, "Three?"),
            ("agent", None, "Second."),
        ]
        _, answer = await second
        assert (answer["reply"], told(answer)) == ("Second.", before)
        _, answer = await third
        assert (answer["reply"], told(answer)) == ("Third.", [*before, ("agent", None, "Third.")])
        assert [m["ts"] for m in answer["messages"]] == sorted(m["ts"] for m in answer["messages"])


async def test_the_question_is_among_the_messages_however_much_happened_since(house):
    gate = asyncio.Event()
    opened = await house(["It ", gate, "is."], frames_per_second=1_000)
    async with two(opened) as (room, alice, _bob):
        asked = asyncio.ensure_future(post(opened, room, "Q?", userId="carol"))
        await alice.until("agent.delta")
        for n in range(12):
            await alice.ok("say", room=room, text=f"{n}" + "x" * 16_000)
        gate.set()
        _, answer = await asked
        messages = told(answer)
        assert messages[0] == ("user", "carol", "Q?")
        assert messages[-1] == ("agent", None, "It is.")
        assert messages[-2][2].startswith("11x")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": 1}, "text"),
        ({"text": "a\0"}, "text"),
        ({"text": "x" * 16_385}, "text"),
        ({"text": "x", "userId": ""}, "userId"),
        ({"text": "x", "userId": 1}, "userId"),
        ({"text": "x", "userId": "u" * 65}, "userId"),
    ],
)
async def test_bad_bodies_are_refused(house, body, field):
    opened = await house()
    room = await opened.new_room()
    status, answer = await opened.http("POST", f"/api/rooms/{room}/message", body)
    assert (status, answer["error"]) == (400, "invalid request")
    assert field in answer["details"]


async def test_an_unknown_room_is_404_and_a_wrong_method_405(house):
    opened = await house()
    assert (await post(opened, "nowhere"))[0] == 404
    room = await opened.new_room()
    assert (await opened.http("GET", f"/api/rooms/{room}/message"))[0] == 405
