"""Mark of a process that writes: a small file, locked as long as it lives and deleted when it ends in order.

So an unclean end is found even when no event file was open at that moment, and a file of a living process is told from
one of a dead process without guessing from process ids. The lock goes with the process, however it ends. The mark gets
its name when it is locked and written, so a mark that is not locked is always that of a dead process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .file_names import NEW_SESSION, SESSION, WriterIdentity, hidden
from .open_file import MODE, lock, sync_folder

ATTEMPTS = 100
"""Times that a mark is made anew. Another process that starts at the same moment may look at it before it is locked,
take it for a dead one's and delete it; several workers start at the same moment."""


class ProcessMark:
    """Mark file of this process. Made on construction. Raises OSError."""

    def __init__(self, folder: Path, identity: WriterIdentity) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = hidden(folder, identity.stem, SESSION)
        for left in reversed(range(ATTEMPTS)):
            try:
                self._make(folder, identity)
                return
            except (BlockingIOError, FileNotFoundError):
                if not left:
                    raise

    def _make(self, folder: Path, identity: WriterIdentity) -> None:
        unborn = hidden(folder, identity.stem, NEW_SESSION)
        self._fd = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        try:
            lock(self._fd)
            os.write(self._fd, identity.source.encode() + b"\n")
            os.fsync(self._fd)
            unborn.rename(self.path)
            sync_folder(folder)
        except OSError:
            self.close()
            raise

    def end(self) -> None:
        """Delete the mark, once nothing was left behind. Raises OSError."""
        self.path.unlink(missing_ok=True)
        self.close()
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Release the lock; the mark stays, and the next start finds it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_if_ended(path: Path) -> int | None:
    """Return the descriptor of a file of a process that has ended, locked; None if it lives, or the file is gone."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError):
        lock(fd)
        if os.fstat(fd).st_nlink:  # else another one has recovered and deleted it in the meantime
            return fd
    os.close(fd)
    return None
