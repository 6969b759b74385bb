"""Watch over the connections to some ports of this machine, by the kernel's socket table.

Strategy: a thread looks many times a second. A connection counts as a stranger's when its near end belongs to none of
the processes that may have one, and it was there before and after their sockets were listed, so that one which such a
process closes in between is not taken for another's.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from kproxy.testing.process import children_of
from tests.support.processes import connections_to, sockets_of

_INTERVAL = 0.02  # seconds; clients keep a broker connection for minutes, so even a busy machine sees each


class ConnectionWatch:
    """Watch for connections to `ports` that belong to no process in `allowed` and to none that such a process has
    started; a context manager.

    `strangers` are the ports somebody else connected to; `seen` counts looks that found an allowed connection, which
    tells a quiet place from a watch that looks at the wrong one.
    """

    def __init__(self, ports: Iterable[int], allowed: Iterable[int]) -> None:
        self.ports, self.allowed = frozenset(ports), set(allowed)
        self.strangers: set[int] = set()
        self.seen = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def look(self) -> None:
        """Look at the socket table once, and take down the strangers."""
        before = connections_to(set(self.ports))
        if not before:
            return
        processes = [one for pid in self.allowed for one in (pid, *children_of(pid))]
        owned = set().union(*map(sockets_of, processes))
        after = connections_to(set(self.ports))
        self.seen += bool(owned & before.keys())
        self.strangers |= {port for inode, port in after.items() if inode in before and inode not in owned}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL):
            try:
                self.look()
            except OSError as error:
                if error.errno != errno.EMFILE:  # another test of this process has used up its descriptors for a moment
                    raise
