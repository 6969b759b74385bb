"""Checks of logs: each with a history that breaks its guarantee, and a lawful one beside it."""

from __future__ import annotations

import pytest

from kproxy.protocol.records import Record, encode_batch
from kproxy.record.exchange import Form
from kproxy.tools.verify.options import MissingPart
from tests.support.exchange_factory import Somebody
from tests.tools.verify.history import NOW, History, batch, thinned

A, B, C = batch(b"a", b"aa"), batch(b"b", b"bb", at=1), batch(b"c", b"cc", at=2)
OTHER = Somebody(9, client_port=50009, client_id="writer")
"""The same client on another connection, as after one that was lost."""


def test_what_is_written_and_read_is_clean() -> None:
    history = History()
    history.write(1, A, 0)
    history.write(2, B, 2)
    history.read(3, 0, (0, A), (2, B))
    verdict = history.verdict()
    assert verdict.findings == []
    assert {"lost-write", "inconsistent-offset", "duplicate", "watermark-behind", "order"} <= set(verdict.clean)
    assert verdict.counts["acknowledged writes"] == verdict.counts["read afterwards"] == 2


def test_a_write_that_readers_do_not_get() -> None:
    """An answer that goes on behind an acknowledged batch without it has lost it, if the topic is not compacted."""
    for compacted, level in ((False, "proved"), (None, "suspect"), (True, None)):
        history = History(compacted=compacted)
        history.write(1, A, 0)
        history.write(2, B, 2)
        history.read(3, 0, (2, B))
        assert history.findings() == ({} if level is None else {"lost-write": level})


def test_below_the_beginning_of_the_log_nothing_is_lost() -> None:
    history = History()
    history.write(1, A, 0)
    history.read(3, 0, (2, B), start=2)
    history.write(4, A, 4, who=OTHER)
    history.read(5, 4, (6, C), version=4)  # does not tell where the log begins
    assert history.findings() == {"lost-write": "suspect"}
    assert history.findings(retention={"orders": 60.0}) == {"lost-write": "proved"}


def test_what_brokers_sent_was_not_compacted() -> None:
    """Where the broker's answer has it and the client's has not, somebody between took it, and the rule is named."""
    history = History(compacted=None)
    history.write(1, A, 0)
    history.read(2, 0, (2, B), behind=((0, A), (2, B)), rules=("thief",))
    (finding,) = history.verdict().findings
    assert (finding.check, finding.level, finding.view, finding.rules) == (
        "lost-write",
        "proved",
        "clients",
        ("thief",),
    )
    assert "thief" in finding.else_
    assert history.findings(view="brokers") == {}


def test_a_batch_that_the_broker_compresses_anew() -> None:
    """Headers do not tell whether its records are the same, so the check says that it did not look at all."""
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, batch(b"a", b"aa", codec=3)))
    verdict = history.verdict()
    assert verdict.findings == []
    assert "another form" in verdict.not_checked["inconsistent-offset"]


def test_a_batch_that_was_sent_again_without_idempotence() -> None:
    history = History()
    history.write(1, A, None)
    history.write(2, A, 2, who=OTHER)
    history.read(3, 0, (0, A), (2, A))
    (finding,) = history.verdict().findings
    assert (finding.check, finding.level) == ("duplicate", "suspect")
    assert "offsets 0 and 2: sent twice, acknowledged once" in finding.says
    assert "idempotence" in finding.else_


def test_a_batch_that_is_twice_for_an_unknown_reason() -> None:
    """One write may be missing in the record: an application may have sent equal records, and have heard of both."""
    history = History()
    history.create(0.05)
    history.write(2, A, 2)
    history.read(3, 0, (0, A), (2, A))
    assert history.findings() == {"duplicate": "suspect"}
    assert history.findings(assume_complete=True) == {"duplicate": "proved"}


def test_equal_batches_that_were_acknowledged_each() -> None:
    history = History()
    history.write(1, A, 0)
    history.write(2, A, 2)
    history.write(2.5, A, None)  # still on its way when it is read
    history.read(3, 0, (0, A), (2, A), (4, A))
    assert history.findings(assume_complete=True) == {"duplicate": "suspect"}
    history = History()
    history.write(1, A, 0)
    history.read(3, 0, (0, A), (2, A))
    history.write(2, A, 2, took=2)
    assert history.findings() == {}


def test_a_sequence_that_begins_again_behind_what_was_deleted() -> None:
    history = History()
    history.read(1, 0, (0, batch(b"a", producer=(7, 0, 0))))
    history.read(2, 5, (5, batch(b"b", producer=(7, 0, 0))), start=5)
    assert history.findings(without={"skipped-input"}) == {"duplicate-sequence": "suspect"}


def test_sequences_between_others_that_do_not_ascend() -> None:
    """Of a part of the log that is read last: what lies beside a batch is compared with it, whatever is between."""
    for middle, found in ((((4, 6), (6, 4)), {"order": "proved"}), (((4, 4), (6, 6)), {})):
        history = History()
        history.read(1, 0, (0, batch(b"a", producer=(7, 0, 0))), (9, batch(b"b", producer=(7, 0, 9))))
        theirs = [(offset, batch(b"%d" % sequence, producer=(7, 0, sequence))) for offset, sequence in middle]
        history.read(2, 4, theirs[0], (5, batch(b"other", producer=(8, 0, 0))), theirs[1])
        assert history.findings(without={"skipped-input"}) == found


def test_writes_of_a_connection_in_the_wrong_order() -> None:
    history = History()
    history.write(1, A, 2)
    history.write(2, B, 0)
    assert history.findings() == {"order": "proved"}
    history = History()
    history.write(1, A, 2, took=2)
    history.write(2, B, 0, took=2)
    assert history.findings() == {"order": "suspect"}
    history = History()
    history.write(1, A, 2)
    history.write(0.5, B, 0, took=2)
    assert history.findings() == {}


def test_a_batch_that_lacks_records() -> None:
    """The topic may have been compacted before, unless the record has its creation."""
    for compacted, levels in ((False, ("suspect", "proved")), (None, ("suspect", "suspect")), (True, (None, None))):
        for created, level in zip((False, True), levels, strict=True):
            history = History(compacted=compacted)
            if created:
                history.create(0.05)
            history.read(1, 0, (0, thinned(b"a", last=2)))
            assert history.findings(assume_complete=True) == ({} if level is None else {"thinned-batch": level})


def test_what_was_not_kept_is_not_checked() -> None:
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, A), form=Form.HEAD)
    history.read(3, 0, (0, A))
    verdict = history.verdict()
    assert verdict.findings == []
    assert "1 of 2 Fetch" in verdict.not_checked["lost-write"]
    assert "lost-write" not in verdict.clean
    assert any("not kept" in one for one in verdict.incomplete)


def test_what_the_reader_says_of_the_record_leaves_nothing_clean() -> None:
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, A))
    verdict = history.verdict(incomplete=[MissingPart("two gaps")])
    assert verdict.clean == []
    assert set(verdict.not_checked.values()) == {"two gaps"}


def test_only_and_without() -> None:
    history = History()
    history.write(1, A, 0)
    history.write(2, B, 1, who=OTHER)
    assert history.findings(only=frozenset({"order"})) == {}
    assert history.findings(without=frozenset({"offset-given-twice"})) == {}


def test_records_tell_what_headers_do_not() -> None:
    """Where a broker compresses anew, records are compared: what producers wrote is there, or it is not."""
    for other, found in (
        (batch(b"a", b"aa", codec=3), {}),
        (batch(b"a", b"ab", codec=3), {"inconsistent-offset": "proved"}),
    ):
        history = History()
        history.write(1, A, 0)
        history.read(2, 0, (0, other))
        assert history.findings() == {}
        assert history.findings(records=True) == found
    assert "inconsistent-offset" not in history.verdict(records=True).not_checked


def test_records_of_a_batch_in_the_wrong_order() -> None:
    records = [Record(offset, NOW, None, b"%d" % offset) for offset in (0, 2, 1)]
    history = History()
    history.read(1, 0, (0, encode_batch(records, last_offset_delta=2)))
    assert history.findings() == {}
    assert history.findings(records=True) == {"read-disorder": "proved"}


def test_share_fetch_of_a_write_counts_as_read() -> None:
    history = History()
    history.write(1, A, 0)
    history.share(2, (0, A), acquired=((0, 1),))
    assert history.verdict().counts["not read"] == 0


@pytest.mark.parametrize(
    ("sent", "found"),  # of batches of two records each at offsets 0, 2, 4 …: epoch and sequence
    [
        ([(0, 0), (0, 2), (0, 4)], {}),
        ([(0, 0), (0, 3)], {"sequence-gap": "suspect"}),
        ([(0, 5), (0, 7)], {}),
        ([(0, 0), (1, 0), (1, 2)], {}),
        ([(0, 0), (1, 2)], {"sequence-gap": "suspect"}),
        ([(0, (1 << 31) - 2), (0, 0)], {}),
        ([(0, (1 << 31) - 1), (0, 1)], {}),
        ([(0, -1), (0, -1)], {}),
        ([(0, 0), (-1, 2)], {}),
        ([(32767, 0), (32767, 2)], {}),
    ],
)
def test_sequence_gap_of_sequences_and_epochs(sent: list[tuple[int, int]], found: dict[str, str]) -> None:
    history = History()
    for number, (epoch, sequence) in enumerate(sent):
        history.write(1 + number, batch(b"a", b"%d" % number, producer=(7, epoch, sequence)), 2 * number)
    assert history.findings(assume_complete=True) == found


def test_refused_but_stored_by_a_rule_is_clean_at_brokers() -> None:
    """The broker has acknowledged the write, and a rule replaced its response with an error."""
    history = History()
    history.create(0.05)
    history.write(1, A, -1, error=29, behind=0, rules=("denied",))
    history.read(2, 0, (0, A))
    (finding,) = history.verdict(assume_complete=True).findings
    assert (finding.check, finding.level, finding.view) == ("refused-but-stored", "proved", "clients")
    assert 'rule "denied" fired' in finding.else_
    assert history.findings(assume_complete=True, view="brokers") == {}


def test_phantom_record_is_not_checked_unless_complete() -> None:
    history = History()
    history.write(1, A, 0)
    history.read(2, 0, (0, A))
    assert "--assume-complete" in history.verdict().not_checked["phantom-record"]
    assert "phantom-record" in history.verdict(assume_complete=True).clean
