"""The file of users, read again when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kproxy.base.errors import InternalError
from kproxy.base.logs import make_log
from kproxy.protocol.sasl.mechanisms import LoginWork
from kproxy.protocol.sasl.scram import ITERATIONS, Users, make_line, read_users
from kproxy.runtime.listeners.listener import UsersFile
from tests.support.line_count import LineCount
from tests.support.stretches import BY_COST, Cost

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


def test_large_users_file_is_read_once_by_a_thread(tmp_path: Path) -> None:
    """Logins receive work for a thread. The first one to do it reads the file for all of them."""
    file, rest = tmp_path / "users", line("x")[1:]
    file.write_text(line("alice"))
    users = UsersFile(str(file), make_log("json", "error"))
    file.write_text("".join(f"user-{number}{rest}\n" for number in range(MANY)))
    with LineCount() as count:
        told = [users() for _ in range(100)]
    assert count.total <= 10_000
    works = [one for one in told if isinstance(one, LoginWork)]
    assert len(works) == 100

    read = works[0].work()
    with LineCount() as count:
        assert all(work.work() is read for work in works)
    assert count.total <= 10_000
    assert users() is read
    assert isinstance(read, Users) and len(read.names) == MANY


@BY_COST
def test_lookup_of_a_user_costs_the_same_among_many(cost: Cost) -> None:
    rest = line("x")[1:]
    users = read_users("".join(f"user-{number}{rest}\n" for number in range(MANY)))

    def look_up() -> None:
        for number in range(1000):
            assert users.any_of(f"user-{number}") is not None
            assert users.any_of(f"nobody-{number}") is None
            assert users.iterations("SCRAM-SHA-512") == ITERATIONS

    cost.check(look_up, lines=50_000, seconds=0.5)
