"""Capture of a Java client that copies exactly once on a real Kafka: transactions with an epoch of their own each."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.record.captures.pairs import paired
from kproxy.record.captures.reader import Capture
from kproxy.testing.kafka import Kafka
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.verify import Verifier, VerifyTerms
from kproxy.tools.verify.transactions import TransactionsCheck
from tests.support.java_program import JavaProgram
from tests.support.topics import create_topics
from tests.tools.verify.history import clients_view

pytestmark = pytest.mark.kafka
COUNT = 20


@pytest.mark.deep
def test_a_copier_that_aborts_and_goes_on(kafka: Kafka, java: JavaProgram, tmp_path: Path) -> None:
    """Nothing is found: what was aborted is read again and copied, and no reader gets it twice."""
    config = {
        "clusters": {"main": {"bootstrap": kafka.bootstrap("PROXIED").split(",")}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}],
        "captures": str(tmp_path),
    }
    create_topics(kafka.bootstrap("DIRECT"), "copier-from", "copier-to")
    with Proxy(config=config, rules=[]) as proxy:
        proxy.post("/api/captures?file=copier&payload=full", {})
        address = {"bootstrap.servers": proxy.bootstrap}
        reader = address | {"group.id": "copier", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        java("produce", config=address, topic="copier-from", tag="a", count=COUNT, padding=0)
        java(
            "copy",
            consumer=reader | {"enable.auto.commit": "false", "max.poll.records": "5"},
            producer=address | {"transactional.id": "copier"},
            count=COUNT,
            **{"from": "copier-from", "to": "copier-to"},
        )
        java("consume", config=reader | {"group.id": "last"}, topics=["copier-to"], count=COUNT, seconds=30)
    verifier = Verifier(VerifyTerms(assume_complete=True))
    for pair in paired(Capture(tmp_path / "copier.pcapng", side="both")):
        verifier.take(pair.front, pair.behind)
    verdict = verifier.verdict()
    assert verdict.findings == []
    assert verdict.counts["transactions"] >= 3
    assert {"torn-transaction", "aborted-read", "zombie-write", "skipped-input"} <= set(verdict.clean)
    (check,) = [one for one in clients_view(verifier).checks if isinstance(one, TransactionsCheck)]
    (producer,) = [one for one in check.producers.values() if one.own_from is not None]
    for epoch, end in producer.ends.items():  # markers have the epoch after that of their transaction
        assert list(producer.markers[epoch + 1]) == ["commit" if end.committed else "abort"]
