"""Captures and tails that come and go while fifty clients are busy; listeners that never read; the end in between."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from kproxy.cli.admin_client import Admin
from kproxy.record.captures.reader import Capture
from tests.support.raw_client import RawClient
from tests.support.wait import until

CLIENTS, ROUNDS = 50, 40 if os.environ.get("KPROXY_TEST_ALL") else 16
PAUSE = 0.005
"""Seconds of a client between its requests: it is kproxy that has to be busy, not Python's threads here."""
FILTERS = ("", "~k produce", "~k metadata", "error", "~val x")


class Busy(threading.Thread):
    """A client that asks for a topic of its own again and again; `wrong` says what it found wrong."""

    def __init__(self, bootstrap: str, number: int, over: threading.Event) -> None:
        super().__init__()
        self.bootstrap, self.number, self.over = bootstrap, number, over
        self.done, self.wrong = 0, ""

    def run(self) -> None:
        try:
            with RawClient(self.bootstrap) as client:
                while not self.over.is_set():
                    client.call(3, 8, {"topics": [{"name": f"topic-{self.number}"}]})
                    self.done += 1
                    self.over.wait(PAUSE)
        except Exception as error:  # noqa: BLE001  # the test's own thread tells
            self.wrong = repr(error)


@contextmanager
def busy(bootstrap: str) -> Iterator[list[Busy]]:
    over = threading.Event()
    clients = [Busy(bootstrap, number, over) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        over.set()
        for client in clients:
            client.join()


def listener(admin: str, text: str) -> socket.socket:
    """Asks for what passes; how much of that it reads is its affair."""
    host, port = admin.split(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((host, int(port)))
    made.sendall(f"GET /api/tail?filter={quote(text)} HTTP/1.1\r\nHost: {admin}\r\n\r\n".encode())
    return made


@pytest.mark.deep
def test_captures_and_tails_come_and_go_under_load(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path
) -> None:
    """Each request gets its answer; each capture is whole, without frames of nobody; tails that are gone are let go."""
    proxy = proxy_with(fake().address, captures=str(tmp_path), audit={"dir": str(tmp_path / "audit")})
    admin, random = Admin(f"http://{proxy.admin}"), Random(5)
    names: list[str] = []
    with ExitStack() as stack, busy(proxy.bootstrap) as clients:
        deaf = [stack.enter_context(listener(proxy.admin, text)) for text in FILTERS]
        until(lambda: len(proxy.said("tail begins")) == len(deaf))
        for number in range(ROUNDS):
            if len(names) > 2 and random.random() < 0.5:
                assert admin("DELETE", f"/api/captures/{names.pop(0)}")["state"] == "stopped"
            elif number % 2:
                with listener(proxy.admin, random.choice(FILTERS)) as quick:
                    quick.recv(random.choice((1, 100, 4000)))
            else:
                wanted = {"payload": random.choice(("none", "head", "full")), "side": random.choice(("both", "client"))}
                names.append(admin("POST", "/api/captures", query={"file": f"c{number}", **wanted})["name"])
        done = [client.done for client in clients]
        until(lambda: all(client.done > before + 5 for client, before in zip(clients, done, strict=True)))
        for one in deaf:
            one.close()
        until(lambda: len(proxy.said("tail ends")) == len(proxy.said("tail begins")) > len(deaf))
    assert [client.wrong for client in clients if client.wrong] == []
    assert proxy.stop() == 0

    files = sorted(tmp_path.glob("*.pcapng"))
    assert len(files) > 5
    for path in files:
        capture = Capture(path)
        for seen in capture:
            assert seen.correlation_id > 0
        assert (capture.file.torn, capture.counts.strangers, capture.counts.unread) == (False, 0, 0), path
