"""The file of users, read again when it has changed."""

from __future__ import annotations

import os
from pathlib import Path
from time import thread_time

import pytest

from kproxy.errors import InternalError
from kproxy.logs.setup import make_log
from kproxy.net.accept.listener import UsersFile
from kproxy.sasl.server import LoginWork
from kproxy.sasl.users import ITERATIONS, Users, make_line, read_users
from tests.support.pace import within

MANY = 100_000


def line(name: str) -> str:
    return make_line(name, "SCRAM-SHA-256", "secret", b"salt", 4096)


def names(users: UsersFile) -> frozenset[str]:
    """Who the users are now, read where that is to be done."""
    found = users()
    if isinstance(found, LoginWork):
        found.work()
        found = users()
    assert isinstance(found, Users)
    return found.names


def test_a_change_is_seen_and_a_mistake_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At the next look there are other users; a file that cannot be read, or is gone, leaves them, and is told once."""
    file = tmp_path / "users"
    file.write_text(line("alice"))
    users = UsersFile(str(file), make_log("json", "info"))
    before = users()
    assert isinstance(before, Users)
    assert users() is before
    file.write_text(line("alice") + "\n" + line("bob"))
    assert names(users) == {"alice", "bob"}
    file.write_text("alice:secret")
    os.utime(file, (1, 1))
    assert names(users) == names(users) == {"alice", "bob"}
    file.unlink()
    assert names(users) == {"alice", "bob"}
    said = capsys.readouterr().err
    assert said.count("users read again") == 1
    assert said.count("users changed and cannot be used, the old ones stay") == 2
    assert "secret" not in said


def test_without_a_file_there_is_no_beginning(tmp_path: Path) -> None:
    """A proxy whose users cannot be read does not start."""
    with pytest.raises(InternalError, match="cannot be read"):
        UsersFile(str(tmp_path / "none"), make_log("json", "info"))


def test_a_large_file_is_not_read_by_who_asks(tmp_path: Path) -> None:
    """He is told how it is read; it is read once, though many are told, and the first is right whoever comes second."""
    file, rest = tmp_path / "users", line("x")[1:]
    file.write_text(line("alice"))
    users = UsersFile(str(file), make_log("json", "error"))
    file.write_text("".join(f"user-{number}{rest}\n" for number in range(MANY)))
    began = thread_time()
    told = [users() for _ in range(100)]
    assert within(thread_time() - began, 0.05)
    works = [one for one in told if isinstance(one, LoginWork)]
    assert len(works) == 100

    read = works[0].work()
    began = thread_time()
    assert all(work.work() is read for work in works)
    assert within(thread_time() - began, 0.05)
    assert users() is read
    assert isinstance(read, Users) and len(read.names) == MANY


def test_looking_for_a_user_does_not_depend_on_how_many_there_are() -> None:
    rest = line("x")[1:]
    users = read_users("".join(f"user-{number}{rest}\n" for number in range(MANY)))
    began = thread_time()
    for number in range(1000):
        assert users.any_of(f"user-{number}") is not None
        assert users.any_of(f"nobody-{number}") is None
        assert users.iterations("SCRAM-SHA-512") == ITERATIONS
    assert within(thread_time() - began, 0.5)
