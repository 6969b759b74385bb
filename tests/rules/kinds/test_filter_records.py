"""filter_records: what is withheld, and what is left in its place."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.records import Batch, Producer, Record, decode, encode_batch, entries
from kproxy.rules.exchange import Facts

RULE = "kind: filter_records\nmatch: {topic: orders, records: value.region == EU}"
EU, US = '{"region": "EU"}', '{"region": "US"}'


def test_every_format_loses_matching_records(carried: Any, form: dict[str, int]) -> None:
    talk = carried(RULE)
    after = talk.fetched(talk.batch(EU, US, EU, US, **form))["records"]

    assert talk.read(after) == [(6, US), (8, US)]
    assert (talk.rule.matched, talk.rule.applied, talk.rule.problems) == (1, 1, 0)


@pytest.mark.parametrize("codec", range(5))
def test_emptied_batch_keeps_its_offsets(carried: Any, codec: int) -> None:
    """Control batches stay, and a batch without records has no codec."""
    talk = carried(RULE)
    more = {"producer": Producer(9, 1, 30, True), "partition_leader_epoch": 4}
    control = encode_batch([Record(7, 0, None, b"")], control=True)
    before = talk.batch(EU, EU, codec=codec, **more)
    empty, kept, control_after = entries(talk.fetched(before + talk.batch(US, first=9) + control)["records"])

    assert isinstance(empty, Batch) and isinstance(control_after, Batch)
    assert (empty.base_offset, empty.last_offset, empty.count, empty.codec) == (5, 6, 0, 0)
    assert (empty.producer_id, empty.base_sequence, empty.is_transactional) == (9, 30, True)
    assert [one.value for one in decode(kept)] == [US.encode()]
    assert bytes(control_after.raw) == control


@pytest.mark.parametrize(
    ("data", "withheld", "passed"),
    [
        (encode_batch([Record(5, 0, None, b"{bad"), Record(6, 0, None, US.encode())]), [6], [5, 6]),
        (encode_batch([Record(5, 0, None, US.encode())], codec=4)[:-1] + b"?", [], [5]),
        (encode_batch([Record(5, 0, None, US.encode())])[:-4], [], []),
    ],
    ids=["json", "codec", "cut"],
)
def test_unreadable_records_are_withheld(carried: Any, data: bytes, withheld: list[int], passed: list[int]) -> None:
    """Unless the rule lets them pass."""
    for rule, expected in ((RULE, withheld), (RULE + "\non_unreadable: pass", passed)):
        after = carried(rule).fetched(data)["records"] or b""
        if "pass" not in rule:
            assert data not in bytes(after)
            assert [one.offset for entry in entries(after) for one in decode(entry)] == expected
        else:
            assert bytes(after) == data


def test_unknown_principal_is_limited(carried: Any) -> None:
    """A client that has not authenticated does not match `not`."""
    talk = carried(RULE + '\nnot: {principal: "eu-*"}')
    assert talk.read(talk.fetched(talk.batch(EU, US))["records"]) == [(6, US)]

    facts = Facts("main", "main", "10.0.0.1", certificate="eu-1")
    talk = carried(RULE + '\nnot: {principal: "eu-*"}', facts=facts)
    assert talk.read(talk.fetched(talk.batch(EU, US))["records"]) == [(5, EU), (6, US)]


def test_dry_run_withholds_nothing(carried: Any) -> None:
    talk = carried(RULE + "\nmode: dry_run")
    data = talk.batch(EU, US)

    assert talk.fetched(data)["records"] == data
    assert (talk.rule.fired, talk.rule.applied) == (1, 0)


def test_rules_by_client_warn_about_share_groups(hand: Any, mistakes_of: Any) -> None:
    text = "kind: filter_records, match: {topic: t, records: keyless%s}%s"
    assert any("share groups" in one for one in hand.rule(text % (", client_id: a", "")).warnings())
    for more in ("", ", client_id: a, api: Fetch"):
        assert not any("share groups" in one for one in hand.rule(text % (more, "")).warnings())
    assert "expected one of fetch" in " ".join(mistakes_of("kind: filter_records, at: produce"))
