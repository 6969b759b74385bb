"""The mark of a process that writes."""

from __future__ import annotations

import os
from pathlib import Path

from kproxy.sinks.audit.names import Identity
from kproxy.sinks.audit.session import Session, lock_of_dead

BOOT = "5b0c1e2f-1111-4222-8333-444455556666"


def test_the_mark_of_a_living_process_is_locked(tmp_path: Path) -> None:
    """It says whose it is; when its process is gone it can be locked, by one only, and not once it was deleted."""
    session = Session(tmp_path / "new" / "audit", Identity("host", BOOT))
    living = lock_of_dead(session.path)
    text = session.path.read_text()
    session.close()
    first = lock_of_dead(session.path)
    second = lock_of_dead(session.path)
    assert first is not None
    session.path.unlink()
    os.close(first)

    assert (living, text, second) == (None, f"host/{BOOT}/0\n", None)
    assert lock_of_dead(session.path) is None


def test_an_orderly_end_leaves_nothing(tmp_path: Path) -> None:
    """No mark, nor what it was before it had its name."""
    session = Session(tmp_path, Identity("host", BOOT))
    session.end()

    assert list(tmp_path.iterdir()) == []
