"""Rules that change a thousand times while fifty connections are busy: nothing lost, nothing doubled, no mixture."""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kproxy.protocol import Message
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient

PRODUCE = 0
CONNECTIONS = 50
SWAPS = 1000 if os.environ.get("KPROXY_TEST_ALL") else 24
PARTITIONS = 4
NONE, NOT_LEADER, TIMED_OUT = 0, 6, 7
MATCH = {"api": "Produce", "topic": "orders"}
SETS = (
    [{"name": "first", "kind": "error", "match": MATCH, "error": NOT_LEADER}],
    [{"name": "second", "kind": "error", "match": MATCH, "error": TIMED_OUT, "at": "response"},
     {"name": "budget", "kind": "quota", "per": ["client_address"], "produce": "1GB/s"}],
    [{"name": "other names", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}],
    [],
)  # fmt: skip


def stored(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Every partition of a write is acknowledged, with the topic's name as the broker got it."""
    said = [
        {
            "name": topic["name"],
            "partition_responses": [
                {"index": part["index"], "error_code": NONE, "base_offset": request.header["correlation_id"]}
                | {"log_append_time_ms": -1}
                for part in topic["partition_data"]
            ],
        }
        for topic in request.body["topic_data"]
    ]
    broker.respond(stream, request, {"responses": said, "throttle_time_ms": 0})


class Writer(threading.Thread):
    """One connection that writes until it is told to stop; `seen` are the sets of codes of its answers."""

    def __init__(self, address: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.client, self.over = RawClient(address), over
        self.seen: Counter[tuple[int, ...]] = Counter()
        self.problem = ""

    def run(self) -> None:
        parts = [{"index": index, "records": b"r" * 50} for index in range(PARTITIONS)]
        body = {"acks": 1, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": parts}]}
        try:
            while not self.over.is_set():
                answer = self.client.call(PRODUCE, 3, {"transactional_id": None, **body})
                (topic,) = answer["responses"]
                codes = tuple(sorted({part["error_code"] for part in topic["partition_responses"]}))
                indexes = [part["index"] for part in topic["partition_responses"]]
                if topic["name"] != "orders" or indexes != list(range(PARTITIONS)):
                    self.problem = f"{topic['name']} {indexes}"
                    return
                self.seen[codes] += 1
        except OSError as error:
            self.problem = f"{type(error).__name__}: {error}"


def replace_rules(admin: str, rules: list[dict[str, Any]]) -> None:
    request = urllib.request.Request(
        f"http://{admin}/api/rules",
        json.dumps({"rules": rules}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_rules_swapped_under_load(fake: Callable[..., Any], proxy_with: Callable[..., Any]) -> None:
    """Each answer obeys exactly one rule set: its codes are all alike. No connection is cut, no request unanswered."""
    broker = fake(answers={PRODUCE: stored})
    proxy = proxy_with(broker.address)
    over = threading.Event()
    writers = [Writer(proxy.bootstrap, over) for _ in range(CONNECTIONS)]
    for writer in writers:
        writer.start()
    try:
        for number in range(SWAPS):
            replace_rules(proxy.admin, list(SETS[number % len(SETS)]))
    finally:
        over.set()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    seen = sum((writer.seen for writer in writers), Counter[tuple[int, ...]]())

    assert [writer.problem for writer in writers if writer.problem] == []
    assert set(seen) <= {(NONE,), (NOT_LEADER,), (TIMED_OUT,)}
    assert len(seen) == 3
    written = sum(request.api.key == PRODUCE for request in broker.requests)
    assert written == seen[NONE,] + seen[TIMED_OUT,]
    assert proxy.metric("kproxy_connections_closed_total") == 0
    for writer in writers:
        writer.client.close()
