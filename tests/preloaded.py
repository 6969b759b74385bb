"""kproxy's processes are forked from one that has imported kproxy: a start then costs a fifth of the processor's time.

Strategy. Tests start hundreds of kproxies as `python -m kproxy run`, and most of what each computes is imports. So each
pytest process starts one process that imports all of it, once, and forks for each start. What it forks has the
standard streams, folder, environment and words that it would have had, and no other descriptor; its pid, signals and
exit code are its own. Commands that tests start by subprocess, and the workers of a supervisor, begin from nothing as
ever, and so does what is given another environment; with KPROXY_TEST_ALL=1 everything does.

A message to the process that forks has words, folder and environment, and the descriptor of the log with it; it
answers with the pid, and tells later how each process has ended. It dies with the socket, and its children with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

PR_SET_PDEATHSIG = 1  # linux/prctl.h
LARGEST = 1 << 18
OWN = re.compile("KPROXY_|PYTEST_")
"""Names that mean nothing to Python and to C libraries."""
CONFIG = """
clusters: {a: {bootstrap: [b:1]}}
listeners: [{name: a, bind: 127.0.0.1:1, cluster: a}]
admin: {bind: 127.0.0.1:1}
"""
PATIENCE = 120
"""Seconds for the first start, with all imports, on a machine that may have much else to do."""


class Forked:
    """A process that was forked, as far as Child uses a Popen."""

    def __init__(self, forks: Forks, command: list[str], pid: int) -> None:
        self._forks, self.args, self.pid = forks, command, pid

    def poll(self) -> int | None:
        """Its exit code, below zero for a signal; None while it runs."""
        self._forks.hear(0)
        return self._forks.ended.get(self.pid, -signal.SIGKILL if self._forks.closed else None)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises TimeoutExpired."""
        limit = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if limit is not None and time.monotonic() > limit:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._forks.hear(0.02)
        return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """The process that forks, seen from pytest's. Started at first use."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._lock = threading.RLock()
        self._pids: list[int] = []
        self.ended: dict[int, int] = {}
        self.closed = False
        self._env = dict(os.environ)

    def can(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether that is a proxy as tests start it, and no environment that matters before a program begins."""
        changed = {name for name, _ in {*env.items()} ^ {*self._env.items()}}
        return list(command[:4]) == [sys.executable, "-m", "kproxy", "run"] and all(map(OWN.match, changed))

    def start(self, command: Sequence[str], output: BinaryIO, env: Mapping[str, str], cwd: Path | None) -> Forked:
        """Start `python -m kproxy run …`."""
        with self._lock:
            stream = self._connected()
            told = json.dumps([list(command[3:]), str(cwd or Path.cwd()), dict(env)]).encode()
            socket.send_fds(stream, [told], [output.fileno()])
            limit = time.monotonic() + PATIENCE
            while not self._pids:
                assert time.monotonic() < limit, "no process was forked"
                self.hear(1)
            pid = self._pids.pop()
            self.ended.pop(pid, None)
            return Forked(self, list(command), pid)

    def hear(self, seconds: float) -> None:
        """Take what was told, after waiting for it as long as that."""
        with self._lock:
            if self.closed or self._socket is None or not select.select([self._socket], [], [], seconds)[0]:
                return
            what, pid, code = json.loads(self._socket.recv(LARGEST) or '["gone", 0, 0]')
            assert what != "gone", "the process that forks has ended"
            if what == "began":
                self._pids.append(pid)
            else:
                self.ended[pid] = code

    def close(self) -> None:
        """It ends, and what it has started."""
        self.closed = True
        if self._socket is not None:
            self._socket.close()
            self._process.wait(PATIENCE)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for one in (self._socket, theirs):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
            with theirs, open(os.devnull, "r+b") as null:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                    stdin=null, stdout=null, cwd="/", env=self._env,
                )  # fmt: skip
        return self._socket


# ---- the process that forks


def serve(stream: socket.socket) -> list[str] | None:
    """Fork for each message. Returns in each child, with its words; and in the parent at the end, with None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which then ends this
    awake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    parent = os.getpid()
    while True:
        sources: list[Any] = [stream, awake]
        ready = select.select(sources, [], [])[0]
        if awake in ready:
            os.read(awake, 4096)
            reap(stream)
        if stream in ready:
            told, descriptors, _, _ = socket.recv_fds(stream, LARGEST, 1)
            if not told:
                return None
            words, cwd, env = json.loads(told)
            pid = os.fork()
            if pid == 0:
                become(descriptors[0], cwd, env, parent)
                return list(words)
            os.close(descriptors[0])
            stream.send(json.dumps(["began", pid, 0]).encode())


def reap(stream: socket.socket) -> None:
    """Tell of those that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        stream.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def become(output: int, cwd: str, env: dict[str, str], parent: int) -> None:
    """What a process is that was started from nothing."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (1, 2):
        os.dup2(output, number)
    os.closerange(3, 1024)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    random.seed()


def main() -> None:
    """Import, and fork until the socket ends."""
    import kproxy.app.start

    # isort: split
    import gc

    import kproxy.admin.api
    import kproxy.admin.http_server
    import kproxy.app.app
    import kproxy.app.capture_topics
    import kproxy.app.label_metrics
    import kproxy.app.metrics
    import kproxy.app.recording
    import kproxy.app.supervisor
    import kproxy.app.workers.pool_captures
    import kproxy.cli.run
    import kproxy.cli.start
    import kproxy.record.audit.outlets
    import kproxy.record.audit.recover
    import kproxy.record.captures.running_captures
    import kproxy.record.metrics.label_sink
    import kproxy.record.metrics.merged
    import kproxy.record.metrics.traffic
    import kproxy.record.observer.observer
    import kproxy.record.observer.summary_templates
    import kproxy.record.observer.templated_lines
    import kproxy.runtime.tap
    from kproxy.app.config.document import config_from
    from kproxy.base.errors import DocumentError
    from kproxy.rules.document.read import parse_rules
    from kproxy.rules.kinds import KINDS
    from kproxy.rules.values.source import Source

    # Pydantic builds the models of the config and of each kind at their first use.
    config_from(Source("<config>", CONFIG), Path())
    with contextlib.suppress(DocumentError):  # kinds have other required fields
        parse_rules(json.dumps({"rules": [{"name": kind, "kind": kind} for kind in KINDS]}))

    gc.freeze()  # collections in the children write to no page of what is there
    with socket.socket(fileno=int(sys.argv[1])) as stream:
        words: Any = serve(stream)
        if words is not None:
            stream.detach()
    if words is not None:
        sys.argv = ["kproxy", *words]
        kproxy.cli.start.start()


if __name__ == "__main__":
    main()
