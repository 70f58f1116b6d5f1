"""The tag parser: the same at every split, nothing shown that is a tag, nothing run that should not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.agent.tags import EMPTY, NESTED, UNCLOSED, TagParser, Wanted

PIECES = [
    "<run>",
    "</run>",
    "<",
    ">",
    "<r",
    "run>",
    "</",
    "`",
    "```",
    "~~~",
    "\n",
    " ",
    "ls -la",
    "é🎉",
    "echo '<run'",
    "a",
    "/run>",
]
texts = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


def parse(*deltas):
    parser = TagParser()
    shown = "".join([*(parser.feed(delta) for delta in deltas), parser.end()])
    return shown, parser.wanted


@given(texts, st.data())
def test_splits_change_nothing(text, data):
    whole = parse(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parse(*parts) == whole
    assert parse(*text) == whole


@given(texts)
def test_two_parts_at_every_position(text):
    whole = parse(text)
    for cut in range(len(text) + 1):
        assert parse(text[:cut], text[cut:]) == whole


@given(
    st.lists(st.sampled_from(["<run>", "</run>", "ls", " ", "\n", "é"]), max_size=24).map("".join)
)
def test_outside_of_code_no_tag_is_shown(text):
    shown, wanted = parse(text)
    assert "<" not in shown
    if "<run>" not in text:
        assert (shown, wanted) == (text.replace("</run>", ""), [])


@given(texts)
def test_text_is_delayed_only_for_a_possible_tag(text):
    parser = TagParser()
    shown = ""
    for char in text:
        shown += parser.feed(char)
        held = parser._held
        assert len(held) < len("</run>")
        assert "<run>".startswith(held) or "</run>".startswith(held)


@given(
    st.text(alphabet=st.characters(exclude_characters="<`~"), min_size=1),
    st.text(alphabet=st.characters(exclude_characters="<`~")),
    st.text(alphabet=st.characters(exclude_characters="<`~")),
)
def test_a_tag_between_words_runs_byte_for_byte(command, before, after):
    shown, wanted = parse(f"{before}<run>{command}</run>{after}")
    assert shown == before + after
    stripped, at = command.strip(), len(before.replace("\0", ""))
    assert wanted == [Wanted(stripped, None if stripped else EMPTY, at)]


def test_several_in_one_answer_run_in_order():
    shown, wanted = parse("First <run>ls</run>, then\n<run>\ncat a\ncat b\n</run> done.")
    assert shown == "First , then\n done."
    assert wanted == [Wanted("ls", at=6), Wanted("cat a\ncat b", at=13)]


def test_a_nested_tag_runs_neither():
    shown, wanted = parse("x<run>echo <run>rm -rf /</run> y</run>z")
    assert shown == "xz"
    assert [item.problem for item in wanted] == [NESTED]


@pytest.mark.parametrize("tail", ["ls", "ls</run", "ls</", "ls<", "a<run>b</run>", ""])
def test_an_unclosed_tag_never_runs(tail):
    shown, wanted = parse(f"x<run>{tail}")
    assert shown == "x"
    assert [item.problem for item in wanted] == [UNCLOSED]


@pytest.mark.parametrize(
    "text",
    [
        "```\n<run>ls</run>\n```\n",
        "Write:\n```sh\n<run>ls</run>\n```\nso.",
        "~~~~\n<run>ls</run>\n~~~\n<run>x</run>\n~~~~",
        "   ```\n<run>ls</run>",
        "``` <run>ls</run>\n```",
        "1. Write:\n\n     ```sh\n     <run>ls</run>\n     ```\n",
        "- a\n  - b:\n\n\t~~~\n\t<run>ls</run>\n\t~~~",
        "> Write:\n> ```\n> <run>ls</run>\n> ```",
        "- ```\n  <run>ls</run>\n  - ```\n  <run>ls</run>\n  ```",
        "12) > ~~~sh\n<run>ls</run>",
        "Use `<run>ls</run>` for that.",
        "Use ``a ` <run>ls</run>`` for that.",
    ],
)
def test_code_shown_to_a_reader_is_text(text):
    assert parse(text) == (text, [])


@pytest.mark.parametrize(
    "before",
    [
        "```\ncode\n```\n",
        "Use `ls`: ",
        "`ls`",
        "``a`b`` ",
        "~~~\n```\n~~~\n",
        "a stray ` here\n",
        "- ```\n  code\n  ```\n",
        "> ```\n> code\n> ```\n> ",
        "1. First\n2. Then ",
        "x: ```\n",
        "-```\n",
        "``` a`b\n",
        "~~\n",
    ],
)
def test_a_tag_after_code_runs(before):
    assert parse(f"{before}<run>ls</run>") == (before, [Wanted("ls", at=len(before))])


def test_a_stray_end_is_not_shown():
    assert parse("a</run>b") == ("ab", [])


@pytest.mark.parametrize("text", ["a < b", "<runner>", "<RUN>x", "< run>", "<run", "</ru", "<<ru"])
def test_what_only_looks_like_a_tag_is_text(text):
    assert parse(text) == (text, [])


def test_a_long_line_takes_no_longer_per_character():
    text = "`" + "x" * 200_000
    assert parse(text) == (text, [])
