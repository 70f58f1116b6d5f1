"""The generated files say what the models say, and the schema holds for real frames."""

from protocol import commands, events, schema


def test_generated_files_are_current() -> None:
    assert schema.stale() == [], "run `python -m protocol.schema`"


def test_generation_is_deterministic() -> None:
    assert schema.generated() == schema.generated()


def test_check_writes_nothing_and_tells(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(schema, "_ROOT", tmp_path)
    monkeypatch.setattr(schema, "SCHEMA_PATH", tmp_path / "protocol" / "schema.json")
    monkeypatch.setattr(schema, "TYPESCRIPT_PATH", tmp_path / "web" / "frames.ts")
    assert schema.main(["--check"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert "stale: web/frames.ts" in capsys.readouterr().out
    assert schema.main([]) == 0
    assert schema.main(["--check"]) == 0
    (tmp_path / "web" / "frames.ts").write_text("edited by hand")
    assert schema.main(["--check"]) == 1


def test_every_frame_and_part_is_exported_once() -> None:
    text = schema.typescript(schema.json_schema())
    for model in (*commands.MODELS.values(), *events.MODELS.values()):
        name = schema._named(model.__name__)
        assert text.count(f"export interface {name} {{") == 1
    for union in ("ClientFrame", "ServerFrame", "LogEvent"):
        assert text.count(f"export type {union} =") == 1
    assert "export interface Limits {" in text


def test_optional_is_what_may_be_left_out() -> None:
    defs = schema.json_schema()["$defs"]
    assert defs["History"]["required"] == ["type", "room"]
    assert defs["Say"]["required"] == ["type", "room", "text"]
    assert set(defs["Limits"]["required"]) == set(defs["Limits"]["properties"])
    assert "deleted" not in defs["Message"]["required"]


def test_nothing_is_null_and_names_are_camel_case() -> None:
    for name, body in schema.json_schema()["$defs"].items():
        for field, shape in body.get("properties", {}).items():
            assert "_" not in field, f"{name}.{field}"
            assert '"null"' not in repr(shape).replace("'", '"'), f"{name}.{field}"
