"""Attacks on proofs: lawful histories that are made to look broken, by what a record lacks, mixes up or tells twice.

None of them may prove anything, not even where all traffic is said to be in the record. Beside most stands a history of
the same kind that is broken, and is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from kproxy.record.captures.pairs import BothSides
from kproxy.record.exchange import Form
from kproxy.tools.verify import Evidence, Finding, Verifier, VerifyTerms, explain, verify
from kproxy.tools.verify.facts import Witness
from kproxy.tools.verify.verifier import both_sides
from tests.support.exchange_factory import Somebody
from tests.support.frames import fetch_body, fetched_body, produce_body, produced_body
from tests.tools.verify.history import PRODUCER, TOPIC, History, Stored, batch, clients_view, marker, stored

A, B = batch(b"a", b"aa", b"aaa"), batch(b"b", at=1)
AGAIN = replace(PRODUCER, number=21, client_port=50021)
"""The writer on another connection, as after one that was lost."""


def transactions_of_one_epoch_behind_those_with_their_own(history: History) -> None:
    """The cluster's transaction version was lowered, and the end of the second transaction is not in the record."""
    history.end(1, 7, 4, commit=True, version=5)
    data = batch(b"a", producer=(7, 5, 0), transactional=True)
    history.read(2, 0, (0, marker(7, 5, commit=True)), (1, data), (2, marker(7, 5, commit=False)))


def test_markers_of_an_epoch_are_of_one_transaction_once_the_next_one_has_its_own() -> None:
    history = History()
    transactions_of_one_epoch_behind_those_with_their_own(history)
    history.end(3, 7, 5, commit=True, version=5)
    assert history.findings(assume_complete=True) == {"torn-transaction": "proved"}


# ---- several clusters and several names


@dataclass
class Recorded(Somebody):
    """Connection in a capture of tcpdump: nothing tells its cluster."""

    cluster: str | None = None
    listener: str | None = None
    node: int | None = None
    server_address: str = "10.0.0.1"
    server_port: int = 9092


HERE = Recorded(1, client_port=50001, client_id="writer")
THERE = replace(HERE, number=2, client_port=50002, server_address="10.0.0.2")


def zombie(history: History, *, who: Somebody) -> None:
    """Fence a producer at one server, and have it write to another. The first one knows the topic and its configs."""
    for at in (0.1, 4):
        history.metadata(at, who=HERE)
        history.configs(at, compacted=False, who=HERE)
    history.add(1, "InitProducerId", 4, {"transactional_id": "t", "transaction_timeout_ms": 1000},
                {"producer_id": 7, "producer_epoch": 3}, who=HERE)  # fmt: skip
    history.write(2, batch(b"x", producer=(7, 0, 0), transactional=True), 0, who=who)


def told_servers(cluster: str, *hosts: str) -> Mapping[str, Any]:
    """Return a Metadata response that names a cluster and its brokers."""
    brokers = [{"node_id": at, "host": host, "port": 9092} for at, host in enumerate(hosts)]
    return {"cluster_id": cluster, "brokers": brokers, "topics": []}


@pytest.mark.parametrize(
    ("here", "there", "level"),
    [
        (told_servers("one", "kafka-1", "kafka-2"), told_servers("two", "kafka-1"), "suspect"),
        (told_servers("one", "kafka-1", "kafka-2"), None, "suspect"),
        (told_servers("one", "kafka-1", "kafka-2"), told_servers("one", "kafka-1"), "proved"),
        (told_servers("one", "10.0.0.1", "10.0.0.2"), None, "proved"),
    ],
)
def test_a_record_that_does_not_name_clusters(
    here: Mapping[str, Any], there: Mapping[str, Any] | None, level: str
) -> None:
    """Producer ids are those of a cluster, and each cluster has a producer 7."""
    history = History(known=False, compacted=None)
    for who, told in ((HERE, here), (THERE, there)):
        if told is not None:
            history.add(0.5, "Metadata", 9, {"topics": None}, told, who=who)
    zombie(history, who=THERE)
    assert history.findings() == {"zombie-write": level}
    assert history.findings(assume_complete=True) == {"zombie-write": level}


def test_one_server_is_of_one_cluster() -> None:
    history = History(known=False, compacted=None)
    zombie(history, who=HERE)
    assert history.findings() == {"zombie-write": "proved"}


class Tenants(History):
    """History of clients that rules give names of their own: what they call orders has a prefix at the broker."""

    def both(
        self, at: float, who: Somebody, api: str, version: int, front: tuple[Any, Any], behind: tuple[Any, Any],
        **more: Any,
    ) -> None:  # fmt: skip
        """Add an exchange with its request and response at each side."""
        self.add(at, api, version, *front, who=who, **more)
        first = self.pairs.pop().front
        self.add(at, api, version, *behind, who=who)
        self.pairs.append(BothSides(first, self.pairs.pop().front))

    def put(self, at: float, who: Somebody, data: bytes, base: int) -> None:
        """Add a write of a tenant."""
        sides = [
            (produce_body((name, 0, data)), produced_body(name, offset=base)) for name in (TOPIC, self.name_of(who))
        ]
        self.both(at, who, "Produce", 9, sides[0], sides[1])

    def get(self, at: float, who: Somebody, position: int, *batches: Stored, seen: tuple[Stored, ...] = ()) -> None:
        """Add a read of a tenant; `seen`: what it is given in place of what the broker sent."""
        sides = []
        for name, found in ((TOPIC, seen or batches), (self.name_of(who), batches)):
            request = fetch_body(name, offset=position) | {"session_epoch": -1}
            body = fetched_body((name, 0, stored(*found)), high_watermark=1000)
            body["responses"][0]["partitions"][0] |= {"last_stable_offset": 1000, "log_start_offset": 0}
            sides.append((request, body))
        self.both(at, who, "Fetch", 11, sides[0], sides[1])

    def named(self, at: float, who: Somebody, topic_id: UUID) -> None:
        """Add a Metadata of a tenant: the broker tells of other topics, too."""

        def told(*topics: tuple[str, UUID]) -> dict[str, Any]:
            found = [
                {"name": name, "topic_id": one, "partitions": [{"partition_index": 0, "leader_id": 1}]}
                for name, one in topics
            ]
            return {"brokers": [], "topics": found}

        asked = {"topics": None}
        mine = self.name_of(who), topic_id
        self.both(at, who, "Metadata", 12, (asked, told((TOPIC, topic_id))),
                  (asked, told(("other", UUID(int=99)), mine)))  # fmt: skip

    def name_of(self, who: Somebody) -> str:
        """Return what the broker calls the topic of a tenant."""
        return f"{who.principal}-{TOPIC}"


ONE, OTHER = (
    Somebody(number, client_port=50000 + number, client_id=name, principal=name)
    for number, name in ((31, "one"), (32, "other"))
)


def test_tenants_that_have_one_name_for_two_topics() -> None:
    """What clients of both saw is about two topics, whatever is told between them."""
    for told in (False, True):
        history = Tenants(known=False, compacted=None)
        if told:
            history.named(0.5, ONE, UUID(int=1))
            history.named(0.6, OTHER, UUID(int=2))
        history.put(1, ONE, A, 0)
        history.put(2, OTHER, B, 0)
        history.get(3, ONE, 0, (0, A))
        history.get(4, OTHER, 0, (0, B))
        if told:
            history.named(40, ONE, UUID(int=1))
            history.named(41, OTHER, UUID(int=2))
        for complete in (False, True):
            assert history.findings(assume_complete=complete) == {}


def test_what_a_rule_does_to_one_tenant() -> None:
    """It is proved, is told by the broker's name, and its records are compared."""
    history = Tenants(known=False, compacted=None)
    history.put(1, ONE, A, 0)
    history.put(2, OTHER, B, 0)
    history.get(3, ONE, 0, (0, A), seen=((0, batch(b"a", b"xx", b"aaa")),))
    verdict = history.verdict()
    explain(verdict, history.pairs)
    (finding,) = verdict.findings
    assert (finding.check, finding.level, finding.view) == ("inconsistent-offset", "proved", "clients")
    assert finding.about == "one-orders[0]"
    assert finding.details == ["changed at 1: value of the record with no key"]


def test_what_is_renamed_only_is_not_done_by_something_between() -> None:
    """That its bytes are others at the broker is no reason against compaction, which the broker's topic may have."""
    history = Tenants(known=False, compacted=None)
    history.put(1, ONE, A, 0)
    history.get(3, ONE, 0, (3, B))
    (finding,) = history.verdict().findings
    assert (finding.check, finding.level, finding.view) == ("lost-write", "suspect", "both")
    assert history.findings(compacted=frozenset({"one-orders"})) == {}
    assert history.findings(compacted=frozenset({TOPIC})) == {"lost-write": "suspect"}


def test_groups_that_tenants_call_by_one_name() -> None:
    history = Tenants(known=False, compacted=None)

    def topics(group: str, part: Mapping[str, Any]) -> dict[str, Any]:
        return {"group_id": group, "topics": [{"name": TOPIC, "partitions": [part]}]}

    for at, who, offset in ((1, ONE, 5), (2, OTHER, 3)):
        front, behind = (
            (
                topics(group, {"partition_index": 0, "committed_offset": offset}),
                {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
            )
            for group in ("g", f"{who.principal}-g")
        )
        history.both(at, who, "OffsetCommit", 8, front, behind)
    for at, who, offset in ((3, ONE, 5), (4, OTHER, 3)):
        front, behind = (
            ({"groups": [{"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
             {"groups": [topics(group, {"partition_index": 0, "committed_offset": offset})]})
            for group in ("g", f"{who.principal}-g")
        )  # fmt: skip
        history.both(at, who, "OffsetFetch", 8, front, behind)
    assert history.findings(assume_complete=True) == {}


def test_what_kproxy_answers_a_tenant_is_about_the_tenants_topic() -> None:
    history = Tenants(known=False, compacted=None)
    history.put(1, ONE, A, 0)
    history.put(1.5, OTHER, B, 0)
    history.write(2, B, 0, who=ONE, by_rule=True, rules=("liar",))
    (finding,) = history.verdict(assume_complete=True).findings
    assert (finding.about, finding.view, finding.rules) == ("one-orders[0]", "clients", ("liar",))


def test_an_answer_about_many_partitions_is_compared_at_both_sides_in_one_go() -> None:
    """Who did what is looked up by place: so many findings with one exchange cost no more than each by itself."""

    class Counted(str):
        __slots__ = ()
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    witness = Witness(1, 1.0, 2.0, ("x:1", 1), "reader", 1, "Fetch", 11, altered=True)

    def findings(*numbers: int) -> list[Finding]:
        return [
            Finding("lost-write", "suspect", Counted(f"orders[{number}]"), "", [Evidence(witness, "")], "clients")
            for number in numbers
        ]

    both = both_sides(findings(*range(600)), findings(*range(599), 700, 701), lambda _: False)
    assert [one.view for one in both].count("both") == 600
    assert len(both) == 600
    assert Counted.compared < 12_000
    alone = both_sides(findings(*range(600)), findings(*range(599)), lambda _: False)
    assert [one.about for one in alone if one.view == "clients"] == ["orders[599]"]


# ---- what is missing in the record


def test_frames_that_were_not_kept_at_the_broker_are_told() -> None:
    """Neither view is clean then, and nothing is laid at the door of what is between."""
    history = History(compacted=None)
    history.write(1, A, 0)
    history.read(2, 0, (3, B), behind=((0, A), (3, B)), rules=("thief",))
    behind = history.pairs[-1].behind
    assert behind is not None and behind.response is not None
    behind.response.form, behind.response.data = Form.HEAD, behind.response.data[:20]
    verdict = history.verdict()
    (finding,) = verdict.findings
    assert finding.level == "suspect"
    assert "not all of it is in the record" in finding.else_
    assert "lost-write" in history.verdict(view="brokers").not_checked
    assert "1 Fetch at the broker were not kept" in history.verdict(view="brokers").incomplete
    assert history.verdict(view="clients").incomplete == []


def test_nothing_is_clean_that_was_not_compared() -> None:
    """Reads of one topic say nothing of what was written to another one."""
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, A))
    front = history.pairs[-1].front
    assert front is not None and front.request is not None and front.response is not None
    for frame in (front.request, front.response):
        frame.data = frame.data.replace(b"orders", b"quotes")
    verdict = history.verdict()
    assert {"lost-write", "watermark-behind", "inconsistent-offset", "duplicate", "aborted-read", "zombie-write",
            "torn-transaction", "commit-beyond"} <= set(verdict.not_checked)  # fmt: skip
    assert verdict.counts["read afterwards"] == 0


def test_markers_that_were_forgotten_may_have_been_the_next_ones() -> None:
    """Of a producer whose markers were dropped for want of memory, what comes later is not certainly the next one."""
    data = batch(b"a", producer=(7, 0, 0), transactional=True)
    plain = [(offset, batch(b"%d" % offset, at=offset)) for offset in range(2, 5)]
    verifier = Verifier(VerifyTerms(view="clients"))
    clients_view(verifier).state.markers.by_producer.max_entries = 2
    history = History()
    history.read(1, 0, (0, data), (1, marker(7, 0, commit=True)), *plain, committed=False)
    for producer in (8, 9, 10):
        history.read(2 + producer, 5, (5, marker(producer, 0, commit=False)), committed=False)
    history.read(20, 5, (5, batch(b"5")), (6, marker(7, 0, commit=False)), committed=False)
    history.read(21, 0, (0, data), committed=True)
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    assert "aborted-read" not in {one.check for one in verifier.verdict().findings}


@pytest.mark.parametrize("share", [2, 3, 7])
def test_fetch_sessions_with_holes(share: int) -> None:
    """Where an exchange of a session is missing, nobody knows where the next one reads from."""
    history = History()
    for number in range(40):
        history.write(1 + number / 100, batch(b"%d" % number, at=number), number)
    position = 0
    for number in range(14):
        position += 2
        listed = [] if number % 3 == 2 else [(TOPIC, 0)]
        request = fetch_body(*listed, offset=position) | {"session_id": 77 if number else 0, "session_epoch": number}
        body = fetched_body((TOPIC, 0, stored((position, batch(b"%d" % position, at=position)))), high_watermark=1000)
        body["responses"][0]["partitions"][0] |= {"last_stable_offset": 1000, "log_start_offset": 0}
        if number % 3 == 2:
            position -= 2
            continue
        history.add(2 + number, "Fetch", 11, request, body | {"session_id": 77})
    pairs = [pair for number, pair in enumerate(history.pairs) if number < 45 or number % share]
    found = verify(pairs, VerifyTerms(assume_complete=True, without=frozenset({"skipped-input"}))).findings
    assert [one for one in found if one.level == "proved"] == []


def test_correlation_ids_that_repeat() -> None:
    """Exchanges are told apart by their places, whatever ids clients give them."""
    history = History()
    for number in range(6):
        history.write(1 + number, batch(b"%d" % number, at=number), number)
    for pair in history.pairs:
        assert pair.front is not None
        pair.front.correlation_id = 5
    history.read(8, 0, *((number, batch(b"%d" % number, at=number)) for number in range(6)))
    assert history.findings() == {}


def test_records_from_before_batches() -> None:
    """Their checksums are made anew by brokers: nothing is compared, and nothing is clean for it."""
    old = b"".join(
        offset.to_bytes(8, "big") + (22).to_bytes(4, "big") + b"\1\2\3\4" + b"\1\0" + bytes(8) + b"\xff" * 8
        for offset in (3, 5)
    )
    history = History()
    history.write(1, A, 0)
    history.read(2, 0)
    front = history.pairs[-1].front
    assert front is not None and front.response is not None
    request, response = fetch_body(TOPIC, offset=0), fetched_body((TOPIC, 0, old), high_watermark=1000)
    history.add(3, "Fetch", 3, request, response)
    assert history.findings(assume_complete=True) == {}


def test_a_topic_with_many_partitions_and_hostile_numbers() -> None:
    """No number of a request is used as a size, and no array of it costs more than its length."""
    places = [(TOPIC, number, B) for number in range(1200)]
    history = History()
    history.add(1, "Produce", 9, produce_body(*places), produced_body(*((TOPIC, n) for n in range(1200)), offset=2**62))
    history.add(2, "Fetch", 11, fetch_body(*((TOPIC, n) for n in range(1200)), offset=-5) | {"session_epoch": -1},
                fetched_body(*((TOPIC, n, stored((2**62, B))) for n in range(1200)), high_watermark=-1))  # fmt: skip
    history.add(3, "Fetch", 11, fetch_body((TOPIC, -7), offset=2**63 - 1) | {"session_epoch": -1},
                fetched_body((TOPIC, -7, stored((2**63 - 1, B)))))  # fmt: skip
    history.commit(4, 2**63 - 1)
    history.commit(5, -(2**63))
    verdict = history.verdict()
    assert {one.check for one in verdict.findings} <= {"watermark-behind", "commit-goes-back", "commit-beyond"}
    assert "proved" not in {one.level for one in verdict.findings}
