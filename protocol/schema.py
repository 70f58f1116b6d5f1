"""The contract for other languages: JSON Schema and TypeScript, generated from the models.

`python -m protocol.schema` writes both files; `--check` only tells whether they are current.
What a frame means is not here; that is `commands` and `events`.
"""

import json
import sys
from pathlib import Path
from typing import Any, get_args

from pydantic.json_schema import models_json_schema

from protocol import commands, events, names
from protocol.errors import CODES
from protocol.model import Model

_ROOT = Path(__file__).resolve().parent.parent
SCHEMA_PATH = _ROOT / "protocol" / "schema.json"
TYPESCRIPT_PATH = _ROOT / "web" / "src" / "generated" / "frames.ts"

Schema = dict[str, Any]

_UNIONS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "ClientFrame": ("Every frame a client may send.", get_args(commands.AnyCommand)),
    "ReplyFrame": ("What answers a frame, with its `ref`.", get_args(events.AnyReply)),
    "LogEvent": ("What stands in a room's log, with its offset.", get_args(events.LogEvent)),
    "EphemeralEvent": ("What is seen live alone, without offset.", get_args(events.Ephemeral)),
    "ServerFrame": ("Every frame a server may send.", get_args(events.AnyEvent)),
}

_HEADER = """\
// Generated from protocol/ by `python -m protocol.schema`. Change the models, then run it again.
"""

_RENAMED = {"Error": "ErrorFrame"}
"""Models whose name means something else to every TypeScript module."""


def json_schema() -> Schema:
    """One document: a `$defs` entry for each frame and part, and the unions of both directions.

    It describes what should be sent: optional fields are left out rather than null. `data` of
    `format: binary` is bytes in msgpack and does not occur in JSON.
    """
    sent = (*get_args(events.AnyEvent), *get_args(events.AnySandboxEvent))
    models: list[type[Model]] = [*get_args(commands.AnyCommand), *sent]
    _, document = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, ref_template="#/$defs/{model}"
    )
    sent_whole = {model.__name__ for model in _with_parts(sent)}
    defs = {
        name: _definition(body, sent_whole=name in sent_whole)
        for name, body in document["$defs"].items()
    }
    defs |= {name: _union(text, members) for name, (text, members) in _UNIONS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Duet wire contract, version {names.PROTOCOL_VERSION}",
        "anyOf": [{"$ref": "#/$defs/ClientFrame"}, {"$ref": "#/$defs/ServerFrame"}],
        "$defs": dict(sorted(defs.items())),
    }


def _with_parts(models: tuple[type[Model], ...]) -> set[type[Model]]:
    """The models and every model that their fields hold."""
    found: set[type[Model]] = set()
    queue: list[Any] = list(models)
    while queue:
        item = queue.pop()
        if not isinstance(item, type) or not issubclass(item, Model):
            queue.extend(get_args(item))
        elif item not in found:
            found.add(item)
            queue.extend(field.annotation for field in item.model_fields.values())
    return found


def _definition(body: Schema, *, sent_whole: bool) -> Schema:
    """A model's schema as the wire has it: nothing is null, and `type` is always there.

    The server sends every field that has a value (`sent_whole`), so there only those that
    default to nothing are optional; a client may leave out any field with a default.
    """
    properties = body.get("properties", {})
    optional = {
        name
        for name, field in properties.items()
        if "default" in field and (not sent_whole or field["default"] is None) and name != "type"
    }
    required = [name for name in properties if name not in optional]
    body["properties"] = {name: _without_null(field) for name, field in properties.items()}
    body.pop("title", None)
    return {**body, "required": required}


def _without_null(field: Schema) -> Schema:
    kept = {key: value for key, value in field.items() if key != "title"}
    if kept.get("default", ...) is None:
        del kept["default"]
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del kept["anyOf"]
        return {**choices[0], **kept}
    if choices:
        kept["anyOf"] = choices
    return kept


def _union(text: str, members: tuple[type[Model], ...]) -> Schema:
    return {
        "description": text,
        "oneOf": [{"$ref": f"#/$defs/{member.__name__}"} for member in members],
        "discriminator": {"propertyName": "type"},
    }


def typescript(document: Schema) -> str:
    """The same document as TypeScript: one exported type for each `$defs` entry."""
    parts = [_HEADER, _constants()]
    parts += [_exported(name, body) for name, body in document["$defs"].items()]
    return "\n".join(parts)


def _constants() -> str:
    closes = "\n".join(f"  {code.name}: {code.value}," for code in names.CloseCode)
    codes = "\n".join(f"  | {json.dumps(code)}" for code in CODES)
    return (
        f"export const PROTOCOL_VERSION = {names.PROTOCOL_VERSION};\n"
        f"export const SUBPROTOCOL_JSON = {json.dumps(names.SUBPROTOCOL_JSON)};\n"
        f"export const SUBPROTOCOL_MSGPACK = {json.dumps(names.SUBPROTOCOL_MSGPACK)};\n"
        f"export const ROOM_ID_PATTERN = {json.dumps(names.ROOM_ID_PATTERN)};\n\n"
        f"export const CloseCode = {{\n{closes}\n}} as const;\n\n"
        f"/** The codes of `error` that are known today; there may be more. */\n"
        f"export type ErrorCode =\n{codes};\n"
    )


def _exported(name: str, body: Schema) -> str:
    text = _comment(body.get("description"), "")
    if "oneOf" in body:
        members = "\n".join(f"  | {_type(member)}" for member in body["oneOf"])
        return f"{text}export type {_named(name)} =\n{members};\n"
    fields = "".join(
        f"  {_key(key)}{'' if key in body['required'] else '?'}: {_type(field)};\n"
        for key, field in body["properties"].items()
    )
    return f"{text}export interface {_named(name)} {{\n{fields}}}\n"


def _comment(text: str | None, indent: str) -> str:
    if not text:
        return ""
    lines = [line.strip() for line in text.splitlines()]
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    inner = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines)
    return f"{indent}/**\n{inner}{indent} */\n"


def _named(name: str) -> str:
    return _RENAMED.get(name, name)


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}


def _type(schema: Schema) -> str:
    """The TypeScript of one field's schema. Raises KeyError for a shape no model has yet."""
    if "$ref" in schema:
        return _named(schema["$ref"].rsplit("/", 1)[1])
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return " | ".join(json.dumps(value) for value in values)
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return _choice([_type(choice) for choice in choices])
    return _plain(schema)


def _plain(schema: Schema) -> str:
    kind = schema.get("type")
    if kind is None:
        return "unknown"
    if kind == "array":
        return f"Array<{_type(schema['items'])}>"
    if kind == "object":
        values = schema["additionalProperties"]
        return f"Record<string, {'unknown' if values is True else _type(values)}>"
    return "Uint8Array" if schema.get("format") == "binary" else _SCALARS[kind]


def _choice(members: list[str]) -> str:
    """A union, by its own name where it has one."""
    for name, (_, models) in _UNIONS.items():
        if members == [_named(model.__name__) for model in models]:
            return name
    return " | ".join(members)


def generated() -> dict[Path, str]:
    """The text of every generated file by its path."""
    document = json_schema()
    return {
        SCHEMA_PATH: json.dumps(document, indent=2) + "\n",
        TYPESCRIPT_PATH: typescript(document),
    }


def stale() -> list[Path]:
    """The generated files that no longer say what the models say."""
    return [
        path
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    """Write the files; with `--check` only name those that are stale, and answer 1."""
    outdated = stale()
    checking = "--check" in arguments
    for path in outdated:
        if not checking:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated()[path], encoding="utf-8")
        sys.stdout.write(f"{'stale' if checking else 'written'}: {path.relative_to(_ROOT)}\n")
    return 1 if checking and outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
