"""Frames from clients are taken as they are or refused in the contract's words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import commands, names
from protocol.codec import JSON, MSGPACK
from protocol.errors import BadFrame, DuetError, Invalid, TooLarge
from tests.unit.protocol.strategies import ANY_TEXT, JSONISH, TEXT, wires

EVERY = sorted(commands.MODELS)
FIELDS = sorted(
    {
        field.alias or name
        for model in commands.MODELS.values()
        for name, field in model.model_fields.items()
    }
)

FEWER = settings(max_examples=25)
"""For properties that are tried for each of many models."""


SMALLEST = {
    "hello": {},
    "join": {"room": "blue"},
    "leave": {"room": "blue"},
    "say": {"room": "blue", "text": "hi"},
    "edit": {"room": "blue", "id": "m1", "text": "hi"},
    "delete": {"room": "blue", "id": "m1"},
    "react": {"room": "blue", "id": "m1", "emoji": "👍", "on": True},
    "typing": {"room": "blue", "on": True},
    "history": {"room": "blue"},
    "exec": {"room": "blue", "command": "ls"},
    "exec.input": {"exec": "e1"},
    "exec.resize": {"exec": "e1", "cols": 80, "rows": 24},
    "exec.signal": {"exec": "e1", "signal": "TERM"},
    "exec.cancel": {"exec": "e1"},
    "exec.read": {"exec": "e1", "at": 0},
    "ask": {"room": "blue", "text": "hi"},
    "agent.stop": {"room": "blue", "turn": "t1"},
    "agent.decide": {"room": "blue", "turn": "t1", "call": "c1", "decision": "allow"},
    "sandbox.start": {"id": "mine"},
    "sandbox.kill": {"id": "mine"},
    "sandbox.destroy": {"id": "mine"},
    "sandbox.list": {},
    "ping": {},
}
"""The least that each command needs, from the contract's table."""


def refusal(frame):
    with pytest.raises(DuetError) as caught:
        commands.parse(frame)
    return caught.value


def sendable(error: DuetError) -> None:
    """An error can be told in both codecs, or the session could not answer at all."""
    frame = {"ref": error.ref, "message": error.message, "details": dict(error.details or {})}
    assert MSGPACK.decode(MSGPACK.encode(frame)) == JSON.decode(JSON.encode(frame).decode())


def test_there_is_a_model_for_each_command_of_the_contract() -> None:
    assert set(SMALLEST) == set(commands.MODELS)


@pytest.mark.parametrize("kind", EVERY)
def test_the_least_is_enough(kind) -> None:
    assert commands.parse({"type": kind, **SMALLEST[kind]}).type == kind


@pytest.mark.parametrize("kind", EVERY)
def test_each_field_of_the_least_is_needed(kind) -> None:
    for missing in SMALLEST[kind]:
        frame = {key: value for key, value in SMALLEST[kind].items() if key != missing}
        error = refusal({"type": kind, "ref": "r", **frame})
        assert (error.code, error.ref) == ("invalid", "r")
        assert missing in error.details or "frame" in error.details


@pytest.mark.parametrize("kind", EVERY)
@FEWER
@given(data=st.data())
def test_unknown_fields_are_ignored(kind, data) -> None:
    frame = data.draw(wires(commands.MODELS[kind]))
    extra = data.draw(st.dictionaries(ANY_TEXT.filter(lambda k: k not in FIELDS), JSONISH))
    assert commands.parse(frame | extra) == commands.parse(frame)


@pytest.mark.parametrize("kind", EVERY)
@FEWER
@given(data=st.data())
def test_nothing_but_duet_errors_and_each_can_be_sent(kind, data) -> None:
    frame = data.draw(st.dictionaries(st.sampled_from(FIELDS) | ANY_TEXT, JSONISH, max_size=8))
    try:
        command = commands.parse({**SMALLEST[kind], **frame, "type": kind})
    except DuetError as error:
        sendable(error)
    else:
        assert command.type == kind


@given(st.dictionaries(ANY_TEXT | st.just("type"), JSONISH))
def test_arbitrary_maps_get_duet_errors(frame) -> None:
    error = refusal(frame)
    assert error.code in {"bad_frame", "invalid"}
    sendable(error)


@pytest.mark.parametrize("type_", [None, 7, ["say"], {"say": 1}, True])
def test_without_a_type_it_is_no_frame(type_) -> None:
    error = refusal({"type": type_, "ref": "r1"})
    assert isinstance(error, BadFrame)
    assert error.ref == "r1"
    assert isinstance(refusal({"ref": "r1"}), BadFrame)


@pytest.mark.parametrize(
    "type_", ["", "shout", "SAY", "say ", "message", "\0", "\ud800", "x" * 9999]
)
def test_an_unknown_type_is_invalid(type_) -> None:
    error = refusal({"type": type_, "ref": "r1"})
    assert (error.code, error.ref, list(error.details)) == ("invalid", "r1", ["type"])
    assert len(error.message) < 1_000
    sendable(error)


WRONG = {
    str: [7, 1.5, True, ["x"], {"x": 1}, b"x"],
    bool: ["true", 1, 0, None, "on"],
    int: ["7", 7.0, True, None, [7]],
}


@pytest.mark.parametrize("kind", EVERY)
def test_nothing_is_coerced(kind) -> None:
    for field, value in SMALLEST[kind].items():
        for wrong in WRONG[type(value)]:
            error = refusal({"type": kind, **SMALLEST[kind], field: wrong})
            assert error.code == "invalid", (field, wrong)
            assert field in {key.split(".")[0] for key in error.details} | {"frame"}


def text_fields():
    """Every place of every command where text can stand, as a function that puts it there."""
    for kind, least in SMALLEST.items():
        for name, field in commands.MODELS[kind].model_fields.items():
            wire = field.alias or name
            if "str" in str(field.annotation) and name != "type" and wire != "data":
                shape = str(field.annotation)
                if "dict" in shape:
                    yield kind, wire, least, lambda text: {text: "v"}
                    yield kind, wire, least, lambda text: {"K": text}
                elif "list" in shape:
                    yield kind, wire, least, lambda text: ["ls", text]
                else:
                    yield kind, wire, least, lambda text: text


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "x\udfffy"], ids=["nul", "high", "low"])
def test_nul_and_lone_surrogates_are_invalid_in_any_text(bad) -> None:
    places = list(text_fields())
    assert len(places) > 40
    for kind, field, least, put in places:
        frame = {"type": kind, **least, field: put(bad)}
        if field == "argv":
            frame.pop("command", None)
        if field == "sandbox":
            frame.pop("room", None)
        error = refusal(frame)
        assert error.code == "invalid", (kind, field)
        assert any(key.split(".")[0] == field for key in error.details), (
            kind,
            field,
            error.details,
        )
        sendable(error)


def test_input_comes_in_one_form() -> None:
    frame = {"type": "exec.input", "exec": "e1"}
    assert refusal({**frame, "data": "a", "base64": "YQ=="}).code == "invalid"
    assert commands.parse({**frame, "eof": True}).eof


@pytest.mark.parametrize(
    "name",
    ["\u200b", "a\u200bb", "\ufeffAda", "A\u00adda", "a\u2028b", "\u200d", "a\x07", "\u202eadA"],
)
def test_two_names_that_look_like_one_are_not_to_be_had(name) -> None:
    error = refusal({"type": "hello", "name": name})
    assert (error.code, list(error.details)) == ("invalid", ["name"])


@pytest.mark.parametrize("name", ["Ada", "کم\u200cنظیر", "👩\u200d🚀", "O'Neill, J.", "李"])
def test_names_of_all_scripts_are_taken(name) -> None:
    assert commands.parse({"type": "hello", "name": name}).name == name


def test_terminal_input_may_hold_nul_but_no_lone_surrogates() -> None:
    frame = {"type": "exec.input", "exec": "e1"}
    assert commands.parse({**frame, "data": "\0"}).data == "\0"
    assert commands.parse({**frame, "data": b"\0\xff"}).data == b"\0\xff"
    assert refusal({**frame, "data": "\ud800"}).code == "invalid"


@pytest.mark.parametrize(
    "room",
    [
        "",
        "a/b",
        "..",
        "a..b",
        "../x",
        "A",
        "Blue",
        "-a",
        "_a",
        "a b",
        "a\n",
        "a\0",
        "ä",
        "x" * 65,
        "x" * 300,
    ],
)
def test_a_room_id_is_what_the_contract_says(room) -> None:
    error = refusal({"type": "join", "room": room})
    assert error.code == "invalid"
    assert list(error.details) == ["room"]


@given(st.from_regex(names.ROOM_ID_PATTERN, fullmatch=True))
def test_every_room_id_of_the_pattern_is_taken(room) -> None:
    assert commands.parse({"type": "join", "room": room.rstrip("\n")}).room == room


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u2003"])
def test_blank_texts_and_commands_are_invalid(text) -> None:
    assert refusal({"type": "say", "room": "blue", "text": text}).code == "invalid"
    assert refusal({"type": "exec", "room": "blue", "command": text}).code == "invalid"
    assert refusal({"type": "ask", "room": "blue", "text": text}).code == "invalid"


@pytest.mark.parametrize("argv", [[], [""], "ls", ["ls", 1], [["ls"]]])
def test_a_wrong_argv_is_invalid(argv) -> None:
    assert refusal({"type": "exec", "room": "blue", "argv": argv}).code == "invalid"


@pytest.mark.parametrize("env", [{"": "v"}, {"A=B": "v"}, {"A": 1}, ["A=1"], "A=1"])
def test_a_wrong_env_is_invalid(env) -> None:
    frame = {"type": "exec", "room": "blue", "command": "ls", "env": env}
    assert refusal(frame).code == "invalid"


@pytest.mark.parametrize("char", ["a", "ä", "€", "𝄞"])
def test_text_is_limited_in_code_points(char) -> None:
    frame = {"type": "say", "room": "blue"}
    assert commands.parse({**frame, "text": char * names.TEXT_CHARS})
    error = refusal({**frame, "text": char * (names.TEXT_CHARS + 1)})
    assert isinstance(error, TooLarge)
    assert error.code == "too_large"
    assert list(error.details) == ["text"]
    assert len(error.message) < 1_000


@pytest.mark.parametrize("char", ["a", "ä", "€", "𝄞"])
def test_commands_are_limited_in_bytes(char) -> None:
    frame = {"type": "exec", "room": "blue"}
    most = names.COMMAND_BYTES // len(char.encode())
    assert commands.parse({**frame, "command": char * most})
    assert refusal({**frame, "command": char * (most + 1)}).code == "too_large"
    assert commands.parse({**frame, "argv": [char * (most // 2)] * 2})
    assert refusal({**frame, "argv": [char * (most // 2)] * 3}).code == "too_large"
    assert (
        refusal({**frame, "command": "ls", "env": {"A": "x" * names.ENV_BYTES}}).code == "too_large"
    )


def test_the_largest_text_and_command_fit_a_frame_in_their_worst_escape() -> None:
    text = "".join(f"\\u{ord(half):04x}" for half in "\ud834\udd1e") * names.TEXT_CHARS
    command = "\\u0001" * names.COMMAND_BYTES
    for body in (text, command):
        frame = f'{{"type":"exec","room":"{"r" * 64}","ref":"{"f" * 64}","text":"{body}"}}'
        assert len(frame) <= names.FRAME_BYTES


@pytest.mark.parametrize(
    ("field", "most"),
    [("ref", names.REF_CHARS), ("key", names.KEY_CHARS), ("replyTo", 128)],
)
def test_short_strings_have_limits(field, most) -> None:
    frame = {"type": "say", "room": "blue", "text": "hi"}
    assert commands.parse({**frame, field: "x" * most})
    error = refusal({**frame, field: "x" * (most + 1)})
    assert error.code == "invalid"
    assert list(error.details) == [field]


@pytest.mark.parametrize(
    "changes",
    [
        {"limit": 0},
        {"limit": names.HISTORY_PAGE_MAX + 1},
        {"before": -1},
        {"after": -1},
        {"before": 1, "after": 1},
        {"before": 2**53},
        {"after": 10**30},
    ],
)
def test_history_is_bounded(changes) -> None:
    assert refusal({"type": "history", "room": "blue", **changes}).code == "invalid"


@pytest.mark.parametrize("timeout", [0, -1, names.TIMEOUT_MAX_MS + 1, 1.5])
def test_timeouts_are_bounded(timeout) -> None:
    frame = {"type": "exec", "room": "blue", "command": "ls", "timeoutMs": timeout}
    assert list(refusal(frame).details) == ["timeoutMs"]


def test_an_exec_names_one_place_and_one_command() -> None:
    frame = {"type": "exec", "room": "blue", "command": "ls"}
    assert refusal({**frame, "sandbox": "mine"}).code == "invalid"
    assert refusal({**frame, "argv": ["ls"]}).code == "invalid"


@pytest.mark.parametrize("snake", ["reply_to", "timeout_ms", "from_"])
def test_snake_case_is_not_on_the_wire(snake) -> None:
    frame = {"type": "say", "room": "blue", "text": "hi", snake: 7}
    assert commands.parse(frame).reply_to is None


@given(TEXT.filter(lambda ref: len(ref) <= names.REF_CHARS))
def test_a_usable_ref_is_echoed(ref) -> None:
    for frame in ({"type": "say"}, {"type": "nonsense"}, {}):
        assert refusal({**frame, "ref": ref}).ref == ref
    assert commands.parse({"type": "ping", "ref": ref}).ref == ref


@pytest.mark.parametrize("ref", [7, None, ["r"], "x" * 65, "\0", "\ud800", True])
def test_an_unusable_ref_is_not_echoed(ref) -> None:
    assert refusal({"type": "say", "ref": ref}).ref is None
    assert commands.usable_ref({"ref": ref}) is None


def test_details_stay_small() -> None:
    """A hostile frame must not be answered by one larger than a server frame may be."""
    env = {f"K{i}" * 100: i for i in range(1_000)}
    error = refusal({"type": "exec", "room": "blue", "command": "ls", "env": env})
    assert isinstance(error, Invalid)
    assert len(repr(error.details)) + len(error.message) < 16_384


REACT = {"type": "react", "room": "blue", "id": "m_1", "on": True}
FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@pytest.mark.parametrize(
    "emoji", ["x", "👍", "👍🏽", "❤\ufe0f", "👩\u200d👩\u200d👧", FLAG, "🇸🇪", "+1", "é", "<b>x"]
)
def test_what_a_reaction_may_be(emoji) -> None:
    assert commands.parse({**REACT, "emoji": emoji}).emoji == emoji


@pytest.mark.parametrize(
    "emoji",
    ["", " ", "\n", "👍\n", "\t", "\u200d", "\u200b", "\u202e", "a\u202eb", "\u2028", "\x1b[m"],
)
def test_what_nobody_sees_or_turns_text_around_is_no_reaction(emoji) -> None:
    with pytest.raises(Invalid) as refused:
        commands.parse({**REACT, "emoji": emoji})
    assert list(refused.value.details) == ["emoji"]
