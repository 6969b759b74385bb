"""Notes at packets, from files that anybody may have written."""

from __future__ import annotations

import pytest

from kproxy.record.captures.captured_connection import packet_note
from kproxy.record.captures.pcapng import note, read_note


def test_what_is_known_is_taken() -> None:
    """All names with their types; names from the future are passed over."""
    said = {"connection": 7, "node": 0, "who": {"principal": "User:a"}, "acks": 0, "rules": ["a"], "withheld": "x",
            "responder": "kproxy", "rule_wait": [1, 0.5], "outcome": "closed"}  # fmt: skip
    assert {**said, "rule_wait": (1.0, 0.5)} == packet_note(note(**said, future={"a": 1}))
    assert {} == packet_note("") == packet_note("somebody's comment")


@pytest.mark.parametrize(
    "comment",
    ["kproxy", "kproxy ", "kproxy {", "kproxy []", 'kproxy {"connection": "x"}', 'kproxy {"who": 3}',
     'kproxy {"rule_wait": 5}', 'kproxy {"rule_wait": [1]}', 'kproxy {"rules": "a"}', 'kproxy {"outcome": "answered"}',
     'kproxy {"node": 1.5}', 'kproxy {"acks": null}'],
)  # fmt: skip
def test_what_has_other_types_says_nothing(comment: str) -> None:
    """It is passed over as a whole, and nothing is raised."""
    assert {} == packet_note(comment)


@pytest.mark.parametrize("known", ["x", "who"])
def test_what_is_nested_without_end_says_nothing(known: str) -> None:
    """As deep as a comment can be; readers of JSON raise RecursionError for that."""
    comment = f'kproxy {{"{known}": ' + "[" * 60_000

    assert {} == packet_note(comment) == read_note(comment)


def test_a_name_that_is_no_text() -> None:
    """What a client calls itself may be any bytes; a note is UTF-8 all the same."""
    said = note(who={"software_name": "lib\udcba\udcff"}, principal="\udcbaä")

    assert {"who": {"software_name": "lib??"}, "principal": "?ä"} == packet_note(said.encode().decode())
