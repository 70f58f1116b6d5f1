"""Hypothesis strategies for every frame, derived from the models' own annotations."""

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Le
from hypothesis import strategies as st
from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from protocol.model import Model

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
ANY_TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\0\ud800\udfff\u2028a "),
    ),
    max_size=40,
)
"""Text as an enemy writes it: NUL and lone surrogates included."""

JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


def wires(model: type[Model], *, binary: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Valid frames of `model` as they stand on the wire; bytes only where `binary`."""
    hints = get_type_hints(model, include_extras=True)
    required, optional = {}, {}
    for name, field in model.model_fields.items():
        place = required if field.is_required() or name == "type" else optional
        place[field.alias or name] = _values(hints[name], binary=binary)
    made = st.fixed_dictionaries(required, optional=optional)
    if model.__name__ == "Exec":
        made = st.builds(_one_of_each, made, wheres, whats)
    for one, other in _EITHER.get(model.__name__, ()):
        made = made.map(lambda frame, a=one, b=other: _without(frame, b) if a in frame else frame)
    return made


_EITHER = {"History": [("before", "after")], "ExecInput": [("data", "base64")]}
"""Fields that are not given together."""


wheres = st.sampled_from([{"room": "blue"}, {"sandbox": "mine"}])
whats = st.one_of(
    st.fixed_dictionaries({"command": TEXT.filter(str.strip)}),
    st.fixed_dictionaries({"argv": st.lists(TEXT.filter(bool), min_size=1, max_size=4)}),
)


def _one_of_each(frame: dict[str, Any], where: dict[str, Any], what: dict[str, Any]) -> Any:
    return _without(frame, "room", "sandbox", "command", "argv") | where | what


def _without(frame: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in frame.items() if key not in names}


def _values(hint: Any, *, binary: bool) -> st.SearchStrategy[Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(args, binary=binary).filter(_accepted_by(hint))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        kept = [arg for arg in args if arg is not NoneType and (binary or arg is not bytes)]
        return st.one_of(*(_values(arg, binary=binary) for arg in kept))
    if origin is list:
        return st.lists(_values(args[0], binary=binary), max_size=3)
    if origin is dict:
        return st.dictionaries(TEXT.filter(bool), _values(args[1], binary=binary), max_size=3)
    return _SIMPLE[hint] if hint in _SIMPLE else wires(hint, binary=binary)


def _annotated(args: tuple[Any, ...], *, binary: bool) -> st.SearchStrategy[Any]:
    if isinstance(args[0], type) and issubclass(args[0], str | int):
        return _constrained(args[0], args[1:])
    return _values(args[0], binary=binary)


_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**53) + 1, 2**53 - 1),
    bool: st.booleans(),
    bytes: st.binary(max_size=40),
    Any: TEXT,
}


def _constrained(base: type, rules: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    flat = [part for rule in rules for part in (_parts(rule))]
    if base is int:
        low = next((rule.ge for rule in flat if isinstance(rule, Ge)), -(2**53) + 1)
        high = next((rule.le for rule in flat if isinstance(rule, Le)), 2**53 - 1)
        return st.integers(low, high)
    patterns = [rule.pattern for rule in flat if getattr(rule, "pattern", None)]
    if patterns:
        return st.from_regex(patterns[0], fullmatch=True)
    sizes = [rule for rule in flat if isinstance(rule, StringConstraints)]
    return TEXT.filter(bool) if any(rule.min_length for rule in sizes) else TEXT


def _parts(rule: Any) -> list[Any]:
    return list(rule.metadata) if isinstance(rule, FieldInfo) else [rule]


def _accepted_by(hint: Any) -> Any:
    adapter = TypeAdapter(hint)

    def accepted(value: Any) -> bool:
        try:
            adapter.validate_python(value)
        except ValidationError:
            return False
        return True

    return accepted
