"""Lawful histories that look broken since causes lie outside of the record, or since its order or its names mislead.

No check proves anything of them. Beside most of them is a history of the same kind with a proved finding.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kproxy.cli.verify import for_sides
from kproxy.cli.verify_input import JudgedCapture, by_time, over, recordings
from kproxy.record.filters import Filter
from kproxy.tools.verify import Verdict, Verifier, VerifyTerms, cluster
from kproxy.tools.verify.cluster import COORDINATORS_LOGS
from tests.support.exchange_factory import Somebody, write_capture
from tests.tools.verify.history import (
    CONSUMER,
    COORDINATOR,
    PRODUCER,
    TOPIC,
    TOPIC_ID,
    History,
    batch,
    clients_view,
    thinned,
)
from tests.tools.verify.test_attacks import HERE, ONE, OTHER
from tests.tools.verify.test_events import events, judged

A, B, C = batch(b"a"), batch(b"b", at=1), batch(b"c", at=2)
OTHER_NODE = replace(CONSUMER, number=9, client_port=50009, node=2)
LATER = replace(PRODUCER, number=10, client_port=50010)
"""The writer on a later connection."""
Lived = Callable[[History], None]


def levels(history: History, **terms: Any) -> set[str]:
    return set(history.findings(**terms).values())


# ---- leader elections past the record


def two_batches_at_one_offset(history: History) -> None:
    history.write(1, A, 0)
    history.write(2, B, 0)


def a_batch_that_replaces_another(history: History) -> None:
    history.write(1, A, 0)
    history.read(2, 0, (0, B))


def a_sequence_at_two_offsets(history: History) -> None:
    for at, offset in ((1, 0), (2, 1)):
        history.read(at, offset, (offset, batch(b"a", producer=(7, 0, 0))))


def a_write_below_the_end(history: History) -> None:
    history.read(1, 0, (0, A), (1, B))
    history.write(2, C, 1)


def a_write_below_an_earlier_one(history: History) -> None:
    history.write(1, A, 5)
    history.write(2, B, 3, who=LATER)


def a_read_that_is_out_of_range(history: History) -> None:
    history.write(1, A, 5)
    history.refused_read(2, 6)
    history.read(3, 5, (5, A))


def a_generation_that_goes_back(history: History) -> None:
    for at, generation in ((1, 5), (2, 4)):
        request = {"group_id": "g", "generation_id": generation, "member_id": "m", "assignments": []}
        history.add(at, "SyncGroup", 3, request, {"assignment": b""}, who=COORDINATOR)


def an_epoch_that_goes_back(history: History) -> None:
    history.init(1, 7, 5)
    history.init(2, 7, 4)


UNCLEAN = (
    two_batches_at_one_offset, a_batch_that_replaces_another, a_sequence_at_two_offsets, a_write_below_the_end,
    a_write_below_an_earlier_one, a_read_that_is_out_of_range, a_generation_that_goes_back, an_epoch_that_goes_back,
)  # fmt: skip


@pytest.mark.parametrize("lived", UNCLEAN)
def test_election_past_the_record_is_not_proved(lived: Lived) -> None:
    """The configs forbid unclean elections before and after. ElectLeaders ignores them, and they may change between."""
    history = History()
    lived(history)
    history.elect()
    assert levels(history) == {"suspect"}


@pytest.mark.parametrize("lived", UNCLEAN)
def test_one_leader_epoch_proves_the_same_histories(lived: Lived) -> None:
    """Without any election the configs do not matter."""
    for unclean in (False, True):
        history = History(unclean=unclean)
        lived(history)
        if unclean:
            history.configs(0.25, compacted=False)
        assert "proved" in levels(history)


def test_writes_with_acks_1_and_one_leader_epoch_are_proved() -> None:
    """A new leader may lack them, and there was none."""
    for elected, level in ((False, "proved"), (True, "suspect")):
        history = History()
        history.write(1, A, 0, acks=1)
        history.write(2, B, 0, acks=1)
        if elected:
            history.elect()
        assert history.findings() == {"offset-given-twice": level}


def test_old_epoch_of_a_lagging_broker_is_not_proved() -> None:
    """One broker returns the new leader epoch, and another one returns the old epoch afterwards."""
    history = History()
    a_batch_that_replaces_another(history)
    history.metadata(3, epoch=1)
    history.metadata(30, epoch=0, who=OTHER_NODE)
    assert levels(history) == {"suspect"}


@pytest.mark.parametrize("count", [50, 300])
def test_leader_epochs_of_many_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A record may name any partitions. Without the epochs of all of them nothing is known of a coordinators' log."""
    monkeypatch.setattr(cluster, "MOST_PARTITIONS", 400)
    history = History()
    for at in (0.5, 30.0):
        for first in (0, 2_000_000) if count > 50 else (0,):
            parts = [{"partition_index": first + number, "leader_epoch": 0} for number in range(count)]
            topics = [{"name": name, "partitions": parts} for name in COORDINATORS_LOGS]
            history.add(at, "Metadata", 12, {"topics": None}, {"brokers": [], "topics": topics})
    an_epoch_that_goes_back(history)
    verifier = Verifier(VerifyTerms(level="note"))
    history.close()
    for pair in sorted(history.pairs, key=over):
        verifier.add(pair)
    levels_found = {one.level for one in verifier.verdict().findings}
    assert levels_found == {"proved" if count == 50 else "suspect"}
    known = clients_view(verifier).state.topics.by_name.get(COORDINATORS_LOGS[1])
    assert known is not None and len(known.epochs) == min(2 * count, 400 if count > 50 else 50)


@pytest.mark.parametrize("rules", [(), ("stale",)])
def test_metadata_that_a_rule_changed_is_not_a_proof(rules: tuple[str, ...]) -> None:
    """A rule such as stale_metadata returns the first response again."""
    history = History(compacted=None)
    a_batch_that_replaces_another(history)
    parts = [{"partition_index": 0, "leader_id": 1, "leader_epoch": 0}]
    topic = {"name": TOPIC, "topic_id": TOPIC_ID, "partitions": parts}
    history.add(30, "Metadata", 12, {"topics": None}, {"brokers": [], "topics": [topic]}, rules=rules)
    history.over = True
    assert levels(history) == {"suspect" if rules else "proved"}


def test_topic_id_of_a_lagging_broker_is_not_a_proof() -> None:
    """The topic was created again, and a broker that does not know it yet returns the old id."""
    for who, level in ((OTHER_NODE, "suspect"), (CONSUMER, "proved")):
        history = History(compacted=None)
        a_batch_that_replaces_another(history)
        history.metadata(4, who=who)
        history.over = True
        assert levels(history) == {level}


# ---- replicas and directories


@pytest.mark.parametrize("node", [1, 2])
def test_topic_that_was_compacted_before_the_record(node: int) -> None:
    """Each replica is cleaned by itself: the first reader's one was not cleaned yet when the policy was changed."""
    who = replace(CONSUMER, number=9, client_port=50009, node=node)
    gone, cleaned = History(), History()
    gone.read(1, 0, (0, A), (1, B))
    gone.read(2, 0, (1, B), who=who)
    cleaned.read(1, 0, (0, batch(b"a", b"b", b"c")))
    cleaned.read(2, 0, (0, thinned(b"a", last=2)), who=who)
    level = "proved" if node == 1 else "suspect"
    assert gone.findings() == {"read-then-gone": level}
    assert cleaned.findings()["inconsistent-offset"] == level


@pytest.mark.parametrize("bound", ["watermark", "end", "stable"])
def test_log_that_moves_to_another_directory(bound: str) -> None:
    """The copy of the log has an older high watermark when it replaces the log."""
    for moved in (False, True):
        history = History()
        if bound == "watermark":
            history.read(1, 5, (5, A), high=9, epoch=0)
            history.read(2, 6, high=7, epoch=0)
        else:
            for at, offset in ((1, 9), (2, 7)):
                history.bound(at, offset, committed=bound == "stable")
        assert history.findings() == {"log-goes-back": "suspect"}
        if moved:
            dirs = {"dirs": [{"path": "/data", "topics": [{"name": TOPIC, "partitions": [0]}]}]}
            history.add(1.5, "AlterReplicaLogDirs", 2, dirs, {"results": []})
        assert history.findings(assume_complete=True) == {"log-goes-back": "suspect" if moved else "proved"}


def test_read_from_a_leader_that_was_replaced() -> None:
    """It does not know that yet, and ends below the writes of the new leader."""
    history = History()
    history.metadata(0.5)
    history.write(1, A, 5, who=replace(PRODUCER, node=2))
    history.refused_read(2, 6, epoch=0)
    history.read(3, 5, high=5, epoch=0)
    assert history.findings()["out-of-range"] == "suspect"


def test_high_watermark_of_another_node_is_a_note() -> None:
    """Readers of followers, and of a new leader, receive it in each busy cluster."""
    for who, level in ((OTHER_NODE, "note"), (CONSUMER, "suspect")):
        history = History()
        history.write(1, A, 5)
        history.read(2, 5, high=5, who=who)
        assert history.findings() == {"watermark-behind": level}


def test_group_that_goes_on_past_the_record_is_a_note() -> None:
    """A higher offset was committed through another proxy. A lower one, or none, may be a loss."""
    for offset, complete, level in (
        (9, False, "note"),
        (9, True, "proved"),
        (3, False, "suspect"),
        (-1, False, "suspect"),
    ):
        history = History()
        history.commit(1, 5)
        history.told(3, offset)
        assert history.findings(assume_complete=complete) == {"lost-commit": level}


# ---- several recordings, and clocks


def recorded(history: History, *second: int) -> None:
    """Have all exchanges in one recording, and these in a second one with another clock. Both are of one cluster."""
    for number, pair in enumerate(history.pairs):
        assert pair.front is not None
        pair.front.who = copy(pair.front.who)
        pair.front.who.recording = 1 + (number in second)  # type: ignore[attr-defined]  # as `numbered` does


def tied() -> History:
    """Return a history that begins with Metadata of one cluster in both recordings (exchanges 0 and 1)."""
    history = History(known=False, compacted=None)
    for number in (71, 72):
        response = {"cluster_id": "one", "brokers": [], "topics": []}
        who = Somebody(number, client_port=50000 + number)
        history.add(0.3, "Metadata", 9, {"topics": None}, response, who=who)
    history.metadata(0.4)
    history.configs(0.5, compacted=False)
    history.over = True
    return history


def a_commit_in_between(history: History) -> None:
    history.commit(10, 5)
    history.commit(6, 7)
    history.told(12, 7)


def a_deletion_in_between(history: History) -> None:
    history.commit(10, 5)
    history.add(6, "DeleteGroups", 2, {"groups_names": ["g"]}, {"results": [{"group_id": "g"}]})
    history.told(12, -1)


def an_end_in_between(history: History) -> None:
    history.txn_commit(10, 5, who=COORDINATOR)
    history.end(6, 7, 0, commit=True)
    history.init(12, 7, 1)
    history.told(9, 3)
    history.told(13, 5, stable=True)


def a_revocation_in_between(history: History) -> None:
    beat(history, 10, "m1", 0, [], [0])
    beat(history, 6, "m1", 1, [])
    beat(history, 12, "m2", 1, [], [0])
    beat(history, 13, "m1", 1)


def beat(
    history: History, at: float, member: str, epoch: int, owned: list[int] | None = None, given: list[int] | None = None
) -> None:
    """Add a ConsumerGroupHeartbeat of group c."""
    sides = [None if one is None else [{"topic_id": TOPIC_ID, "partitions": one}] for one in (owned, given)]
    request = {"group_id": "c", "member_id": member, "member_epoch": epoch, "topic_partitions": sides[0]}
    assignment = None if sides[1] is None else {"topic_partitions": sides[1]}
    response = {"member_id": member, "member_epoch": max(epoch, 1), "assignment": assignment}
    history.add(at, "ConsumerGroupHeartbeat", 0, request, response, who=COORDINATOR)


@pytest.mark.parametrize(
    "lived", [a_commit_in_between, a_deletion_in_between, an_end_in_between, a_revocation_in_between]
)
def test_exchange_of_another_clock_may_be_the_cause(lived: Lived) -> None:
    """It was the second exchange, and the clock of its proxy is some seconds behind. The finding does not name it."""
    for two in (True, False):
        history = tied()
        first = len(history.pairs)
        lived(history)
        history.metadata(40)
        history.configs(41, compacted=False)
        if two:
            recorded(history, 1, first + 1)
        assert ("proved" in levels(history, assume_complete=True)) is not two


def verdict(path: Path, **terms: Any) -> Verdict:
    """Return the verdict of a capture, as the command does."""
    chosen = VerifyTerms(**({"level": "note"} | terms))
    found = recordings([str(path)], chosen.clock)
    verifier = Verifier(for_sides(found, chosen))
    for pair in by_time(found, Filter("")):
        verifier.add(pair)
    return verifier.verdict()


def test_clock_of_tcpdump_that_is_set_back(tmp_path: Path) -> None:
    """Packets are in the order of time, so an earlier time than that of the packet before shows the step."""
    for step, level in ((True, "suspect"), (False, "proved")):
        history = History(by_clock=False)
        writes = [(10, A, 5, PRODUCER), (7.5, B, 6, LATER)]  # the clock was set back between them, or the log is wrong
        for at, data, base, who in writes if step else reversed(writes):
            history.write(at, data, base, who=who)
        history.close()
        seen = [pair.front for pair in history.pairs if pair.front is not None]
        path = write_capture(tmp_path / f"{step}.pcapng", seen)
        path.write_bytes(path.read_bytes().replace(b"kproxy", b"tshark", 1))
        assert {one.check: one.level for one in verdict(path).findings} == {"realtime-order": level}


# ---- clusters and names


def given(history: History, at: float, name: str | None, epoch: int, who: Somebody = PRODUCER) -> None:
    """Add an InitProducerId that returns producer id 7 to this transactional id."""
    request = {"transactional_id": name, "transaction_timeout_ms": 1000}
    history.add(at, "InitProducerId", 4, request, {"producer_id": 7, "producer_epoch": epoch}, who=who)


def test_cluster_that_is_replaced_behind_one_name() -> None:
    """The config names a new cluster as the old one, such as a test's containers that are started again."""
    for other, level in (("two", "suspect"), ("one", "proved")):
        history = History()
        for at, name, who, here in ((1, "t", PRODUCER, "one"), (3, "u", LATER, other)):
            response = {"cluster_id": here, "brokers": [], "topics": []}
            history.add(at, "Metadata", 9, {"topics": None}, response, who=who)
            given(history, at + 0.5, name, 0, who)
        assert history.findings() == {"producer-id-reused": level}


def test_transactional_id_that_a_rule_renames_in_events() -> None:
    """Events have the client's transactional id only, and two clients may have two names for one."""
    for name, level in (("tenant-t", "suspect"), (None, "proved")):
        history = History()
        given(history, 1, "t", 0)
        given(history, 2, name, 1, LATER)
        assert [one.level for one in judged(events(history.pairs)).findings] == [level]
        assert history.findings() == {"producer-id-reused": "proved"}


def test_tcpdump_at_both_sides_of_a_renaming_proxy() -> None:
    """It has each exchange twice, with the client's transactional id and with the broker's."""
    behind = replace(HERE, number=2, client_address="10.0.0.9", server_address="10.0.0.2")
    history = History(known=False, compacted=None)
    for who in (HERE, behind):
        response = {"cluster_id": "one", "brokers": [], "topics": []}
        history.add(0.5, "Metadata", 9, {"topics": None}, response, who=who)
    for at, epoch in ((1, 0), (2, 1)):
        given(history, at, "t", epoch, HERE)
        given(history, at + 0.005, "tenant-t", epoch, behind)
    assert history.findings(assume_complete=True) == {"producer-id-reused": "suspect"}


def test_client_side_of_tenants_with_one_topic_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules give two clients one name for two topics. A capture with one side has neither the rules nor the topics."""
    for other, levels_found in ((OTHER, {"suspect"}), (ONE, {"proved"})):
        history = History()
        history.write(1, A, 0, who=ONE)
        history.write(2, B, 0, who=other)
        assert levels(history, client_names=True) == levels_found
    path = write_capture(tmp_path / "client.pcapng", [])
    for side, own in (("client", True), ("both", False)):
        monkeypatch.setattr(JudgedCapture, "side", side)
        assert for_sides(recordings([str(path)]), VerifyTerms()).client_names is own
