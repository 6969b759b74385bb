"""The file of users, read again when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kproxy.errors import WeDidWrong
from kproxy.logs import make_log
from kproxy.net.users_file import UsersFile
from kproxy.sasl.users import make_line


def line(name: str) -> str:
    return make_line(name, "SCRAM-SHA-256", "secret", b"salt", 4096)


def test_a_change_is_seen_and_a_mistake_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the next look there are other users; a file that cannot be read, or is gone, leaves them, and is told once."""
    file = tmp_path / "users"
    file.write_text(line("alice"))
    users = UsersFile(str(file), make_log("json", "info"))
    before = users()
    assert users() is before
    file.write_text(line("alice") + "\n" + line("bob"))
    assert users().names == {"alice", "bob"}
    file.write_text("alice:secret")
    os.utime(file, (1, 1))
    assert users().names == users().names == {"alice", "bob"}
    file.unlink()
    assert users().names == {"alice", "bob"}
    said = capsys.readouterr().err
    assert said.count("users read again") == 1
    assert said.count("users changed and cannot be used, the old ones stay") == 2
    assert "secret" not in said


def test_without_a_file_there_is_no_beginning(tmp_path: Path) -> None:
    """A proxy whose users cannot be read does not start."""
    with pytest.raises(WeDidWrong, match="cannot be read"):
        UsersFile(str(tmp_path / "none"), make_log("json", "info"))
