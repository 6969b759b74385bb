"""Child processes with free ports, and `kproxy run` as such a process.

A child writes its output to a file and ends with its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, BinaryIO, Self

from prometheus_client.parser import text_string_to_metric_families

from kproxy.base.errors import InternalError
from kproxy.base.system import HAS_PRCTL, die_with_parent


def begin(
    command: Sequence[str], output: BinaryIO, env: Mapping[str, str], cwd: Path | None
) -> subprocess.Popen[bytes]:
    """Start a command that writes to `output`, and return its process."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
        preexec_fn=die_with_parent if HAS_PRCTL and _in_main_thread() else None,  # noqa: PLW1509 -- one system call, no locks
    )


class Child:
    """A running child process. `log` holds its standard output and error, that of earlier starts included.

    Killed when this process exits, even by SIGKILL when it was started from the main thread (the kernel's parent
    death signal follows the thread that started it).
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.command, self.log = list(command), log
        with log.open("ab") as output:
            self._process = begin(self.command, output, {**os.environ, **(env or {})}, cwd)
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code; below zero for a signal; None while the process runs."""
        return self._process.poll()

    def tail(self, lines: int = 40) -> str:
        """Return the last lines that the process wrote; an empty string once the file was removed."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_until(self, ready: Callable[[], bool], timeout: float, what: str) -> None:
        """Return once `ready()` holds. Raises InternalError with the last lines of the log if the process ends before,
        or after `timeout` seconds."""
        limit = time.monotonic() + timeout
        while not ready():
            if self.returncode is not None:
                raise InternalError(f"{what} ended with exit code {self.returncode}:\n{self.tail()}")
            if time.monotonic() > limit:
                raise InternalError(f"{what} was not ready within {timeout:g} s:\n{self.tail()}")
            time.sleep(0.02)

    def stop(self, timeout: float = 20) -> int:
        """Send SIGTERM, then SIGKILL after `timeout` seconds. Return the exit code."""
        if self.returncode is None:
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process and return its exit code; kill it when it has not ended after `timeout`
        seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        atexit.unregister(self.kill)
        return self._process.wait()

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def process_tree(pid: int) -> list[int]:
    """Return the id of a process and of those that it has started, and these in turn."""
    found, seen = [pid], {pid}
    for one in found:
        for child in children_of(one):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def children_of(pid: int) -> list[int]:
    """Return the ids of the processes that this one has started and that live, by any of its threads, in ascending
    order; none if it is gone."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # of the process
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):  # of the thread
                found.update(map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split()))
    return sorted(found)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


#: Linux gives outgoing connections a local port from 32768 upwards. Ports are taken from below that, so that a server
#: which is stopped for a while does not find its port in use as the near end of somebody's connection.
_FIRST, _LAST = 12000, 32000
_STEP = 32  # ports from one that is given out to the next: a proxy's nodes get ports after its own


def _part() -> tuple[int, int]:
    """Return the first of the ports of this process, and how many there are. Workers of pytest-xdist have a part
    each."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    number, count = (int(worker[2:]), int(workers)) if worker[2:].isdigit() and workers.isdigit() else (0, 1)
    size = (_LAST - _FIRST) // count
    return _FIRST + number * size, (size // _STEP - 1) * _STEP


_START, _SIZE = _part()
_BEGIN, _SHIFT = random.randrange(0, _SIZE, _STEP), random.randrange(_STEP)
"""First port and first shift within a step; random, for processes that share a part without knowing of each other."""
_numbers = itertools.count()


def _next_port() -> int:
    """Return a port that this process was not given for as long as possible.

    A port is free until it is bound, which may happen much later, and again after a restart.
    """
    rounds, place = divmod(next(_numbers) * _STEP, _SIZE)
    return _START + (_BEGIN + place) % _SIZE + (_SHIFT + rounds) % _STEP


def free_port(host: str = "127.0.0.1") -> int:
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports which could all be bound at once a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            trial = socket.socket(family)
            try:
                trial.bind((host, _next_port()))
                held.append(trial)
            except OSError:
                trial.close()
        return [taken.getsockname()[1] for taken in held]
    finally:
        for taken in held:
            taken.close()


def free_port_with_room(room: int) -> int:
    """Return a port that could be bound a moment ago, as could the `room` ports after it: for a proxy and its nodes."""
    while True:
        first = _next_port()
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + room + 1):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


HOST = "127.0.0.1"
ROOM = 16  # ports after the proxy's own that its nodes usually get
WORKERS = "KPROXY_TEST_WORKERS"
"""Environment variable with the number of worker processes of each proxy whose test does not set it."""
_PROXY_START_TIMEOUT = 120.0  # seconds; half of one is usual, a machine with forty times the load it can take was seen


QUIET = 0.05
"""Seconds without a new line after which all pending log lines are assumed to be written."""


class Proxy:
    """A process of `kproxy run` in front of `upstream`; a context manager that returns once it is ready.

    `rules` is a list of rules as in a rule file's `rules:`. `config` is a whole config document instead of `upstream`;
    its first listener is the one to bootstrap from, and an admin address is added. `arguments` are appended to the
    command line unchanged. `brokers_answer` false: it is enough that it listens, its brokers may be out of reach.
    """

    def __init__(
        self,
        upstream: str = "",
        *,
        rules: Sequence[Mapping[str, Any]] = (),
        config: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        brokers_answer: bool = True,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kproxy-run-"))
        self._ready = self.is_ready if brokers_answer else self.is_listening
        port, admin = free_port_with_room(ROOM), free_ports(1)[0]
        self.bootstrap, self.admin = f"{HOST}:{port}", f"{HOST}:{admin}"
        if config is not None:
            self.bootstrap = config["listeners"][0]["bind"]
            options = ["--config", self._write("config.yaml", {"admin": {"bind": self.admin}, **config})]
        else:
            options = ["--upstream", upstream, "--listen", self.bootstrap, "--admin", self.admin]
        if rules:
            options += ["--rules", self._write("rules.yaml", {"rules": list(rules)})]
        if (number := os.environ.get(WORKERS)) and "workers" not in (config or {}) and "--workers" not in arguments:
            options += ["--workers", number]
        self._command = [sys.executable, "-m", "kproxy", "run", *options, *arguments]
        self.child: Child | None = None
        self._last_words = ""

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    @property
    def port(self) -> int:
        """Return the port of the first listener."""
        return int(self.bootstrap.rsplit(":", 1)[1])

    def launch(self) -> int:
        """Start the proxy without waiting. Return its process id."""
        self.child = Child(self._command, self._folder / "log", cwd=self._folder)
        return self.child.pid

    def start(self) -> None:
        """Start the proxy, unless it was launched already, and wait until it is ready."""
        if self.child is None:
            self.launch()
        assert self.child is not None
        self.child.wait_until(self._ready, _PROXY_START_TIMEOUT, "kproxy")

    def is_ready(self) -> bool:
        """Return True if /readyz answers with status 200."""
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def is_listening(self) -> bool:
        """Return True if the log has the line that follows the opening of all ports."""
        return bool(self.logged("serving"))

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the log lines of that event with these fields, as dicts, oldest first. Lines are written
        asynchronously, so if none is found, pending lines are awaited."""
        found = self.logged(event, **fields)
        if not found and self.child is not None:
            wait_until_quiet(self.child.log)
            found = self.logged(event, **fields)
        return found

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the log lines of that event with these fields that have been written by now, without waiting."""
        found = []
        for line in self.child.log.read_text(errors="replace").splitlines() if self.child is not None else ():
            entry = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
            if entry.get("event") == event and fields.items() <= entry.items():
                found.append(entry)
        return found

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of an admin page. Raises OSError when the proxy does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                try:
                    return error.code, error.read().decode()
                except HTTPException as cut:
                    raise ConnectionError(f"{path}: {cut}") from None
        except HTTPException as cut:  # it ended while it answered
            raise ConnectionError(f"{path}: {cut}") from None

    def post(self, path: str, body: Any) -> Any:
        """Send a JSON document to the admin API. Return its answer, decoded. Raises HTTPError for a refusal."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.admin}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the samples of that name in the proxy's metrics: labels and value."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return [
            (sample.labels, sample.value) for family in families for sample in family.samples if sample.name == name
        ]

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of that name whose labels include these; 0 without any sample."""
        return sum(value for found, value in self.samples(name) if labels.items() <= found.items())

    def logs(self, lines: int = 40) -> str:
        return self._last_words or (self.child.tail(lines) if self.child is not None else "")

    def stop(self, timeout: float = 20) -> int | None:
        """Send SIGTERM, wait for the end, and remove the proxy's folder. Return the exit code."""
        code = self.child.stop(timeout) if self.child is not None else None
        self._last_words = self.logs()
        shutil.rmtree(self._folder, ignore_errors=True)
        return code

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write(self, name: str, document: Mapping[str, Any]) -> str:
        path = self._folder / name
        path.write_text(json.dumps(document, indent=1))  # JSON is YAML
        return str(path)


def wait_until_quiet(log: Path) -> None:
    """Wait until a log has not grown for QUIET seconds, for a second at most."""
    until = monotonic() + 1.0
    before = -1
    while (size := log.stat().st_size) != before and monotonic() < until:
        before = size
        sleep(QUIET)
