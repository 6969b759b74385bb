"""The mark of a process that writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kproxy.sinks.audit import process_mark as session_module
from kproxy.sinks.audit.file_names import WriterIdentity
from kproxy.sinks.audit.open_file import lock
from kproxy.sinks.audit.process_mark import ProcessMark, lock_if_ended

BOOT = "5b0c1e2f-1111-4222-8333-444455556666"


def test_the_mark_of_a_living_process_is_locked(tmp_path: Path) -> None:
    """It says whose it is; when its process is gone it can be locked, by one only, and not once it was deleted."""
    session = ProcessMark(tmp_path / "new" / "audit", WriterIdentity("host", BOOT))
    living = lock_if_ended(session.path)
    text = session.path.read_text()
    session.close()
    first = lock_if_ended(session.path)
    second = lock_if_ended(session.path)
    assert first is not None
    session.path.unlink()
    os.close(first)

    assert (living, text, second) == (None, f"host/{BOOT}/0\n", None)
    assert lock_if_ended(session.path) is None


def test_an_orderly_end_leaves_nothing(tmp_path: Path) -> None:
    """No mark, nor what it was before it had its name."""
    session = ProcessMark(tmp_path, WriterIdentity("host", BOOT))
    session.end()

    assert list(tmp_path.iterdir()) == []


def test_a_mark_that_another_start_takes_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for dead processes may meet it before it is locked, hold it and delete it: several begin at once."""
    taken: list[int] = []

    def lock_too_late(fd: int) -> None:
        if not taken:
            (unborn,) = tmp_path.glob(".*.session.tmp")
            holder = os.open(unborn, os.O_RDWR)
            lock(holder)
            unborn.unlink()
            taken.append(holder)
        elif len(taken) == 1:
            os.close(taken[0])
            taken.append(-1)
        lock(fd)

    monkeypatch.setattr(session_module, "lock", lock_too_late)
    session = ProcessMark(tmp_path, WriterIdentity("host", BOOT))
    session.end()

    assert len(taken) == 2 and list(tmp_path.iterdir()) == []
