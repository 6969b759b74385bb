"""Bounds of a verification: memory, hostile numbers, and structures over offsets against simple ones."""

from __future__ import annotations

from random import Random

import pytest

from kproxy.base.bounded_map import BoundedMap
from kproxy.protocol.table.api_keys import FETCH, PRODUCE
from kproxy.record.exchange import Form, Frame
from kproxy.tools.verify import Verifier, VerifyTerms, durability, stored_batches, verify
from kproxy.tools.verify.commits import (
    MOST_ABORTED,
    MOST_DELETIONS,
    MOST_OPEN,
    MOST_PENDING,
    MOST_REPORTED,
    CommitsCheck,
)
from kproxy.tools.verify.durability import MOST_REFUSED_READS
from kproxy.tools.verify.facts import BatchFact, BatchIdentity, PartitionPlace
from kproxy.tools.verify.groups import MOST_DOUBTED, BrokerGroupsCheck
from kproxy.tools.verify.partition import ENTRY_SIZE, KnownBatch, KnownOffsets, OffsetIndex
from kproxy.tools.verify.sequences import MOST_GAPS
from kproxy.tools.verify.view import FACT_SIZE, ViewVerifier
from tests.support.exchange_factory import Somebody
from tests.tools.verify.cases.coordinators import heartbeat
from tests.tools.verify.history import PRODUCER, TOPIC, History, batch, clients_view
from tests.tools.verify.model import Model


def test_what_is_remembered_is_bounded_and_what_was_forgotten_is_told() -> None:
    history = History()
    for number in range(1500):
        history.write(1 + number / 100, batch(b"%d" % number, at=number), number)
    history.read(20, 1499, (1499, batch(b"other")), high=2000)
    history.read(21, 0, (0, batch(b"other")), high=2000)
    verifier = Verifier(VerifyTerms(view="clients", memory=1000 * ENTRY_SIZE))
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    verdict = verifier.verdict()
    assert clients_view(verifier).state.partitions.used <= 1000
    (finding,) = verdict.findings
    assert finding.check == "inconsistent-offset"
    assert finding.times == 1, "of the first one nothing is known any more"
    assert "for want of memory" in verdict.not_checked["inconsistent-offset"]


def test_a_partition_that_is_silent_is_forgotten_first() -> None:
    verifier = Verifier(VerifyTerms(view="clients", memory=1000 * ENTRY_SIZE))
    partitions = clients_view(verifier).state.partitions
    for number in range(5000):
        history = History(known=False, compacted=None)
        history.write(number, batch(b"%d" % number, at=number), number)
        seen = history.pairs[0].front
        verifier.take(seen, None)
    verifier.verdict()
    assert partitions.used <= 1000
    assert partitions.evicted > 5000


@pytest.mark.parametrize("seed", range(6))
def test_damaged_frames_are_counted_and_nothing_else(seed: int) -> None:
    """Whatever bytes a record has, reading it raises nothing."""
    random = Random(seed)
    pairs = Model(seed).run(6)
    for pair in pairs:
        for frame in (pair.front.request, pair.front.response) if pair.front else ():
            if frame is not None and random.random() < 0.5:
                data = bytearray(frame.data)
                for _ in range(random.randint(1, 4)):
                    data[random.randrange(8 if frame is pair.front.request else 4, len(data))] = random.randrange(256)
                frame.data = bytes(data[: random.randint(8, len(data))] if random.random() < 0.2 else data)
    verdict = verify(pairs, VerifyTerms(level="note"))
    assert verdict.exchanges == len(pairs)
    assert any("cannot be read" in one for one in verdict.incomplete)


@pytest.mark.parametrize("key", [PRODUCE, FETCH])
def test_batches_whose_numbers_make_no_sense(key: int) -> None:
    """Negative offsets, counts and deltas, and sums beyond 64 bits, are no facts."""
    good = batch(b"a", b"b")
    for at, size in ((0, 8), (23, 4), (57, 4)):
        for value in (-1, -(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1):
            spoilt = bytearray(good)
            spoilt[at : at + size] = value.to_bytes(size, "big", signed=True)
            history = History()
            if key == PRODUCE:
                history.write(1, bytes(spoilt), 5)
            else:
                history.read(1, 0, high=10)
                seen = history.pairs[-1].front
                assert seen is not None and seen.response is not None
                history.read(2, 0, (0, good))
                other = history.pairs[-1].front
                assert other is not None and other.response is not None
                data = other.response.data.replace(good[8:], bytes(spoilt[8:])).replace(
                    good[:8] + bytes(spoilt[8:]), bytes(spoilt)
                )
                other.response = Frame(len(data) + 4, 2, 2.1, data, Form.WHOLE)
            verdict = history.verdict()
            assert all(one.check in ("thinned-batch", "lost-write") for one in verdict.findings)


def test_a_clock_that_goes_back() -> None:
    history = History(by_clock=False)
    history.write(1000, batch(b"a"), 0)
    history.write(1001, batch(b"b", at=1), 1)
    history.write(1, batch(b"c", at=2), 2)
    history.write(2000, batch(b"d", at=3), 3)
    history.write(3, batch(b"e", at=4), 4)
    verdict = history.verdict(without=frozenset({"order"}))
    assert verdict.findings == []
    assert any("clocks that go back" in one for one in verdict.incomplete)


def test_an_index_is_a_sorted_dict() -> None:
    random, index, plain = Random(3), OffsetIndex[int](), dict[int, int]()
    for _ in range(9000):
        offset = random.randrange(20_000)
        index.put(offset, offset)
        plain[offset] = offset
    offsets = sorted(plain)
    assert len(index) == len(plain)
    for _ in range(300):
        first, last = sorted((random.randrange(-5, 20_005), random.randrange(-5, 20_005)))
        assert list(index.between(first, last)) == [one for one in offsets if first <= one <= last]
        assert list(index.down_from(last)) == [one for one in reversed(offsets) if one < last]
        assert index.below(first) == max((one for one in offsets if one < first), default=None)
    taken = index.take_lowest(100)
    assert taken == offsets[: len(taken)]
    assert list(index.between(0, 20_000)) == offsets[len(taken) :]


def test_stretches_are_a_set_of_offsets() -> None:
    random, known, plain = Random(4), KnownOffsets(), set[int]()
    for _ in range(400):
        first = random.randrange(3000)
        last = first + random.randrange(-1, 8)
        known.add(first, last)
        plain |= set(range(first, last + 1))
    for _ in range(2000):
        first = random.randrange(3000)
        last = first + random.randrange(12)
        assert known.holds(first, last) == (set(range(first, last + 1)) <= plain)


def test_exchanges_of_one_moment_are_held_within_memory() -> None:
    """With all times the same none would ever be due."""
    verifier = Verifier(VerifyTerms(view="clients", memory=100 * FACT_SIZE))
    for number in range(200):
        history = History(known=False, compacted=None)
        history.write(5, batch(b"%d" % number, at=number), number)
        verifier.take(history.pairs[0].front, None)
        assert clients_view(verifier).order.weight <= 100
    verdict = verifier.verdict()
    assert verdict.counts["acknowledged writes"] == 200
    assert clients_view(verifier).order.weight == 0


def test_an_answer_that_passes_over_much_costs_no_more() -> None:
    """Of what is known at the offsets that an answer passes over, so many batches are looked at."""
    history = History()
    for number in range(3):
        history.write(1 + number, batch(b"%d" % number, at=number), number)
    verifier = Verifier(VerifyTerms(view="clients"))
    known = clients_view(verifier).state.partitions[PartitionPlace("orders", 0)].batches
    looked = 0

    class Counted(KnownBatch):
        def __getattribute__(self, name: str) -> object:
            nonlocal looked
            looked += name == "written"
            return super().__getattribute__(name)

    for offset in range(10, 60_000):
        known.put(offset, Counted(BatchFact(offset, 0, BatchIdentity(1, 1, -1, -1, -1), 0, 0, 0)))
    history.read(10, 0, (70_000, batch(b"behind")), high=80_000)
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    verifier.verdict()
    assert looked < 10_000


def test_every_map_of_a_check_is_within_the_memory() -> None:
    """Maps of checks share a room: what one of them drops is told, and none grows beside it."""
    view = ViewVerifier("clients", VerifyTerms(), 1 << 20)
    for check in view.checks:
        maps = [one for one in vars(check).values() if isinstance(one, BoundedMap)]
        assert maps == check.maps, check
        assert all(one.budget is view.state.budget and one.weigh is not None for one in maps), check
    assert {view.state.topics.by_name.budget, view.state.markers.by_producer.budget} == {view.state.budget}


def test_what_does_not_fit_is_not_checked() -> None:
    """However much of one kind there is, it stays within the memory, and no check says that all was clean."""
    verifier = Verifier(VerifyTerms(view="clients", memory=1 << 16, assume_complete=True))
    for number in range(40):
        who = Somebody(number + 10, client_port=2000 + number, client_id=f"client {number}")
        history = History(known=False, compacted=None)
        offers = [{"api_key": key, "min_version": 0, "max_version": 20} for key in range(50)]
        history.add(20 * number, "ApiVersions", 2, {}, {"api_keys": offers}, who=who)
        data = batch(b"a", producer=(number, 0, 0), transactional=True)
        history.read(20 * number + 1, number, (number, data), committed=True, who=who)
        parts = [{"partition_index": number, "committed_offset": 1}]
        request = {
            "group_id": "g",
            "generation_id_or_member_epoch": 1,
            "topics": [{"name": TOPIC, "partitions": parts}],
        }
        told = {"topics": [{"name": TOPIC, "partitions": [{"partition_index": number}]}]}
        history.add(20 * number + 2, "OffsetCommit", 8, request, told, who=who)
        for pair in history.pairs:
            verifier.take(pair.front, pair.behind)
    verdict = verifier.verdict()
    (view,) = verifier.views
    assert view.state.budget.used <= (1 << 14) + 10_000, "one entry may be beyond"
    for check in ("aborted-read", "unsupported-version", "skipped-input", "commit-goes-back"):
        assert "for want of memory" in verdict.not_checked[check]
    assert "not all of it was remembered, for want of memory" in verdict.incomplete


def sequence(number: int) -> bytes:
    """Return a batch of producer 7 with this sequence."""
    return batch(b"%d" % number, producer=(7, 0, number), at=number)


def test_refused_reads_of_partition_are_bounded() -> None:
    history = History()
    history.write(1, batch(*(b"%d" % number for number in range(2 * MOST_REFUSED_READS))), 0)
    for number in range(2 * MOST_REFUSED_READS):
        history.refused_read(2 + number / 100, number)
    history.read(3, 0)
    (finding,) = history.verdict().findings
    assert (finding.check, finding.times) == ("out-of-range", MOST_REFUSED_READS)


def test_sequence_gaps_of_producer_are_bounded() -> None:
    history = History()
    for number in range(2 * MOST_GAPS):
        history.write(1 + number, sequence(2 * number), number)
    verdict = history.verdict()
    assert [(one.check, one.times) for one in verdict.findings] == [("sequence-gap", MOST_GAPS)]
    assert "for want of memory" in verdict.not_checked["sequence-gap"]


@pytest.mark.parametrize("name", ["MOST_SENT", "MOST_REFUSED", "MOST_UNWRITTEN"])
def test_sent_batches_beyond_bound_prove_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten write must not make its batch a phantom record."""
    monkeypatch.setattr(stored_batches, name, 3)
    history = History()
    for number in range(6):
        history.write(1 + number, sequence(number), number)
    for number in range(6):
        history.write(8 + number, batch(b"%d" % number), -1, error=10)
    history.read(
        20, 0, *((number, sequence(number)) for number in range(6)), *((6 + n, batch(b"%d" % n)) for n in range(6))
    )
    verdict = history.verdict(assume_complete=True)
    assert "proved" not in {one.level for one in verdict.findings}
    assert "for want of memory" in verdict.not_checked["phantom-record"]


def test_attempts_beyond_bound_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten attempt must not make the offset of its retry a violation."""
    monkeypatch.setattr(durability, "MOST_ATTEMPTS", 2)
    history = History()
    for number in range(4):
        history.write(1 + number / 10, sequence(number), None, who=Somebody(10 + number))
    history.write(2, batch(b"acknowledged"), 9, who=Somebody(20))
    history.write(3, sequence(0), 0)
    verdict = history.verdict(assume_complete=True)
    assert "proved" not in {one.level for one in verdict.findings}
    assert "for want of memory" in verdict.not_checked["realtime-order"]


def test_commits_of_many_open_transactions_are_bounded() -> None:
    """Nothing decides them: the partition is not checked any more, and the verdict says so."""
    history = History()
    for number in range(400):
        history.txn_commit(1 + number / 100, number, 7)
    for number in range(100):
        history.txn_commit(6 + number / 100, 1000 + number, 8, number)
        history.end(6.005 + number / 100, 8, number, commit=False, version=5)
        history.told(6.007 + number / 100, 5000 + number)
    verifier = Verifier(VerifyTerms(view="clients", assume_complete=True))
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    verdict = verifier.verdict()
    (check,) = [one for one in clients_view(verifier).checks if isinstance(one, CommitsCheck)]
    (known,) = check.committed.values()
    assert len(known.open) <= MOST_OPEN and len(known.aborted) <= MOST_ABORTED
    assert len(known.unexplained) <= MOST_REPORTED
    assert len(check.transactions[7]) <= MOST_PENDING
    assert "for want of memory" in verdict.not_checked["lost-commit"]


def test_gifts_of_one_members_partitions_are_bounded() -> None:
    history = History()
    numbers = list(range(2 * MOST_DOUBTED))
    heartbeat(history, 1, "m1", [], numbers, epoch=0)
    heartbeat(history, 2, "m2", [], numbers, epoch=0)
    verifier = Verifier(VerifyTerms(view="clients"))
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    verdict = verifier.verdict()
    (check,) = [one for one in clients_view(verifier).checks if isinstance(one, BrokerGroupsCheck)]
    assert len(check.members["g", "m1"].doubted) == MOST_DOUBTED
    assert "for want of memory" in verdict.not_checked["two-owners"]


def test_deletions_of_one_group_are_bounded() -> None:
    """With more of them, each may explain an offset."""
    history = History()
    for number in range(2 * MOST_DELETIONS):
        deleted = {"results": [{"group_id": "g", "error_code": 0}]}
        history.add(1 + number, "DeleteGroups", 2, {"groups_names": ["g"]}, deleted, who=PRODUCER)
    history.commit(60, 5)
    history.told(61, -1)
    verifier = Verifier(VerifyTerms(view="clients", assume_complete=True))
    for pair in history.pairs:
        verifier.take(pair.front, pair.behind)
    assert verifier.verdict().findings == []
    (check,) = [one for one in clients_view(verifier).checks if isinstance(one, CommitsCheck)]
    assert len(check.groups["g"].deletions) == MOST_DELETIONS
