"""Deltas joined into few frames: no word lost, none early, positions right."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.agent.speech import FLUSH_S, Clean, Speech, clean, repeats
from tests.unit.agent.floor import Tasks
from tests.unit.server.virtual import virtual


class Members:
    """Get frames after `takes_s` of storing each; a join at any time sees a consistent text."""

    def __init__(self, takes_s=0.0):
        self.frames = []
        self.takes_s = takes_s

    async def send(self, at, text):
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        self.frames.append((asyncio.get_running_loop().time(), at, text))


def spoken(plan, takes_s=0.0):
    """Say `(pause in s, text)` in virtual time; the frames and the whole text."""
    members = Members(takes_s)

    async def main():
        speech = Speech(members.send, Tasks())
        for pause_s, text in plan:
            if pause_s:
                await asyncio.sleep(pause_s)
            speech.add(text)
        return await speech.end()

    return members.frames, virtual(main())


plans = st.lists(
    st.tuples(st.sampled_from([0, 0.001, 0.02, 0.06, 1]), st.text(max_size=5)), max_size=40
)


@given(plans, st.sampled_from([0.0, 0.01, 0.3]))
def test_frames_concatenate_to_the_text_at_their_positions(plan, takes_s):
    frames, text = spoken(plan, takes_s)
    at = 0
    for _, position, part in frames:
        assert position == at
        assert part
        at += len(part)
    assert "".join(part for _, _, part in frames) == text == clean("".join(t for _, t in plan))


@given(plans)
def test_frames_come_at_most_every_50_ms_but_for_the_end(plan):
    frames, _ = spoken(plan)
    times = [time for time, _, _ in frames[:-1]]
    assert all(b - a >= FLUSH_S * 0.999 for a, b in itertools.pairwise(times))


def test_after_a_pause_a_word_goes_out_at_once():
    frames, _ = spoken([(1, "a"), (0.2, "b"), (0.01, "c")])
    start = frames[0][0]
    assert [(round(time - start, 3), text) for time, _, text in frames][:2] == [
        (0, "a"),
        (0.2, "b"),
    ]


def test_2000_deltas_in_a_second_are_few_frames():
    frames, text = spoken([(0.0005, f"w{n} ") for n in range(2_000)])
    assert len(frames) <= 22
    assert text.split() == [f"w{n}" for n in range(2_000)]


@given(plans, st.floats(0, 3))
def test_who_joins_at_any_time_gets_the_rest_from_where_the_text_so_far_ends(plan, at_s):
    members = Members(takes_s=0.01)

    async def main():
        speech = Speech(members.send, Tasks())
        seen = []

        async def join():
            await asyncio.sleep(at_s)
            seen.append((speech.text, len(members.frames)))

        joining = asyncio.ensure_future(join())
        for pause_s, text in plan:
            if pause_s:
                await asyncio.sleep(pause_s)
            speech.add(text)
        whole = await speech.end()
        await joining
        return whole, *seen[0]

    whole, text, count = virtual(main())
    assert text + "".join(part for _, _, part in members.frames[count:]) == whole


def test_flush_returns_once_the_members_have_all_of_it():
    members = Members(takes_s=1.0)

    async def main():
        speech = Speech(members.send, Tasks())
        speech.add("It ")
        await asyncio.sleep(0.5)
        speech.add("is ")
        await speech.flush()
        had = [text for _, _, text in members.frames]
        speech.add("four.")
        return had, await speech.end()

    assert virtual(main()) == (["It ", "is "], "It is four.")


def test_a_flush_that_is_given_up_loses_no_word():
    members = Members(takes_s=1.0)

    async def main():
        speech = Speech(members.send, Tasks())
        speech.add("It ")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await speech.flush()
        speech.add("is.")
        return await speech.end()

    assert virtual(main()) == "It is."
    assert [text for _, _, text in members.frames] == ["It ", "is."]


@given(st.text(), st.data())
def test_split_surrogates_are_joined(text, data):
    units = text.replace("\0", "").encode("utf-16-le")
    halves = [
        units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)
    ]
    cleaner = Clean()
    assert "".join(map(cleaner.feed, halves)) == clean(text)


def test_what_cannot_be_encoded_is_replaced():
    assert clean("a\ud83d b\0c") == "a\ufffd bc"
    clean("x\ude00").encode()


@pytest.mark.parametrize("unit", ["x", "ab ", "No. ", "\n", "I think that this is it.\n" * 3])
def test_a_text_that_goes_in_circles_is_seen(unit):
    assert repeats("Well: " + unit * 2_000)


def test_other_long_texts_are_not_taken_for_that():
    assert not repeats("".join(f"{n}, " for n in range(2_000)))
    assert not repeats("- " * 100)
    assert not repeats("A table:\n" + "-" * 900 + "\n")
