"""The page about events: its lines are lines, and nothing is missing on it."""

from __future__ import annotations

import json
import re

import pytest
from jsonschema import Draft202012Validator

from kproxy.record.audit.lines import LONGEST
from kproxy.record.events.schema import EVENT_TYPES, LATENCY_BOUNDS_MS, json_schema
from tests.record.events.test_json_schema import DOCS
from tests.support.event_validation import mistakes

PAGE = (DOCS / "events.md").read_text()


@pytest.mark.parametrize("one", EVENT_TYPES, ids=lambda one: one.short)
def test_the_line_of_each_type(one: object) -> None:
    """Under each type's heading there is one line of it, and its table."""
    event_type = next(known for known in EVENT_TYPES if known is one)
    section = PAGE.split(f"## {event_type.name}\n")[1].split("\n## ")[0]
    (text,) = re.findall(r"^```json\n(.*)\n```$", section, re.MULTILINE)
    line = json.loads(text)
    assert line["type"] == event_type.name
    assert mistakes(event_type, line["data"]) == []
    Draft202012Validator(json_schema(event_type)).validate(line)
    assert f"<!-- table: kproxy.record.events.schema:{event_type.short.upper()}_EVENT -->" in section
    assert f"(events/{event_type.short}.schema.json)" in PAGE


def test_numbers_in_the_words_are_right() -> None:
    """The bounds of the latency buckets, and the longest text."""
    words = " ".join(PAGE.split())
    small = [str(bound) for bound in LATENCY_BOUNDS_MS if bound < 1000]
    large = [f"{bound / 1000:g}" for bound in LATENCY_BOUNDS_MS if bound >= 1000]
    assert f"{', '.join(small)} ms, {', '.join(large)} s, and longer" in words
    assert f"after {LONGEST} characters" in words
