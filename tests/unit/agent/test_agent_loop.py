"""The loop of a turn with a scripted model: what runs, what the model is told, how it ends."""

import asyncio
from dataclasses import replace

import pytest
from pydantic_ai import exceptions as x

from protocol.errors import LimitReached, Unavailable
from server.agent.models import Answer, Text
from tests.unit.agent.floor import LIMITS, OK, Floor, call, play

FAILED = {"ok": False, "reason": "command_failed", "message": "It exited with 3.", "exitCode": 3}


async def test_words_alone_are_an_answer():
    played = await play(["It ", "is four."])
    assert (played.end.status, played.text) == ("done", "It is four.")
    assert played.turn.usage.steps == 1
    assert "".join(text for _, text in played.floor.deltas) == played.text


@pytest.mark.parametrize("way", ["tags", "native"])
async def test_a_command_runs_and_its_whole_result_goes_back(way):
    wanted = ["Now: ", "<run>ls -x</run>"] if way == "tags" else [call("ls -x")]
    floor = Floor(results=[(FAILED, "out", "err")])
    played = await play(wanted, ["It failed."], way=way, floor=floor)
    assert played.end.status == "done"
    assert floor.ran == ["ls -x"]
    told = played.script.told()
    for part in (
        "command_failed: It exited with 3.",
        "exit code: 3",
        "stdout:\nout",
        "stderr:\nerr",
    ):
        assert part in told
    assert "<run>" not in played.text


async def test_a_native_model_may_say_tags_and_nothing_runs():
    played = await play(["Write <run>ls</run>."], way="native")
    assert (played.text, played.floor.ran) == ("Write <run>ls</run>.", [])


async def test_tools_are_offered_only_to_models_that_take_them():
    for way, names in (("tags", []), ("native", ["run"])):
        played = await play(["x"], way=way)
        assert [tool.name for tool in played.script.asked[0][1].function_tools] == names


async def test_a_native_call_of_a_model_without_tools_counts():
    played = await play([call("ls")], ["done"])
    assert played.floor.ran == ["ls"]


async def test_only_what_the_model_says_is_parsed():
    floor = Floor(results=[(OK, "<run>printed</run>", "<run>told</run>")])
    said = ["<run>cat f</run>"], ["It says `<run>quoted</run>`."]
    played = await play(*said, floor=floor, question="<run>asked</run>")
    assert floor.ran == ["cat f"]
    for text in ("<run>asked</run>", "<run>printed</run>", "<run>told</run>"):
        assert text in played.script.told()


async def test_several_commands_run_in_order_and_all_results_go_back():
    floor = Floor(results=[(OK, "one"), (OK, "two")])
    played = await play(["<run>a</run> and <run>b</run>"], ["both"], floor=floor)
    assert floor.ran == ["a", "b"]
    assert played.script.told().index("one") < played.script.told().index("two")
    assert played.text == " and \n\nboth"


async def test_several_native_calls_each_get_their_own_result():
    floor = Floor(results=[(OK, "one"), (OK, "two")])
    wanted = [{**call("a", number=0), **call("bb", number=1)}]
    played = await play(wanted, ["both"], way="native", floor=floor)
    last = played.script.asked[-1][0][-1]
    assert [(p.tool_call_id, "one" in p.content) for p in last.parts] == [
        ("call_0_16", True),
        ("call_1_17", False),
    ]


async def test_an_unclosed_tag_never_runs_and_the_model_is_told():
    played = await play(["Wait <run>rm -rf /"], ["Sorry."])
    assert played.floor.ran == []
    assert "never closed" in played.script.told()
    assert played.text == "Wait \n\nSorry."


async def test_a_command_that_cannot_start_is_told():
    floor = Floor(results=[(LimitReached("128 commands run here."),)])
    played = await play(["<run>a</run>"], ["Later."], floor=floor)
    assert played.end.status == "done"
    assert "128 commands run here." in played.script.told()
    assert played.turn.calls[0].output == "Error (a):\n128 commands run here."
    assert floor.refusals == [("a", "128 commands run here.")]
    assert played.turn.usage.commands == 0


async def test_a_command_that_was_allowed_and_cannot_start_is_a_call_of_its_own():
    floor = Floor("ask", results=[(LimitReached("No."),)], words=[("allow", None)])
    played = await play(["<run>a</run>"], ["Later."], floor=floor)
    allowed, refused = played.turn.calls
    assert (allowed.decided.name, refused.status) == ("Alice", "denied")
    assert allowed.call != refused.call
    assert floor.refusals == [("a", "No.")]


async def test_a_command_whose_start_is_not_known_is_not_called_refused():
    floor = Floor(results=[(Unavailable("No answer."),)])
    played = await play(["<run>a</run>"], ["Later."], floor=floor)
    assert floor.refusals == []
    assert played.turn.calls[0].output == "Error (a):\nNo answer."
    assert played.turn.usage.commands == 0


# Places


@pytest.mark.parametrize(
    ("answers", "pieces"),
    [
        ([["a <run>1</run> b"], ["c"]], ["a ", " b\n\nc"]),
        ([["<run>1</run>b"], ["c"]], ["", "b\n\nc"]),
        (
            [["a", "\U0001f389\n<r", "un>1</run>\n<run>2</run>!"], ["c"]],
            ["a\U0001f389\n", "\n", "!\n\nc"],
        ),
        ([["a <run>1</run>"], [" \n b <run>2</run> c"], ["d"]], ["a ", "\n\nb ", " c\n\nd"]),
        ([["a <run>1</run>"], [" <run>2</run>\nc"], ["d"]], ["a ", "", "\n\nc\n\nd"]),
        (
            [["a\0<run>1</run>", "b\ud83c", "\udf89<run>2</run>"], ["d"]],
            ["a", "b\U0001f389", "\n\nd"],
        ),
    ],
)
async def test_a_tagged_command_has_its_place_in_the_words(answers, pieces):
    played = await play(*answers)
    assert played.text == "".join(pieces)
    places = [sum(map(len, pieces[: n + 1])) for n in range(len(pieces) - 1)]
    assert played.floor.places == places
    assert [call.at for call in played.turn.calls] == places


async def test_a_native_call_stands_after_its_answers_words():
    played = await play(["I look. ", call("ls")], [call("pwd")], ["So."], way="native")
    assert played.text == "I look. \n\nSo."
    assert played.floor.places == [8, 8]


# Limits


@pytest.mark.parametrize(
    ("limits", "setting"),
    [
        (replace(LIMITS, steps=2), "STEPS"),
        (replace(LIMITS, commands=2), "COMMANDS"),
        (replace(LIMITS, tokens=400), "TOKENS"),
    ],
)
async def test_at_a_limit_the_turn_ends_and_says_which(limits, setting):
    answers = [[f"<run>echo {n}</run>"] for n in range(50)]
    played = await play(
        *answers, limits=limits, floor=Floor(results=[(OK, str(n)) for n in range(50)])
    )
    assert played.end.status == "limit"
    assert setting in played.end.message
    assert len(played.floor.ran) <= 8


async def test_commands_beyond_the_limit_are_shown_and_not_counted():
    wanted = "".join(f"<run>echo {n}</run>" for n in range(20))
    floor = Floor(results=[(OK, str(n)) for n in range(9)])
    played = await play([wanted], limits=replace(LIMITS, commands=2), floor=floor)
    assert (played.end.status, floor.ran) == ("limit", ["echo 0", "echo 1"])
    assert [command for command, _ in floor.refusals] == ["echo 2", "echo 3", "echo 4"]
    assert all(why == played.end.message for _, why in floor.refusals)
    assert played.turn.usage.commands == 2
    assert played.turn.calls[2].output == f"Error (echo 2):\n{played.end.message}"


async def test_a_command_of_an_answer_beyond_the_tokens_is_shown_and_does_not_run():
    answer = ["Well. " * 120, "<run>ls</run><run></run>"]
    played = await play(answer, limits=replace(LIMITS, tokens=150))
    assert (played.end.status, played.floor.ran) == ("limit", [])
    assert "TOKENS" in played.end.message
    assert played.floor.refusals == [("ls", played.end.message)]
    assert played.turn.usage.commands == 0


async def test_commands_that_people_deny_count_for_the_limit_and_not_as_run():
    floor = Floor("ask", words=[("deny", None)] * 5)
    limits = replace(LIMITS, commands=3)
    played = await play(*[[f"<run>echo {n}</run>"] for n in range(5)], floor=floor, limits=limits)
    assert (played.end.status, len(floor.asked)) == ("limit", 3)
    assert played.turn.usage.commands == 0


async def test_a_model_that_never_sends_another_byte_is_cut_and_its_words_kept():
    played = await play(["It is", asyncio.Event()], limits=replace(LIMITS, seconds=0.5))
    assert (played.end.status, played.text) == ("limit", "It is")
    assert "SECONDS" in played.end.message


async def test_a_model_that_never_begins_is_cut_too():
    played = await play([asyncio.Event()], limits=replace(LIMITS, seconds=0.3))
    assert (played.end.status, played.text) == ("limit", "")
    assert "SECONDS" in played.end.message


async def test_a_command_is_stopped_when_the_time_is_over():
    floor = Floor(results=[(None,)])
    played = await play(["<run>sleep 99</run>"], floor=floor, limits=replace(LIMITS, seconds=0.5))
    assert played.end.status == "limit"
    assert floor.cancelled == ["room.1"]


async def test_an_endless_answer_is_cut_while_it_comes():
    endless = (f"word{n} " for n in range(10**9))
    played = await play(endless, limits=replace(LIMITS, tokens=300))
    assert played.end.status == "limit"
    assert "TOKENS" in played.end.message
    assert played.text.startswith("word0 word1 ")


async def test_an_answer_is_no_longer_than_a_message():
    endless = (f"{n} " * 100 for n in range(10**6))
    played = await play(endless, limits=replace(LIMITS, tokens=10**6))
    assert played.end.status == "limit"
    assert len(played.text) == 16_384


async def test_what_is_set_apart_counts_for_the_length_of_a_message():
    for more in range(4):
        words = "".join(f"{n:04d}" for n in range(9_999))[: 16_384 - more]
        played = await play([words, "<run>ls</run>"], ["abc"], limits=replace(LIMITS, tokens=10**6))
        assert len(played.text) <= 16_384, more
        assert played.end.status == "limit"
        assert "16384 characters" in played.end.message


class Cut:
    """A model whose answers end as told, whatever they were allowed."""

    way, small, answer_tokens = "tags", False, 1_000

    def __init__(self, **ended):
        self.ended = ended
        self.allowed = []

    async def ask(self, _dialogue, max_tokens):
        self.allowed.append(max_tokens)
        yield Text("It is <run>ls</run>")
        yield Answer([], 10, 20, **self.ended)


class Endless(Cut):
    """A model that goes on in a command that nobody sees, however long it is allowed to be."""

    async def ask(self, _dialogue, max_tokens):
        yield Text("It is <run>")
        while True:
            yield Text("xy\u8a9e")


@pytest.mark.parametrize(("limit", "words"), [(10**6, "longest length"), (500, "MAX_TOKENS")])
async def test_an_endless_command_is_cut_while_it_comes(limit, words):
    played = await play(models=Endless(), limits=replace(LIMITS, tokens=limit))
    assert (played.end.status, played.text, played.floor.ran) == ("limit", "It is ", [])
    assert words in played.end.message


@pytest.mark.parametrize(
    ("limit", "allowed", "words"), [(10_000, 1_000, "longest length"), (500, None, "MAX_TOKENS")]
)
async def test_an_answer_that_was_cut_says_by_which_limit(limit, allowed, words):
    models = Cut(cut=True)
    played = await play(models=models, limits=replace(LIMITS, tokens=limit))
    assert (played.end.status, played.text, played.floor.ran) == ("limit", "It is ", [])
    assert words in played.end.message
    assert played.floor.refusals == [("ls", played.end.message)]
    assert allowed in (None, models.allowed[0])


async def test_an_answer_that_its_provider_filtered_is_said():
    played = await play(models=Cut(refused=True))
    assert (played.end.status, played.text, played.floor.ran) == ("failed", "It is ", [])
    assert "filtered" in played.end.message


# Approval


async def test_what_is_approved_runs_byte_for_byte():
    odd = "printf '%s\\n'  \"a  b\" \t| tee 'ü\u2028🎉'"
    floor = Floor("ask", words=[("allow", None)])
    await play([f"<run> {odd}\n</run>"], ["ok"], floor=floor)
    assert floor.asked == floor.ran == [odd]


async def test_a_denial_and_its_note_go_to_the_model():
    floor = Floor("ask", words=[("deny", "use trash instead")])
    played = await play(["<run>rm x</run>"], ["I will."], floor=floor)
    assert floor.ran == []
    assert "denied by Alice" in played.script.told()
    assert "use trash instead" in played.script.told()
    assert played.turn.calls[0].status == "denied"


async def test_no_answer_in_time_is_a_denial():
    played = await play(["<run>x</run>"], ["ok"], floor=Floor("ask"))
    assert played.floor.ran == []
    assert "No answer in time." in played.script.told()


async def test_always_is_for_the_whole_turn_but_not_for_the_patterns():
    floor = Floor("ask", words=[("always", None), ("deny", None)])
    wanted = ["<run>a</run><run>b</run><run>git push</run>"]
    await play(wanted, ["ok"], floor=floor, patterns=[r"git\s+push"])
    assert floor.ran == ["a", "b"]
    assert floor.asked == ["a", "git push"]


async def test_patterns_ask_on_auto():
    floor = Floor("auto", words=[("deny", None)])
    await play(
        ["<run>GIT \n push</run><run>ls</run>"], ["ok"], floor=floor, patterns=[r"git\s+push"]
    )
    assert (floor.asked, floor.ran) == (["GIT \n push"], ["ls"])


async def test_off_runs_nothing_and_asks_nobody():
    played = await play(["<run>a</run>"], ["ok"], floor=Floor("off"))
    assert (played.floor.ran, played.floor.asked) == ([], [])
    assert played.floor.refusals == [("a", "Commands of the agent are off in this room.")]
    assert "off in this room" in played.script.told()
    assert played.turn.usage.commands == 0


async def test_off_holds_also_for_a_command_that_is_just_being_allowed():
    class Switched(Floor):
        async def ask_people(self, turn, call):
            await super().ask_people(turn, call)
            self.mode = "off"

    floor = Switched("ask", words=[("always", None)])
    played = await play(["<run>a</run><run>b</run>"], ["ok"], floor=floor)
    assert (floor.asked, floor.ran) == (["a"], [])
    assert [command for command, _ in floor.refusals] == ["a", "b"]
    assert "off in this room" in played.script.told()


async def test_the_time_of_people_does_not_count():
    floor = Floor("ask")
    limits = replace(LIMITS, seconds=0.2, approval_s=0.4)
    played = await play(["<run>a</run>"], ["I see."], floor=floor, limits=limits)
    assert played.end.status == "done"


# Failures


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (x.ModelRateLimitError("m", "sk-secret"), "fewer requests"),
        (x.ModelOverloadedError("m", "sk-secret"), "overloaded"),
        (x.ModelServerError("m", "sk-secret"), "server had an error"),
        (x.ModelConnectionError("m", "sk-secret"), "cannot be reached"),
        (x.ModelTimeoutError("m", "sk-secret"), "did not answer in time"),
        (x.ModelUnavailableError("m", "sk-secret"), "not available"),
        (ConnectionResetError("sk-secret"), "broke off"),
    ],
)
async def test_what_may_pass_is_tried_again_and_seen(error, words):
    played = await play([error], [error], ["Here I am."])
    assert (played.end.status, played.text) == ("done", "Here I am.")
    assert [attempt for attempt, _, _ in played.floor.retries] == [1, 2]
    assert all(words in message for _, message, _ in played.floor.retries)
    assert "sk-secret" not in str(played.floor.retries)


async def test_it_gives_up_after_some_tries():
    played = await play(*[[x.ModelRateLimitError("m", "no")]] * 4)
    assert played.end.status == "failed"
    assert [wait_s for _, _, wait_s in played.floor.retries] == [0.001, 0.002, 0.004]


async def test_it_waits_as_long_as_the_provider_asks():
    played = await play([x.ModelRateLimitError("m", "no", retry_after=0.01)], ["x"])
    assert played.floor.retries[0][2] == 0.01
    played = await play([x.ModelRateLimitError("m", "no", retry_after=3600)])
    assert (played.end.status, played.floor.retries) == ("failed", [])


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (x.ModelAuthenticationError("m", "sk-secret"), "refused the key"),
        (x.ModelNotFoundError("m", "sk-secret"), "does not know this model"),
        (x.ModelQuotaExceededError("m", "sk-secret"), "quota"),
        (x.ModelContextWindowExceededError("m", "sk-secret"), "too long"),
        (x.ModelHTTPError(418, "m", "sk-secret"), "HTTP 418"),
        (x.UnexpectedModelBehavior("sk-secret"), "not understood"),
        (RuntimeError("sk-secret"), "broke off"),
    ],
)
async def test_what_will_not_pass_ends_the_turn_in_words(error, words):
    played = await play([error])
    assert played.end.status == "failed"
    assert words in played.end.message
    assert "sk-secret" not in played.end.message
    assert played.floor.retries == []


async def test_a_stream_that_breaks_off_keeps_its_words_and_is_not_said_again():
    played = await play(["It is ", ConnectionResetError()], ["never asked"])
    assert (played.end.status, played.text) == ("failed", "It is ")
    assert "broke off" in played.end.message
    assert "kept" in played.end.message


async def test_what_an_answer_cost_that_was_not_finished_is_guessed():
    played = await play(["It is " * 50, ConnectionResetError()])
    assert played.turn.usage.input_tokens > 0
    assert played.turn.usage.output_tokens in range(90, 110)
    played = await play(["It is " * 50, asyncio.Event()], limits=replace(LIMITS, seconds=0.5))
    assert played.turn.usage.output_tokens in range(90, 110)
    played = await play([x.ModelRateLimitError("m", "no")], ["x"])
    assert played.turn.usage.output_tokens < 10  # what was never begun costs nothing


async def test_a_command_of_an_answer_that_broke_off_does_not_run():
    played = await play(["<run>ls</run>", ConnectionResetError()], *[[ConnectionResetError()]] * 3)
    assert (played.end.status, played.floor.ran) == ("failed", [])


@pytest.mark.parametrize(
    "wanted",
    [
        call(args="{not json"),
        call(args='{"cmd": "ls"}'),
        call(args='{"command": 7}'),
        call(args='{"command": "  "}'),
        call(args='["ls"]'),
        call("ls", tool="shell"),
        call("x" * 33_000),
        call("rm a\0b"),
        call(args='{"command": "rm \\ud83d"}'),
    ],
)
async def test_a_malformed_call_is_told_and_the_model_may_do_better(wanted):
    played = await play([wanted], [call("ls")], ["ok"], way="native")
    assert (played.end.status, played.floor.ran) == ("done", ["ls"])
    assert "not run: " in played.script.told(1)


async def test_a_tagged_command_with_a_nul_is_refused_and_its_words_are_shown_without():
    played = await play(["a\0b <run>rm a\0b</run>", "\0<run>ls</run>"], ["ok"])
    assert (played.text, played.floor.ran) == ("ab \n\nok", ["ls"])
    assert played.floor.places == [3]
    assert "NUL" in played.script.told()


async def test_malformed_calls_without_end_end_the_turn():
    played = await play(*[[call(args="{")]] * 5, way="native")
    assert played.end.status == "failed"
    assert "cannot be run" in played.end.message


@pytest.mark.parametrize("empty", ["", " \n", "\n"])
async def test_an_empty_answer_is_asked_again_once(empty):
    assert (await play([empty], ["Hello."])).text.strip() == "Hello."
    played = await play([empty], [empty])
    assert played.end.status == "failed"
    assert "empty answer" in played.end.message


async def test_nothing_more_to_say_after_a_command_is_done():
    played = await play(["Look: <run>ls</run>"], [""], [""])
    assert (played.end.status, played.text) == ("done", "Look: ")


async def test_a_model_that_repeats_itself_is_stopped():
    again = ("and so on, " for _ in range(10**6))
    played = await play(again, limits=replace(LIMITS, tokens=10**6))
    assert played.end.status == "failed"
    assert "repeats itself" in played.end.message
    assert len(played.text) < 2_000


async def test_a_model_that_runs_the_same_again_and_again_is_stopped():
    floor = Floor(results=[(OK, "same")] * 9)
    played = await play(*[["<run>ls</run>"]] * 9, floor=floor)
    assert played.end.status == "failed"
    assert "in circles" in played.end.message
    assert len(floor.ran) == 3


async def test_the_same_command_with_other_results_goes_on():
    floor = Floor(results=[(OK, str(n)) for n in range(5)])
    played = await play(*[["<run>date</run>"]] * 5, ["ok"], floor=floor)
    assert played.end.status == "done"
