"""Admin calls about thousands of rules, while others are served: a bystander in the same loop never waits long."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy
from tests.support.wait import up_to

COUNT = 4000
DEADLINE = 120
PATIENCE = 3.0
"""Seconds for an answer of /livez on a machine with much else to do; work in the loop would take ten or more."""


def rules(line: str, count: int = COUNT) -> bytes:
    return ("rules:\n" + "".join(f"- {line.replace('#', str(at))}\n" for at in range(count))).encode()


def globs(count: int = COUNT) -> bytes:
    pairs = ", ".join(f'"a{at}-*": "b{at}-*"' for at in range(count))
    return f"rules:\n- {{name: globs, kind: rename_topic, topics: {{{pairs}}}}}\n".encode()


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with MockCluster(1) as cluster, Proxy(cluster.bootstrap) as proxy:
        yield proxy


def call(proxy: Proxy, method: str, path: str, body: bytes = b"", kind: str = "application/yaml") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(proxy.admin, timeout=DEADLINE)
    headers = {"Content-Type": kind} if method in ("POST", "PUT") else {}
    connection.request(method, path, body or None, headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, json.loads(said)


class Bystander(threading.Thread):
    """Asks /livez again and again, and remembers the longest time that it took."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(daemon=True)
        self.proxy, self.longest, self.asked, self.over = proxy, 0.0, 0, False

    def run(self) -> None:
        while not self.over:
            began = time.monotonic()
            connection = http.client.HTTPConnection(self.proxy.admin, timeout=DEADLINE)
            connection.request("GET", "/livez")
            assert connection.getresponse().read() == b"ok\n"
            connection.close()
            self.longest = max(self.longest, time.monotonic() - began)
            self.asked += 1
            time.sleep(0.02)


CALLS: dict[str, tuple[bytes, int, str]] = {
    "60,000 wrong rules": (rules("{a: b}", 60_000), 422, "119,900 more mistakes"),
    "unknown kinds": (rules("{name: n#, kind: k#}"), 422, "3,900 more mistakes"),
    "a rename of 4,000 globs": (globs(), 201, "globs"),
    "4,000 renames": (rules("{name: r#, kind: rename_topic, topics: {x#: y#}}"), 201, "r3999"),
    "4,000 delays": (rules("{name: d#, kind: delay, delay: 1s, match: {topic: t#}}"), 201, "d3999"),
    "one text of 4 MB": (b'{"rules": "' + b"x" * 4_000_000 + b'"}', 422, "a key or value of more than"),
    "brackets": (b"[" * 1_000_000, 422, "nested 51 levels deep"),
    "numbers": (b"[" + b"1," * 1_000_000 + b"1]", 422, "more than 200000 keys and values"),
}


@pytest.mark.deep
@up_to(PATIENCE)
@pytest.mark.parametrize("name", CALLS)
def test_livez_is_served_during_large_calls(proxy: Proxy, name: str, most: float) -> None:
    body, status, words = CALLS[name]
    call(proxy, "DELETE", "/api/rules")
    bystander = Bystander(proxy)
    bystander.start()
    try:
        found, said = call(proxy, "POST", "/api/rules", body)
        listed = call(proxy, "GET", "/api/rules")
    finally:
        bystander.over = True
        bystander.join(DEADLINE)

    assert (found, words in json.dumps(said)) == (status, True)
    assert listed[0] == 200
    assert bystander.asked >= 1
    assert bystander.longest <= most
    if status == 422:
        assert len(said["error"]["mistakes"]) <= 101
