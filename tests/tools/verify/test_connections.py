"""Checks of connections: versions, leader epochs, sessions, and answers that belong to no request."""

from __future__ import annotations

from kproxy.tools.verify import Verifier, VerifyTerms
from tests.tools.verify.history import CONSUMER, History, batch

OFFER = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": 11} for key in (0, 1, 3)]}


def test_a_version_that_was_not_offered() -> None:
    history = History(known=False, compacted=None)
    history.add(1, "ApiVersions", 2, {}, OFFER)
    history.read(2, 0, version=11)
    assert history.findings() == {}
    history.read(3, 0, version=12)
    assert history.findings() == {"unsupported-version": "proved"}


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
    assert history.findings(complete=True) == {}


def test_answers_without_a_request() -> None:
    for complete, level in ((False, "suspect"), (True, "proved")):
        verifier = Verifier(VerifyTerms(complete=complete))
        for pair in History().pairs:
            verifier.take(pair.front, pair.behind)
        verdict = verifier.verdict()
        assert verdict.findings == []
        assert verdict.not_checked["answer-order"] == "kproxy closes such connections"
        verifier.strangers = 0
        assert "answer-order" in verifier.verdict().clean
        verifier.strangers = 2
        (finding,) = verifier.verdict().findings
        assert (finding.check, finding.level) == ("answer-order", level)


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
