"""Process of a worker: started, told of when it ends, killed.

It is a new Python, not a fork: a fork of a program with threads and an event loop has half of each. What it is given by
inheritance is descriptors, named in its command line; all else it is told over its channel. It has a process group of
its own, so that Ctrl-C reaches the supervisor only, and the kernel kills it when the supervisor dies (worker.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

from ..reactor import IN, Reactor

COMMAND = (sys.executable, "-P", "-m", "kproxy.worker")
"""-P: the folder in which kproxy was started is not searched for modules, unless it was for this process, too."""


class Process:
    """Running process. `ended(how)` is called once, from the reactor, with what became of it: "exit code 1",
    "SIGKILL"."""

    def __init__(
        self, index: int, descriptors: Mapping[str, int], reactor: Reactor, ended: Callable[[str], object]
    ) -> None:
        self.reactor, self.on_ended = reactor, ended
        words = {"index": index, "parent": os.getpid(), **descriptors}
        self.popen = subprocess.Popen(
            [*COMMAND, *(f"{name}={number}" for name, number in words.items())],
            stdin=subprocess.DEVNULL,
            pass_fds=tuple(descriptors.values()),
            process_group=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        self.pid = self.popen.pid
        self.descriptor = os.pidfd_open(self.pid)
        reactor.add(self.descriptor, self.ready, IN)

    def kill(self) -> None:
        """Kill it at once; `ended` is called as ever."""
        self.popen.kill()

    def ready(self, mask: int) -> None:
        """Take the exit code of the process, which has ended."""
        code = self.popen.wait()
        self.close()
        self.on_ended(f"exit code {code}" if code >= 0 else signal.Signals(-code).name)

    def close(self) -> None:
        """Stop to wait for its end."""
        if self.descriptor >= 0:
            self.reactor.remove(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1
