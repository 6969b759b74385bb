"""kproxy itself as a process of its own, on free ports, with its metrics at hand."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from kproxy.testing.process import Child

from .process import free_port_with_room, free_ports

HOST = "127.0.0.1"
ROOM = 16  # ports after the proxy's own that its nodes usually get
WORKERS = "KPROXY_TEST_WORKERS"
"""Environment variable with the number of worker processes for each proxy whose test does not say how many it wants."""
_START_TIMEOUT = 120.0  # seconds; half of one is usual, a machine with forty times the load it can take was seen


QUIET = 0.05
"""Seconds without another line, after which the lines about all that has happened are taken to be written."""


class Proxy:
    """A process of `kproxy run` in front of `upstream`; a context manager that returns once it is ready.

    `rules` is a list of rules as in a rule file's `rules:`. `config` is a whole config document instead of `upstream`;
    its first listener is the one to bootstrap from, and an admin address is added. `arguments` go to the command line
    as they are. `brokers_answer` false: it is enough that it listens, its brokers may be out of reach.
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
        """Return the process id of the proxy."""
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
        self.child.wait_until(self._ready, _START_TIMEOUT, "kproxy")

    def is_ready(self) -> bool:
        """Return True if /readyz answers with status 200."""
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def is_listening(self) -> bool:
        """Return True if the log has the line after which all ports are open."""
        return bool(self.logged("serving"))

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the log lines of that event with these fields, as dicts, oldest first. Lines are written beside the
        traffic, so where there is none yet, those that are under way are waited for."""
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
        """Return the sum of all samples of that name whose labels include these; 0 when there is none."""
        return sum(value for found, value in self.samples(name) if labels.items() <= found.items())

    def logs(self, lines: int = 40) -> str:
        """Return the last lines of the log."""
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
