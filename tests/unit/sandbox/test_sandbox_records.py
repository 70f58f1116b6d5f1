"""Records of sandboxes on disk: what is written is read, what is broken does no harm."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.records import Kept, Records, decode, encode
from sandbox.spec import STATUSES, SandboxSpec

kept_ones = st.builds(
    Kept,
    spec=st.builds(
        SandboxSpec,
        id=st.from_regex(r"[a-z0-9][a-z0-9_-]{0,79}", fullmatch=True),
        sleep_after=st.floats(1, 3600),
        keep_alive=st.booleans(),
        startup_command=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50),
    ),
    status=st.sampled_from(STATUSES),
    idle_since=st.floats(0, 1e10),
    held=st.booleans(),
    saved_at=st.none() | st.floats(0, 1e10),
    size_bytes=st.none() | st.integers(0, 2**50),
    last_error=st.none() | st.text(st.characters(codec="utf-8"), max_size=50),
    doomed=st.booleans(),
)


@given(kept_ones)
def test_what_is_written_is_read(kept):
    assert decode(encode(kept)) == kept


@given(kept_ones)
def test_fields_of_a_later_version_do_no_harm(kept):
    found = json.loads(encode(kept))
    found["colour"] = found["spec"]["colour"] = "blue"
    assert decode(json.dumps(found).encode()) == kept


@given(st.binary(max_size=200) | st.from_type(dict).map(lambda d: json.dumps(str(d)).encode()))
def test_anything_else_is_refused(raw):
    with pytest.raises(ValueError):
        decode(raw)


def one(name, **fields):
    return Kept(SandboxSpec(name), "stopped", 5.0, **fields)


async def test_a_folder_of_them(tmp_path):
    folder = tmp_path / "deep" / "state"
    records = Records(folder)
    assert await records.load() == []
    records.put(one("a"))
    records.put(one("b"))
    records.put(one("a", saved_at=7.0))
    assert records.due
    await records.flush()
    assert not records.due
    assert await Records(folder).load() == [one("a", saved_at=7.0), one("b")]
    records.drop("a")
    records.drop("never")
    await records.flush()
    assert [path.name for path in folder.iterdir()] == ["b.json"]


async def test_what_cannot_be_read_is_told_and_left(tmp_path, caplog):
    records = Records(tmp_path)
    records.put(one("good"))
    await records.flush()
    (tmp_path / "torn.json").write_text('{"v": 1, "spec"')
    (tmp_path / "other.json").write_bytes(encode(one("somebody-else")))
    (tmp_path / "evil.json").write_text('{"spec": {"id": "../evil"}, "status": "x"}')
    assert await Records(tmp_path).load() == [one("good")]
    assert len(caplog.records) == 3
    assert (tmp_path / "torn.json").exists()


async def test_a_disk_that_fails_is_told_and_tried_again(tmp_path, caplog):
    (tmp_path / "state").write_text("in the way")
    records = Records(tmp_path / "state")
    records.put(one("a"))
    await records.flush()
    assert "not written" in caplog.text
    (tmp_path / "state").unlink()
    await records.flush()
    assert (tmp_path / "state" / "a.json").exists()


async def test_nothing_is_kept_without_a_folder():
    records = Records(None)
    records.put(one("a"))
    await records.flush()
    assert await records.load() == []


async def test_what_stands_there_is_not_written_again(tmp_path):
    records = Records(tmp_path)
    records.put(one("a"))
    await records.flush()
    records.put(one("a"))
    assert not records.due
    records.put(one("a", saved_at=7.0))
    records.put(one("a"))
    assert records.due
    await records.flush()
    later = Records(tmp_path)
    (kept,) = await later.load()
    later.put(kept)
    assert not later.due
    later.drop("a")
    later.put(kept)
    await later.flush()
    assert await Records(tmp_path).load() == [kept]
    later.drop("a")
    await later.flush()
    later.put(kept)
    assert later.due


async def test_what_could_not_be_written_is_not_taken_for_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space")

    records = Records(tmp_path)
    records.put(one("a"))
    await records.flush()
    with monkeypatch.context() as patch:
        patch.setattr("sandbox.records._write", full)
        records.put(one("a", saved_at=7.0))
        await records.flush()
    records.put(one("a"))
    await records.flush()
    assert await Records(tmp_path).load() == [one("a")]
