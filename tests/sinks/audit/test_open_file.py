"""A file under its dot name, on disks that fail."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.sinks.audit.open_file import OpenFile, lock

LIMITED = """
import resource
import sys
from pathlib import Path
from kproxy.sinks.audit.open_file import OpenFile
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
