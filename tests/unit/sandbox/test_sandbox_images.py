"""What images are made of, and the command that makes them where no registry is reached."""

from sandbox import images


def test_workspace_has_all_of_debian():
    assert set(images.packages("debian")) < set(images.packages("workspace"))
    assert {"nodejs", "python3", "git", "ripgrep", "jq"} <= set(images.packages("workspace"))


def test_the_bootstrap_names_suite_target_and_sources():
    command = images.bootstrap_command("debian", ["/etc/apt/sources.list"], "bookworm")
    assert command[0] == "mmdebstrap"
    assert command[-3:] == ["bookworm", "-", "/etc/apt/sources.list"]
    assert "--include=ca-certificates,nodejs,python3" in command


def test_no_file_names_a_registry_host():
    for path in images.FOLDER.iterdir():
        assert "://" not in path.read_text()


def test_the_content_hash_follows_the_content(tmp_path, monkeypatch):
    before = images.content_hash()
    for path in images.FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(images, "FOLDER", tmp_path)
    assert images.content_hash() == before
    (tmp_path / "debian.packages").write_text("python3\n")
    assert images.content_hash() != before
