"""Settings: their defaults, what the environment may say, and what it may not."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from server.settings import KIB, MIB, Settings


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch, tmp_path):
    """Neither the machine's environment nor a developer's .env takes part."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DUET_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert settings.allowed_hosts == ()
    assert settings.redis_url is None
    assert settings.room_instance_type == "standard-2"
    assert settings.room_image == "workspace"
    assert settings.exec_timeout_ms == 10 * 60 * 1000
    assert settings.exec_output_limit_bytes == 256 * MIB
    assert (settings.exec_head_bytes, settings.exec_tail_bytes) == (256 * KIB, 768 * KIB)
    assert settings.exec_kept_s == 24 * 60 * 60
    assert settings.exec_live_burst_bytes == 4 * MIB
    assert settings.exec_live_bytes_per_s == MIB
    assert settings.outbox_drop_bytes < settings.outbox_close_bytes
    assert settings.drain_s < 10


def test_every_setting_says_what_it_is() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        (" , ,", ()),
        ("duet.example", ("duet.example",)),
        (" Duet.Example , 10.0.0.7,", ("duet.example", "10.0.0.7")),
        ('["duet.example"]', ('["duet.example"]',)),
    ],
)
def test_allowed_hosts_are_separated_by_commas(monkeypatch, text, hosts) -> None:
    monkeypatch.setenv("DUET_ALLOWED_HOSTS", text)
    assert Settings().allowed_hosts == hosts


def test_the_environment_wins_over_the_file_and_arguments_over_both(monkeypatch, tmp_path) -> None:
    (tmp_path / ".env").write_text("DUET_PORT=1\nDUET_HOST=0.0.0.0\nOTHER=x\nDUET_UNKNOWN=x\n")
    assert (Settings().port, Settings().host) == (1, "0.0.0.0")
    monkeypatch.setenv("DUET_PORT", "2")
    assert (Settings().port, Settings().host) == (2, "0.0.0.0")
    assert Settings(port=3).port == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "-1"),
        ("PORT", "65536"),
        ("PORT", "http"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("SANDBOX_NETWORK", "host"),
        ("HISTORY_EVENTS", "0"),
        ("MAX_SANDBOXES", "0"),
        ("EXEC_TIMEOUT_MS", "0"),
        ("EXEC_HEAD_BYTES", "-1"),
        ("EXEC_TAIL_BYTES", "0"),
        ("EXEC_LIVE_BYTES_PER_S", "0"),
        ("FRAMES_PER_SECOND", "0"),
        ("SILENT_S", "0"),
        ("DRAIN_S", "10"),
    ],
)
def test_a_bad_value_is_refused_by_name(monkeypatch, name, value) -> None:
    monkeypatch.setenv(f"DUET_{name}", value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    (error,) = refused.value.errors()
    assert error["loc"] == (name.lower(),)


def test_the_data_folder_does_not_move_with_the_process(monkeypatch, tmp_path) -> None:
    assert Settings().data_dir == tmp_path / "data"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DUET_DATA_DIR", "~/duet")
    settings = Settings()
    assert settings.data_dir == tmp_path / "home" / "duet"
    assert settings.data_dir.is_absolute()
    assert Settings(data_dir=Path("/x")).data_dir == Path("/x")
