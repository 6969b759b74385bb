"""Verification of request events: the same findings as from frames, as far as events tell; what they do not is open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kproxy.cli.verify_input import over
from kproxy.record.audit.request_event import request_event
from kproxy.record.captures.pairs import BothSides
from kproxy.record.events.schema import MOST_BATCHES
from kproxy.record.filters import EventView, ViewedEvent
from kproxy.tools.verify import Verdict, Verifier, VerifyTerms, checks, verify
from tests.tools.verify.cases.table import Case, cases
from tests.tools.verify.history import TOPIC, History, batch, marker
from tests.tools.verify.model import Model
from tests.tools.verify.test_model import BROKEN, STEPS

HISTORIES = 30 if os.environ.get("KPROXY_TEST_ALL") else 2
OPEN = {name for name, check in checks().items() if check.events}
Places = dict[tuple[str, str], str]


def events(pairs: Iterable[BothSides]) -> list[EventView]:
    """Return the request events of exchanges, as the audit writes them."""
    return [EventView(request_event(pair.front, float)) for pair in pairs if pair.front is not None]


def judged(found: Iterable[Any], **terms: Any) -> Verdict:
    return verify(found, VerifyTerms(**({"view": "clients", "level": "note"} | terms)))


def places(verdict: Verdict) -> Places:
    """Return the level of each finding that events, too, could show."""
    return {(one.check, one.about): one.level for one in verdict.findings if one.check not in OPEN}


@pytest.mark.parametrize("broken", BROKEN)
def test_events_show_what_frames_show(broken: str) -> None:
    """At the same places; never more surely, as events do not tell which topics are compacted, nor times of batches."""
    shown = tried = 0
    for seed in range(60):
        model = Model(seed, broken)
        pairs = model.run(STEPS)
        if not model.spoilt:
            continue
        if tried == HISTORIES:
            break
        tried += 1
        by_frames, by_events = places(judged(pairs)), places(judged(events(pairs)))
        assert by_events.keys() == by_frames.keys(), seed
        assert all(level in (by_frames[place], "suspect") for place, level in by_events.items()), seed
        shown += len(by_events)
    assert tried == HISTORIES and (shown or broken in OPEN)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_lawful_histories_prove_nothing(seed: int) -> None:
    """Nor do parts of them."""
    pairs = Model(seed).run(STEPS)
    for kept in (pairs, pairs[::2], pairs[len(pairs) // 2 :]):
        assert [one for one in judged(events(kept)).findings if one.level == "proved"] == []


def test_what_events_do_not_tell_is_not_checked() -> None:
    """Each check that needs more says what; and no figure is told of what is not known."""
    verdict = judged(events(Model(0).run(STEPS)))
    assert {name for name, why in verdict.not_checked.items() if why.startswith("request events do not tell")} == OPEN
    assert not OPEN & set(verdict.clean)
    assert "transactions" not in verdict.counts
    assert verdict.counts["acknowledged writes"] > 0


def test_times_that_events_do_not_tell_are_a_doubt() -> None:
    """A broker that mends the highest time of a batch makes its checksum anew; batches may be alike by chance."""
    history = History()
    history.write(1, batch(b"a"), 0)
    history.read(2, 0, (0, batch(b"a", at=1)))
    history.write(3, batch(b"b"), None)
    history.write(3.1, batch(b"b"), 1)
    history.read(4, 1, (1, batch(b"b")), (2, batch(b"b")))
    found = {one.check: one for one in judged(events(history.pairs)).findings}
    assert "times" in found["inconsistent-offset"].doubts
    assert "times" in found["duplicate"].doubts
    assert "times" not in {one.check: one.doubts for one in judged(history.pairs).findings}["duplicate"]


def test_more_batches_than_an_event_tells() -> None:
    """What is not told is no gap in the log, and nobody has committed beyond it."""
    history = History()
    for number in range(MOST_BATCHES + 8):
        history.write(1 + number / 100, batch(b"%d" % number), number)
    history.read(3, 0, *((number, batch(b"%d" % number)) for number in range(MOST_BATCHES + 8)))
    history.commit(4, MOST_BATCHES + 8)
    history.commit(5, MOST_BATCHES + 9)
    assert places(judged(events(history.pairs))) == {("commit-beyond", f"group g, {TOPIC}[0]"): "suspect"}


def test_more_aborted_transactions_than_an_event_tells() -> None:
    """Whose data is aborted is not known then."""
    history = History()
    data = batch(b"x", producer=(7, 0, 0), transactional=True)
    listed = (*((producer, 0) for producer in range(100, 100 + MOST_BATCHES)), (7, 0))
    history.read(1, 0, (0, data), (1, marker(7, 0, commit=False)), committed=True, aborted=listed)
    assert "aborted-read" not in {one.check for one in judged(events(history.pairs)).findings}
    history.read(2, 0, (0, data), (1, marker(7, 0, commit=False)), committed=True)
    assert "aborted-read" in {one.check for one in judged(events(history.pairs)).findings}


def test_answers_that_were_not_read() -> None:
    """Are counted; a write of which they would tell is none."""
    history = History()
    history.write(1, batch(b"a"), 0)
    history.write(2, batch(b"b"), 0)
    told = [one.data | {"decode_error": "response: withheld"} if one.data["api"] == "Produce" else one.data
            for one in events(history.pairs)]  # fmt: skip
    verdict = judged(map(EventView, told))
    assert verdict.findings == []
    assert "2 Produce were not kept" in verdict.incomplete
    assert verdict.not_checked["offset-given-twice"].startswith("2 of 2 Produce are not kept")


HOSTILE: list[ViewedEvent] = [
    {},
    {"api": "Produce", "api_key": 0, "acks": -1, "request_in": "soon", "response_out": "9999999-01-01"},
    {"api": "Fetch", "api_key": 1, "request_in": "0001-01-01T00:00:00", "response_out": "0001-01-01T00:00:00"},
    {"api": "Fetch", "api_key": 1, "topics": [None, {"topic": "t"}, {"topic": "t", "partitions": [None, {}]}]},
    {"api": "Fetch", "api_key": 1, "isolation": 1, "topics": [{"topic": "t", "partitions": [
        {"partition": 0, "high_watermark": 1 << 80, "batches": 1, "batches_detail": [None, {}, {"crc": -5}],
         "aborted": [None, {}], "last_offset": 1 << 70, "fetch_offset": -7}]}]},
    {"api": "Produce", "api_key": 0, "acks": 1 << 70, "topics": [{"topic": "t" * 10**6, "partitions": [
        {"partition": 1 << 70, "batches": 1, "records": 1 << 60, "crc": 1, "attributes": 0, "base_offset": 1 << 62}]}]},
    {"api": "OffsetCommit", "api_key": 8, "group": "g" * 10**6, "topics": [{"topic": "t", "partitions": [
        {"partition": 0, "committed_offset": 5, "error": "NONSENSE"}]}]},
    {"api": "InitProducerId", "api_key": 22, "transactional_id": "t", "producer_id": 1 << 70, "producer_epoch": 1},
]  # fmt: skip


def test_hostile_events() -> None:
    """Whatever their columns hold, within their types, nothing is raised and nothing found."""
    times = {"request_in": "2026-11-24T10:00:00Z", "response_out": "2026-11-24T10:00:01Z"}
    rows = [times | dict(one) for one in HOSTILE]
    verdict = judged(map(EventView, rows + [one | {"api_key": key} for one in rows for key in range(30)]))
    assert verdict.findings == []


def test_clusters_are_apart() -> None:
    """Topics, groups and producer ids of two clusters have nothing to do with each other, by frames or by events."""
    history = History()
    history.init(1, 7, 5)
    history.write(2, batch(b"a", producer=(7, 5, 0), transactional=True), 0)
    theirs = History()
    theirs.write(3, batch(b"b", producer=(7, 0, 0), transactional=True), 0)
    both = [*history.pairs, *theirs.pairs]
    assert {one.check for one in judged(both).findings} >= {"zombie-write", "offset-given-twice"}
    for pair in theirs.pairs:
        if pair.front is not None:
            pair.front.who = replace(pair.front.who, cluster="other")  # type: ignore[type-var]
    assert judged(both).findings == judged(events(both)).findings == []

    theirs.write(4, batch(b"c"), 0)
    (finding,) = judged([*history.pairs, *theirs.pairs]).findings
    assert finding.about == f"{TOPIC}[0] of main"


def test_clusters_share_the_memory() -> None:
    """And beyond so many they are counted only."""
    verifier = Verifier(VerifyTerms(view="clients", memory=1 << 30))
    history = History(known=False, compacted=None)
    history.write(1, batch(b"a"), 0)
    (told,) = events(history.pairs)
    for number in range(20):
        verifier.take_event({**told.data, "cluster": f"c{number}"})
    most = sum(view.state.partitions.most for view in verifier.views)
    alone = Verifier(VerifyTerms(view="clients", memory=1 << 30))
    alone.take_event(told.data)
    assert most <= alone.views[0].state.partitions.most
    assert "4 exchanges of other clusters than the first 16" in verifier.verdict().incomplete


@pytest.mark.parametrize("case", [case for case in cases() if case.level is None], ids=lambda case: case.name)
def test_events_of_lawful_histories_prove_nothing(case: Case) -> None:
    history = case.history()
    history.close()
    verdict = judged(events(sorted(history.pairs, key=over)), **case.terms)
    assert [one for one in verdict.findings if one.level == "proved"] == []


@pytest.mark.parametrize(
    "name",
    [
        "a_refused_read_of_an_acknowledged_record", "a_later_write_with_a_lower_offset",
        "a_denied_batch_that_is_stored", "a_record_that_nobody_has_written",
        "a_refused_batch_that_a_producer_passes_over", "a_record_that_a_later_response_passes_over",
    ],
)  # fmt: skip
def test_events_of_broken_log_show_its_check(name: str) -> None:
    case = next(case for case in cases() if case.lived.__name__ == name)
    verdict = judged(events(case.history().pairs), **case.terms)
    assert set(case.checks) <= {one.check for one in verdict.findings}
