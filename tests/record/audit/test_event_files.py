"""A file under its dot name, on disks that fail."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.base.system import lock
from kproxy.record.audit import event_files
from kproxy.record.audit.event_files import OpenFile, ProcessMark, WriterIdentity, lock_if_ended

pytestmark = pytest.mark.process
LIMITED = """
import resource
import sys
from pathlib import Path
from kproxy.record.audit.event_files import OpenFile
file = OpenFile(Path(sys.argv[1]), "s", "d")
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
line, whole = b"x" * 99 + b"\\n", 0
try:
    while True:
        file.append(line * 7)
        whole += 7
except OSError as error:
    print(error.errno, whole, file.path.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
file.append(line)
file.sync()
print(whole + 1, file.path.stat().st_size)
"""


def test_a_write_that_the_system_cuts_short(tmp_path: Path) -> None:
    """What it has left of a line is cut off before the next one: a file ends at the limit, and goes on after it."""
    ran = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    refused, then = ran.stdout.splitlines()

    assert refused == f"{errno.EFBIG} 98 10000"
    assert then == "99 9900"
    assert (tmp_path / ".s.ndjson.tmp").read_bytes() == (b"x" * 99 + b"\n") * 99


def test_it_is_locked_and_only_the_group_may_read_it(tmp_path: Path) -> None:
    """Nobody else gets the lock as long as it is open."""
    file = OpenFile(tmp_path, "s", "d")
    other = os.open(file.path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        lock(other)
    mode = file.path.stat().st_mode & 0o777
    file.close()
    lock(other)
    os.close(other)

    assert mode & 0o007 == 0


def test_a_name_is_used_once(tmp_path: Path) -> None:
    """A file that is there already is not written to."""
    file = OpenFile(tmp_path, "s", "d")
    with pytest.raises(FileExistsError):
        OpenFile(tmp_path, "s", "d")
    file.remove()

    assert list(tmp_path.iterdir()) == []


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

    monkeypatch.setattr(event_files, "lock", lock_too_late)
    session = ProcessMark(tmp_path, WriterIdentity("host", BOOT))
    session.end()

    assert len(taken) == 2 and list(tmp_path.iterdir()) == []
