"""A topic's name and its id in one element of a request: rules go by the id, as brokers do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import ZERO_UUID
from kproxy.protocol.table.shapes import shape
from kproxy.rules.document.read import parse_rules
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.rules.permissions import permissions
from kproxy.session.cluster import CORRELATION
from kproxy.session.rewrite.names.topic_ids import learn
from kproxy.tools.rehearse.dialogue import Dialogue, defaults, request, response

OPEN, SECRET, NOBODYS = UUID(int=0x0A), UUID(int=0x0B), UUID(int=0x0C)
DENY = """
rules:
  - {name: hidden, kind: deny, match: {topic: "secret.*"}}
"""
ALLOW = """
rules:
  - {name: only what is open, kind: deny, match: {topic: "*"}, not: {topic: "open.*"}}
"""
READ_ONLY = DENY.replace("deny", "read_only")
METADATA, UNKNOWN_TOPIC_ID, FORBIDDEN = 3, 100, 29


def with_both() -> Iterator[tuple[int, int]]:
    """Each API and version whose requests hold a topic's name and its id in one element."""
    for key in schema.paths():
        for version in schema.load(key).versions:
            form = shape(key, version)
            roles = [{role for role, _ in level.keys} for level in form.request]
            if any({"topic", "topic_id"} <= one for one in roles):
                yield key, version


def asked(key: int, version: int, *topics: dict[str, Any]) -> dict[str, Any]:
    """The body of a request about these topics, with one partition each."""
    level, *deeper = shape(key, version).request
    struct = layout.body(key, version, "request")
    fields = {slot.name: slot for slot in struct.slots}
    inner = fields[level.array].struct
    assert inner is not None
    elements = []
    for topic in topics:
        said = dict(zip(("topic", "topic_id"), (topic["name"], topic["topic_id"]), strict=True))
        element = inner.defaults()
        element |= {field: said[role] for role, field in level.keys if role in said}
        for below in deeper:
            part = next(slot for slot in inner.slots if slot.name == below.array)
            element[below.array] = [0] if part.struct is None else [part.default() or {}]
            if part.struct is not None:
                element[below.array] = [{slot.name: slot.default() for slot in part.struct.slots}]
        elements.append(element)
    return defaults(key, version, "request", **{level.array: elements})


def talking(rules: str) -> Dialogue:
    """A dialogue of a connection to a cluster whose ids are known, but for one."""
    talk = Dialogue(rules)
    memory = talk.session.context.cluster_memory
    learn(memory, OPEN.bytes, b"open.y")
    learn(memory, SECRET.bytes, b"secret.x")
    return talk


def say_all(talk: Dialogue) -> None:
    """The broker's answer to kproxy's own question for all topics."""
    topics = [{"name": "open.y", "topic_id": OPEN}, {"name": "secret.x", "topic_id": SECRET}]
    inner = layout.body(METADATA, 10, "response").everywhere()
    struct = next(slot.struct for slot in inner if slot.path == "topics[]")
    assert struct is not None
    blank = {slot.name: slot.default() for slot in struct.slots}
    talk.broker(response(METADATA, 10, CORRELATION, topics=[blank | one for one in topics]))


SPELLINGS = [
    ({"name": "open.y", "topic_id": SECRET}, False),
    ({"name": "open.y", "topic_id": NOBODYS}, False),
    ({"name": "secret.x", "topic_id": OPEN}, False),
    ({"name": "secret.x", "topic_id": SECRET}, False),
    ({"name": "secret.x", "topic_id": ZERO_UUID}, False),
    ({"name": "open.y", "topic_id": OPEN}, True),
    ({"name": "open.y", "topic_id": ZERO_UUID}, True),
]


@pytest.mark.parametrize("rules", [DENY, ALLOW], ids=["deny", "allow-list"])
@pytest.mark.parametrize(("topic", "passes"), SPELLINGS)
@pytest.mark.parametrize(("key", "version"), list(with_both()))
def test_who_is_denied_a_topic_cannot_name_another_with_its_id(
    key: int, version: int, topic: dict[str, Any], passes: bool, rules: str
) -> None:
    """In every message that has both: the id counts, an unknown one is refused, and so is one of another name."""
    talk = talking(rules)
    talk.client(request(key, version, 1, **asked(key, version, topic)))
    if topic["topic_id"] == NOBODYS:
        say_all(talk)
    assert permissions()[key].brokers_only or passes or talk.closed is None
    own = [one.header["correlation_id"] for one in talk.requests()].count(CORRELATION)
    foreign = [one for one in talk.requests() if one.header["correlation_id"] == 1]

    assert own == (topic["topic_id"] == NOBODYS)
    if passes and not permissions()[key].brokers_only:
        assert len(foreign) == 1 and b"open.y" in talk.to_broker
    else:
        sent = b"".join(str(one.body).encode() for one in foreign)
        assert b"secret.x" not in sent and str(SECRET).encode() not in sent and str(NOBODYS).encode() not in sent


def test_the_answer_shows_nothing_of_a_forbidden_id() -> None:
    """The example that got through: Metadata 12 with an open name and a secret id."""
    talk = talking(DENY)
    talk.client(request(METADATA, 12, 1, **asked(METADATA, 12, {"name": "open.y", "topic_id": SECRET})))
    (seen,) = talk.requests()
    talk.broker(response(METADATA, 12, 1))
    (answer,) = talk.responses((METADATA, 12))

    assert seen.body["topics"] == []
    assert [topic["error_code"] for topic in answer.body["topics"]] == [UNKNOWN_TOPIC_ID]


def test_whoever_may_only_read_deletes_nothing_by_another_name() -> None:
    """DeleteTopics 6 with an open name and a secret id."""
    talk = talking(READ_ONLY)
    talk.client(request(20, 6, 1, **asked(20, 6, {"name": "open.y", "topic_id": SECRET})))

    assert talk.to_broker == b""


@pytest.mark.parametrize("known", [True, False])
def test_a_name_without_an_id_is_judged_by_itself(known: bool) -> None:
    """The zero id says that there is none."""
    talk = talking(DENY)
    talk.client(
        request(METADATA, 12, 1, **asked(METADATA, 12, {"name": "open.y", "topic_id": OPEN if known else ZERO_UUID}))
    )

    assert len(talk.requests()) == 1 and talk.requests()[0].body["topics"][0]["name"] == "open.y"


def test_a_rule_that_forbids_an_id_alone_says_that_it_does_not_forbid_the_name() -> None:
    """When it loads, and in `kproxy check`."""
    written = f"rules: [{{name: r, kind: deny, match: {{topic_id: {SECRET}}}}}]"
    (rule,) = parse_rules(written).rules
    (other,) = parse_rules(DENY).rules

    assert isinstance(rule, LiveRule) and isinstance(other, LiveRule)
    assert [one.partition(" matches")[0] for one in rule.warnings()] == ["topic_id"]
    assert list(other.warnings()) == []
