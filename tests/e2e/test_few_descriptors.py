"""A process that may open few files, and far more clients than that."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from kproxy.testing.process import free_ports
from tests.selection import WORKERS
from tests.support.fake_broker import FakeBroker, silence
from tests.support.raw_client import RawClient
from tests.support.wait import until

FILES = 64
CLIENTS = 300
HEARTBEAT = 12
FEWER = "fewer files may be open than max_connections needs"


@contextmanager
def proxy(folder: Path, broker: str, workers: int, **limits: Any) -> Iterator[tuple[str, str, Any]]:
    """A kproxy that may open 64 files: (where its clients connect, its admin address, the process)."""
    port, admin = free_ports(2)
    config = {
        "clusters": {"main": {"bootstrap": [broker]}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{port}", "cluster": "main"}],
        "admin": {"bind": f"127.0.0.1:{admin}"},
        "workers": workers,
        "limits": limits,
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "kproxy", "run", "--config", str(folder / "config.yaml")],
            stderr=log,
        )
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (FILES, FILES))  # long before it has begun
        try:
            until(lambda: status(f"127.0.0.1:{admin}", "/readyz") == 200, 60)
            yield f"127.0.0.1:{port}", f"127.0.0.1:{admin}", child
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0
        finally:
            child.kill()
            child.wait()


def status(admin: str, path: str) -> int:
    """Of an admin page; 0: nobody answers."""
    try:
        with urlopen(f"http://{admin}{path}", timeout=60) as answer:
            return int(answer.status)
    except OSError:
        return 0


def lines(folder: Path) -> list[dict[str, Any]]:
    """The log; each line has to be JSON."""
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


@pytest.mark.parametrize("workers", WORKERS)
def test_more_clients_than_descriptors(tmp_path: Path, workers: int) -> None:
    """Some are served, the others are refused with a reason; /livez answers all the time, the log has no plain text and
    few lines, and whoever comes when they have gone is served."""
    with FakeBroker(answers={HEARTBEAT: silence}) as broker, proxy(tmp_path, broker.address, workers) as running:
        bootstrap, admin, _ = running
        host, port = bootstrap.split(":")
        with ExitStack() as stack:
            for number in range(CLIENTS):
                client = stack.enter_context(socket.create_connection((host, int(port))))
                client.settimeout(60)
                with suppress(OSError):
                    client.sendall(heartbeat(number))
                if number % 25 == 0:
                    assert status(admin, "/livez") == 200
            until(lambda: len(broker.requests) >= 4)
            served = len(broker.connections)
            assert 4 <= served <= workers * FILES // 2
            assert status(admin, "/livez") == 200
            assert status(admin, "/metrics") == 200
        until(lambda: answered(bootstrap))

    said = lines(tmp_path)
    refused = [line for line in said if line["event"] == "connection refused"]
    assert any("64 open files" in line["reason"] for line in refused)
    assert len(said) < 60
    assert not [line for line in said if line["event"] == FEWER]
    assert not [line for line in said if "exception" in line]


@pytest.mark.deep
@pytest.mark.parametrize("workers", WORKERS)
def test_who_has_asked_for_more_is_told_once(tmp_path: Path, workers: int) -> None:
    """At the start, by the process that accepts, with how many there may be."""
    with FakeBroker() as broker, proxy(tmp_path, broker.address, workers, max_connections=1000) as running:
        assert answered(running[0])

    (line,) = [line for line in lines(tmp_path) if line["event"] == FEWER]
    assert (line["level"], line["limit"]) == ("warning", FILES)
    assert 4 <= line["connections"] <= workers * FILES // 2
    assert "worker" not in line


def heartbeat(number: int) -> bytes:
    """A request that the broker never answers."""
    body = b"\0\x01g" + number.to_bytes(4, "big") + b"\0\x01m"
    frame = HEARTBEAT.to_bytes(2, "big") + b"\0\0" + number.to_bytes(4, "big") + b"\0\x01c" + body
    return len(frame).to_bytes(4, "big") + frame


def answered(bootstrap: str) -> bool:
    """Whether a client is served."""
    try:
        with RawClient(bootstrap) as client:
            return len(client.brokers()) == 1
    except OSError:
        return False
