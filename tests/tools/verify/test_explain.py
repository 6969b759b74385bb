"""Explanations of findings by their records: missing, added, changed, reordered and shifted ones."""

from __future__ import annotations

import pytest

from kproxy.tools.verify import VerifyTerms, explain, verify
from kproxy.tools.verify.explain import SeenRecord, differences
from tests.tools.verify.history import History, batch, thinned


def details(history: History, check: str) -> list[str]:
    """Return what is said of the records of the finding of this check."""
    verdict = verify(history.pairs, VerifyTerms(level="note"))
    explain(verdict, history.pairs)
    return next(one for one in verdict.findings if one.check == check).details


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (batch(b"b", b"a", b"c"), ["reordered: the same 3 records, in another order"]),
        (batch(b"a", b"x", b"c"), ["changed at 6: value of the record with no key"]),
        (batch(b"a", b"c"), ["missing: 1 record, at 6 (no key, 1 byte)"]),
        (
            batch(b"a", b"a", b"b", b"c"),
            ["added: 1 record, at 5 (no key, 1 byte)", "shifted by +1: what is the same in both is at other offsets"],
        ),
    ],
)
def test_another_batch_is_compared_by_its_records(other: bytes, expected: list[str]) -> None:
    history = History()
    history.write(1, batch(b"a", b"b", b"c"), 5)
    history.read(2, 5, (5, other))
    assert details(history, "inconsistent-offset") == expected


def test_records_that_are_at_other_offsets_are_one_finding() -> None:
    """What one doubled record has moved is one finding, which says so."""
    history = History()
    data = [batch(b"%d" % number, at=number) for number in range(20)]
    for number, one in enumerate(data):
        history.write(number + 1, one, number)
    history.read(30, 0, (0, data[0]), *((number + 1, one) for number, one in enumerate(data)))
    verdict = verify(history.pairs)
    (finding,) = [one for one in verdict.findings if one.check == "inconsistent-offset"]
    assert finding.times == 19
    explain(verdict, history.pairs)
    assert "shifted by +1: what is the same in both is at other offsets" in finding.details


def test_what_is_lost_is_named() -> None:
    history = History()
    history.write(1, batch(b"a", b"bb"), 0)
    history.read(2, 0, (2, batch(b"c")))
    assert details(history, "lost-write") == ["missing: 2 records, at 0 (no key, 1 byte), 1 (no key, 2 bytes)"]


def test_what_was_taken_out_between_is_named() -> None:
    history = History()
    history.read(2, 0, (0, thinned(b"a", last=1)), behind=((0, batch(b"a", b"b")),))
    assert details(history, "thinned-batch") == ["missing: 1 record, at 1 (no key, 1 byte)"]


def test_the_same_records_in_another_batch() -> None:
    records = [SeenRecord(offset, None, b"%d" % offset, ()) for offset in range(3)]
    moved = [one._replace(offset=one.offset + 4) for one in records]
    assert list(differences(records, records)) == [
        "the same 3 records: their batch was made anew, and what producers wrote is unchanged"
    ]
    assert list(differences(records, moved)) == ["shifted by +4: the same 3 records at other offsets"]
