"""`kproxy user`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.protocol.sasl.scram import read_users


def user(*words: str, password: str = "") -> tuple[int, str]:
    """Exit code and what it printed."""
    ran = CliRunner().invoke(main, ["user", *words], input=password)
    return ran.exit_code, ran.output


def test_users_are_made_changed_and_removed(tmp_path: Path) -> None:
    """The file has a line for each mechanism, what people wrote in it stays, and its owner alone can read it."""
    file = tmp_path / "users"
    assert user("set", str(file), "alice", password="secret\n") == (0, "alice: SCRAM-SHA-256, SCRAM-SHA-512\n")
    assert file.stat().st_mode & 0o777 == 0o600
    first = file.read_text()
    assert "secret" not in first
    file.write_text("# ours\n" + first)
    file.chmod(0o640)
    words = ("--mechanism", "SCRAM-SHA-512", "--iterations", "4096")
    assert user("set", str(file), "bob", *words, password="other")[0] == 0
    assert user("list", str(file)) == (0, "alice: SCRAM-SHA-256, SCRAM-SHA-512\nbob: SCRAM-SHA-512\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert user("set", str(file), "alice", password="another\n")[0] == 0
    changed = file.read_text()
    assert changed.startswith("# ours\nbob:SCRAM-SHA-512$4096:")
    assert read_users(changed).find("alice", "SCRAM-SHA-256") != read_users(first).find("alice", "SCRAM-SHA-256")
    assert user("remove", str(file), "alice")[0] == 0
    assert user("list", str(file)) == (0, "bob: SCRAM-SHA-512\n")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "password", "code", "said"),
    [
        (("set", "a:b"), "secret", 2, "no name of a user"),
        (("set", "alice"), "", 1, "expected a password of 1 to 4096 characters, got 0"),
        (("set", "alice"), "x" * 5000, 1, "expected a password of 1 to 4096 characters, got 4097"),
        (("remove", "alice"), "", 1, 'unknown user "alice"'),
    ],
)
def test_what_is_refused(tmp_path: Path, words: tuple[str, str], password: str, code: int, said: str) -> None:
    """Nothing is written then."""
    file = tmp_path / "users"
    ended, printed = user(words[0], str(file), words[1], password=password)
    assert ended == code
    assert said in printed
    assert not file.exists()


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """It is not overwritten, and what stands in it is not printed."""
    file = tmp_path / "users"
    file.write_text("alice:secret\n")
    for words in (("set", str(file), "bob"), ("list", str(file)), ("remove", str(file), "alice")):
        code, printed = user(*words, password="x\n")
        assert code == 1
        assert "line 1: expected name:SCRAM-SHA-256" in printed
        assert "secret" not in printed
    assert file.read_text() == "alice:secret\n"
