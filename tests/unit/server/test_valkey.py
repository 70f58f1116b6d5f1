"""Which runs of the embedded Valkey lost nothing, and what of its data is on the disk."""

import os

import pytest

from server.valkey import DurableRuns, Syncer, boot_id


def test_a_run_of_this_boot_is_durable_however_it_ended(tmp_path) -> None:
    runs = DurableRuns(tmp_path / "runs.json", "boot-1")
    assert runs.ids() == ()
    runs.started("a")
    assert runs.ids() == ("a",)
    assert DurableRuns(tmp_path / "runs.json", "boot-1").ids() == ("a",)


def test_after_a_crash_of_the_machine_only_what_stopped_in_order_is(tmp_path) -> None:
    runs = DurableRuns(tmp_path / "runs.json", "boot-1")
    runs.started("a")
    runs.stopped_in_order()
    runs.started("b")
    assert DurableRuns(tmp_path / "runs.json", "boot-2").ids() == ("a",)


def test_an_unknown_boot_proves_nothing(tmp_path) -> None:
    runs = DurableRuns(tmp_path / "runs.json", "")
    runs.started("a")
    assert runs.ids() == ()
    runs.stopped_in_order()
    assert runs.ids() == ("a",)


def test_a_run_that_starts_again_is_not_known_to_have_stopped(tmp_path) -> None:
    runs = DurableRuns(tmp_path / "runs.json", "boot-1")
    runs.started("a")
    runs.stopped_in_order()
    runs.started("a")
    assert DurableRuns(tmp_path / "runs.json", "boot-2").ids() == ()


def test_it_remembers_a_bounded_number_and_the_newest(tmp_path) -> None:
    runs = DurableRuns(tmp_path / "runs.json", "boot-1")
    for number in range(200):
        runs.started(f"run-{number}")
    assert len(runs.ids()) < 100
    assert runs.ids()[-1] == "run-199"


@pytest.mark.parametrize("text", ["", "{", "\0", "[]"])
def test_a_file_that_is_lost_or_torn_is_begun_again(tmp_path, text) -> None:
    (tmp_path / "runs.json").write_text(text)
    runs = DurableRuns(tmp_path / "runs.json", "boot-1")
    runs.stopped_in_order()
    assert runs.ids() == ()
    runs.started("a")
    assert DurableRuns(tmp_path / "runs.json", "boot-1").ids() == ("a",)


def test_this_machine_says_which_boot_it_is() -> None:
    assert boot_id() == boot_id() != ""


def test_what_grew_is_synced_and_nothing_else(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "appendonlydir"
    assert Syncer(tmp_path).step() == []  # before Valkey has made it
    folder.mkdir()
    base, more = folder / "a.base", folder / "a.incr"
    base.write_bytes(b"1")
    more.write_bytes(b"")
    synced = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(os.fstat(fd).st_ino), sync(fd)))
    syncer = Syncer(tmp_path)
    assert set(syncer.step()) == {base, more}
    assert syncer.step() == []
    more.write_bytes(b"22")
    assert syncer.step() == [more]
    assert len(synced) == 3
    base.unlink()  # it was rewritten
    assert syncer.step() == []


def test_what_could_not_be_synced_is_tried_again(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "a.incr").write_bytes(b"1")
    syncer = Syncer(tmp_path)

    def broken(_):
        raise OSError("disk")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="disk"):
            syncer.step()
    assert len(syncer.step()) == 1
