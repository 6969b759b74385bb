"""Captures of real clients on a real Kafka of three brokers that broke nothing: nothing is proved of any of them.

All workloads are recorded at once, by one proxy, and what is found is theirs by the client that has their name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kproxy.record.captures.pairs import paired
from kproxy.record.captures.reader import Capture
from kproxy.testing.kafka import Kafka, KafkaListener
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.verify import Verdict, VerifyTerms, verify
from kproxy.tools.verify.finding import Finding
from kproxy.tools.verify.report import report_text
from tests.tools.verify import group_workloads, leader_workloads, log_workloads
from tests.tools.verify.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.deep]
PROPERTIES = {
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
}
"""What has brokers do within seconds what they else do in minutes."""
ALONE: dict[str, Callable[[Site], None]] = {
    "recompressed": log_workloads.recompressed,
    "stamped": log_workloads.stamped,
    "compacted": log_workloads.compacted,
    "deleted": log_workloads.deleted,
    "aged": log_workloads.aged,
    "static-classic": group_workloads.static_members("classic"),
    "static-consumer": group_workloads.static_members("consumer"),
    "shared": group_workloads.shared,
    "moved": leader_workloads.moved,
}
KILLED = ("killed-all", "killed-one")
LOST = [
    {"name": name, "kind": "disconnect", "at": "response", "match": {"api": "Produce", "client_id": name},
     "when": {"nth": 3}}
    for name in ("recompressed", "stamped")
]  # fmt: skip
"""Answers that are lost, so that idempotent producers send again what the broker has in another form."""
MARKERS = ("aborted-read", "torn-transaction")
KINDS = {
    "open": VerifyTerms(level="note"),
    "assume_complete": VerifyTerms(level="note", assume_complete=True),
    "told": VerifyTerms(level="note", assume_complete=True, records=True, compacted=frozenset({"compacted"})),
}
TERMS = {f"{payload}, {kind}": (payload, terms) for payload in ("full", "sketch") for kind, terms in KINDS.items()}
EMPTY = ("recompressed", "stamped", "deleted", "aged", "shared")
"""Workloads of which nothing is found at all: others have what is suspected by nature, as of a follower that lags."""


def record(kafka: Kafka, folder: Path) -> None:
    """Have all workloads done through a proxy, and captured with whole frames and as sketches."""
    config = {
        "clusters": {"main": {"bootstrap": kafka.bootstrap("PROXIED").split(",")}},
        "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}],
        "captures": str(folder),
    }
    with Proxy(config=config, rules=LOST) as proxy:
        for payload in ("full", "sketch"):
            proxy.post(f"/api/captures?file={payload}&payload={payload}", {})
        with ThreadPoolExecutor(len(ALONE)) as pool:
            for done in [pool.submit(work, Site(name, kafka, proxy.bootstrap)) for name, work in ALONE.items()]:
                done.result()
        leader_workloads.killed(*(Site(name, kafka, proxy.bootstrap) for name in KILLED))


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """What the record of all workloads proves, by the terms of its verification."""
    folder = tmp_path_factory.mktemp("clean")
    with Kafka(3, listeners=[KafkaListener("PROXIED")], properties=PROPERTIES) as kafka:
        record(kafka, folder)
    return {
        name: verify(paired(Capture(folder / f"{payload}.pcapng", side="both")), terms)
        for name, (payload, terms) in TERMS.items()
    }


def by_client(verdict: Verdict) -> dict[str, list[Finding]]:
    """Return what is found, by the clients whose exchanges show it."""
    found = defaultdict(list)
    for finding in verdict.findings:
        for client in {one.witness.client for one in finding.evidence}:
            found[client].append(finding)
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [*ALONE, *KILLED])
def test_nothing_is_proved_of_what_is_clean(verdicts: dict[str, Verdict], name: str) -> None:
    """Neither of clients nor of brokers, however much of the record is taken for granted."""
    for terms, verdict in verdicts.items():
        found = by_client(verdict)[name]
        told = f"{terms}:\n{report_text(verdict, name)}"
        assert "proved" not in {one.level for one in found}, told
        assert name not in EMPTY or found == [], told
        assert name != "compacted" or found == [], told  # the capture has the policy of the topic


def test_what_acks_of_the_leader_lose_is_told_as_that(verdicts: dict[str, Verdict]) -> None:
    """Other records are where the leader had acknowledged some that no follower had."""
    for terms, verdict in verdicts.items():
        found = {one.check: one.doubts for one in by_client(verdict)["killed-one"] if one.level == "suspect"}
        assert {"inconsistent-offset", "offset-given-twice"} & set(found), terms
        assert all("truncation" in doubts for check, doubts in found.items() if check != "watermark-behind"), terms


def test_nothing_else_is_found(verdicts: dict[str, Verdict]) -> None:
    """All was read whole, and what a sketch does not tell of transactions is not checked."""
    for terms, verdict in verdicts.items():
        assert verdict.incomplete == [], terms
        assert [one for one in verdict.findings if one.level == "proved"] == [], report_text(verdict, terms)
        assert verdict.counts["acknowledged writes"] > 50
        for check in MARKERS:
            assert (verdict.not_checked.get(check, "").startswith("the end of ")) == terms.startswith("sketch"), terms
