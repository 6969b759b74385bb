"""Checks of connections: versions, leader epochs, sessions, and responses without a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.cli.admin_client import Admin
from kproxy.protocol.table.api_keys import METADATA, PRODUCE
from kproxy.record.captures.pcapng import interface, section
from kproxy.record.captures.writer import Conversation
from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.verify import Verifier
from tests.support.frames import produce_body
from tests.support.raw_client import RawClient
from tests.tools.verify.history import CONSUMER, TOPIC, History, batch

pytestmark = pytest.mark.process
OFFER = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": 11} for key in (0, 1, 3)]}


def test_versions_before_they_were_offered_and_elsewhere() -> None:
    history = History(known=False, compacted=None)
    history.add(1, "ApiVersions", 2, {}, OFFER, took=2)
    history.read(2, 0, version=12)
    history.write(4, batch(b"a"), 0)
    history.add(5, "ApiVersions", 3, {}, {"error_code": 35, **OFFER})
    assert history.findings() == {}


def test_sequences_that_are_sent_again_or_at_once() -> None:
    history = History()
    data = [batch(b"a", b"%d" % number, producer=(7, 0, 2 * number)) for number in range(3)]
    history.write(1, data[0], 0)
    history.write(2, data[0], 0)
    history.write(3, data[2], 4, took=1)
    history.write(3.1, data[1], 2)
    history.write(5, data[1], 2)
    assert history.findings(assume_complete=True) == {}


def test_a_verdict_of_a_record_that_goes_on() -> None:
    """What was over in the last seconds waits for what may come late."""
    history = History()
    history.write(1, batch(b"a"), 0)
    history.write(2, batch(b"b"), 0, who=CONSUMER)
    history.read(30, 0)
    verifier = Verifier()
    for pair in history.pairs[:-1]:
        verifier.take(pair.front, pair.behind)
    assert verifier.verdict(so_far=True).findings == []
    verifier.take(history.pairs[-1].front, None)
    assert [one.check for one in verifier.verdict(so_far=True).findings] == ["offset-given-twice"]
    assert [one.check for one in verifier.verdict().findings] == ["offset-given-twice"]


LOCAL = bytes((127, 0, 0, 1))
WIRES = {
    "duplicate_response": ([1, 2, 2, 3, 4], 1),
    "reorder_responses": ([1, 3, 2, 4], 1),
    "wrong_correlation_id": ([1, 3, 3, 4], 1),
    "delay": ([1, 2, 3, 4], 0),
    "": ([1, 2, 3, 4], 0),
}
"""Ids of the responses that a client receives under a rule of this kind, and how many of them have no request."""


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@pytest.fixture(scope="module")
def proxy(captures: Path) -> Iterator[Proxy]:
    """Yield a `kproxy run` that has a rule of each kind of WIRES for the client with its name."""
    rules: list[dict[str, Any]] = [
        {"name": kind, "kind": kind, "match": {"api": "Metadata", "client_id": kind}, "when": {"nth": 2}}
        for kind in WIRES
    ]
    rules[-2]["delay"] = "300ms"
    with MockCluster() as cluster:
        listener = {"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}
        clusters = {"main": {"bootstrap": cluster.bootstrap.split(",")}}
        config = {"clusters": clusters, "listeners": [listener], "captures": str(captures)}
        with Proxy(config=config, rules=rules[:-1]) as running:
            yield running


class Wire:
    """Client whose network is captured, as tcpdump does."""

    def __init__(self, address: str, name: str) -> None:
        self.client = RawClient(address, client_id=name)
        self.talk = Conversation(0, (LOCAL, 50000), (LOCAL, 9092))
        self.blocks = [section("dumpcap"), interface("lo"), *self.talk.open(1_000.0, "")]
        self.ids: list[int] = []

    def send(self, key: int, version: int, body: dict[str, Any]) -> None:
        """Send a request, without waiting for a response."""
        data = self.client.request(key, version, body)
        self.client.send(data)
        self.passed(0, data)

    def receive(self, count: int) -> None:
        for _ in range(count):
            data = self.client.frame()
            self.ids.append(int.from_bytes(data[:4], "big"))
            self.passed(1, len(data).to_bytes(4, "big") + data)

    def passed(self, side: int, data: bytes) -> None:
        """Note a frame from the client (0) or to it (1)."""
        self.blocks += self.talk.send(side, data, len(data), 1_000.0, 1_000.0, "")

    def captured(self, path: Path) -> Path:
        """Write the capture."""
        path.write_bytes(b"".join([*self.blocks, *self.talk.close(1_001.0)]))
        return path


def verdict_of(path: Path, *options: str) -> Any:
    """Return the JSON of `kproxy verify` about a capture."""
    return json.loads(CliRunner().invoke(main, ["verify", str(path), "-o", "json", *options]).stdout)


@pytest.mark.parametrize("kind", WIRES)
def test_answer_order_at_client_of_kproxy_run_as_expected(
    proxy: Proxy, captures: Path, tmp_path: Path, kind: str
) -> None:
    """A client sends four requests at once. A capture of its network shows responses that come twice, out of turn, or
    with the id of another request; delayed ones are in order. kproxy's own capture has each response with its
    request."""
    ids, strangers = WIRES[kind]
    name = f"{kind or 'plain'}.pcapng"
    proxy.post(f"/api/captures?file={name}&payload=full", {})
    wire = Wire(proxy.bootstrap, kind or "plain")
    with wire.client:
        for _ in range(4):
            wire.send(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
        wire.receive(len(ids))
    assert wire.ids == ids
    Admin(f"http://{proxy.admin}")("DELETE", f"/api/captures/{name}")
    wired = wire.captured(tmp_path / name)
    for options, level in (((), "suspect"), (("--assume-complete",), "proved")):
        found = {one["check"]: one["level"] for one in verdict_of(wired, *options)["findings"]}
        assert found == ({"answer-order": level} if strangers else {})
    assert ("answer-order" in verdict_of(wired)["clean"]) is (strangers == 0)
    own = verdict_of(captures / name)
    assert own["findings"] == [] and own["not_checked"]["answer-order"] == "kproxy closes such connections"


def test_answer_order_writes_without_acks_is_clean(proxy: Proxy, tmp_path: Path) -> None:
    """No response is due to the second of three requests."""
    wire = Wire(proxy.bootstrap, "no-acks")
    with wire.client:
        wire.send(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
        wire.send(PRODUCE, 7, produce_body((TOPIC, 0), records=batch(b"a"), acks=0, timeout_ms=1000))
        wire.send(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
        wire.receive(2)
    assert wire.ids == [1, 3]
    verdict = verdict_of(wire.captured(tmp_path / "c.pcapng"), "--assume-complete")
    assert verdict["findings"] == [] and "answer-order" in verdict["clean"], verdict
