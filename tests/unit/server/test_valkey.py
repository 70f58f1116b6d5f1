"""Which runs of the embedded Valkey lost nothing."""

import pytest

from server.valkey import DurableRuns, boot_id


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
