"""Other ways to ask for what is denied: odd text, odd frames, twice, with more behind it, and rules that fail on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kproxy.protocol.framing import framed
from kproxy.rules.exchange import Decision
from kproxy.rules.kinds.deny import DenyEffect
from kproxy.rules.kinds.read_only import ReadOnlyEffect
from kproxy.rules.kinds.require import RequireEffect
from kproxy.tools.rehearse.dialogue import Dialogue, defaults, request, response

from .forbidden import request as asking

PRODUCE, METADATA, OFFSET_COMMIT, HEARTBEAT, API_VERSIONS = 0, 3, 8, 12, 18
SECRET = b"secret.x"
DENY = 'rules: [{name: r, kind: deny, match: {topic: "secret*"}}]'


def named(version: int = 9, *names: str) -> bytes:
    return request(METADATA, version, 1, topics=[{"name": name} for name in names])


def rules(kind: str, match: str) -> str:
    return f"rules: [{{name: r, kind: {kind}, match: {{{match}}}}}]"


GROUPS: list[tuple[str, bytes, bool]] = [
    ("a\N{REPLACEMENT CHARACTER}", b"a\xff", True),
    ("a\N{REPLACEMENT CHARACTER}*", b"a\xc0\xaf", True),
    ("gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n".encode(), True),
    ("gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n", b"gru\xcc\x88n", False),
    ("secret", b"Secret", False),
    ("*", b"\xed\xa0\x80", True),
    ("/[^a]+/", b"\xff\xfe", True),
]


@pytest.mark.parametrize(("pattern", "sent", "forbidden"), GROUPS)
def test_text_is_what_brokers_read_in_it(pattern: str, sent: bytes, forbidden: bool) -> None:
    """What is not UTF-8 becomes the replacement character, as in Java; nothing is folded or composed."""
    talk = Dialogue(rules("deny", f'group: "{pattern}"'))
    talk.client(request(HEARTBEAT, 3, 1, group_id=sent.decode("utf-8", "surrogateescape"), member_id="m"))

    assert (talk.to_broker == b"") == forbidden


def test_the_same_topic_twice_is_denied_twice() -> None:
    """In one request, beside an open one."""
    talk = Dialogue(DENY).client(named(9, "secret.x", "open.y", "secret.x", "open.y", "secret.x"))

    assert SECRET not in talk.to_broker and b"open.y" in talk.to_broker


@pytest.mark.parametrize("chunk", [0, 1])
def test_bytes_behind_a_request_open_nothing(chunk: int) -> None:
    """A frame that is longer than its message is judged by its message."""
    frame = named(9, "secret.x")[4:]
    talk = Dialogue(DENY).client(framed(frame + b"trailing secret"), chunk)

    assert SECRET not in talk.to_broker


def test_unknown_tags_hide_nothing() -> None:
    """In the header and in each element."""
    head = b"\x00\x03\x00\x09" + (1).to_bytes(4, "big") + b"\x00\x01x" + b"\x01\x63\x03abc"
    body = b"\x02" + b"\x09" + SECRET + b"\x01\x63\x01z" + b"\x01\x00\x00" + b"\x01\x62\x01z"
    talk = Dialogue(DENY).client(framed(head + body))

    assert SECRET not in talk.to_broker
    assert [topic["error_code"] for topic in answered(talk, 9)] == [29]


def answered(talk: Dialogue, version: int) -> list[dict[str, Any]]:
    talk.broker(response(METADATA, version, 1))
    topics: list[dict[str, Any]] = talk.responses((METADATA, version))[0].body["topics"]
    return topics


def test_a_frame_cut_short_does_not_pass() -> None:
    """Its size says less than its message is long: the connection ends, wherever it is cut."""
    frame = named(9, "open.y", "secret.x")[4:]
    for size in range(14, len(frame)):
        talk = Dialogue(DENY).client(framed(frame[:size]))
        assert SECRET not in talk.to_broker, size
        assert talk.to_broker == b"" or talk.closed is None, size


def test_lengths_that_lie_do_not_pass() -> None:
    """Each byte of a frame in turn becomes others: whatever is still a request names nothing that is denied."""
    frame = named(9, "secret.x")[4:]
    for at in range(10, len(frame)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF, frame[at] + 1 & 0xFF):
            talk = Dialogue(DENY).client(framed(frame[:at] + bytes((value,)) + frame[at + 1 :]))
            assert SECRET not in talk.to_broker, (at, value)


def test_a_write_without_an_answer_goes_nowhere() -> None:
    """acks 0: the open part goes on, the connection ends."""
    data = [{"name": name, "partition_data": [{"index": 0, "records": b"r"}]} for name in ("open.y", "secret.x")]
    talk = Dialogue(DENY).client(request(PRODUCE, 9, 1, acks=0, topic_data=data))

    assert SECRET not in talk.to_broker and b"open.y" in talk.to_broker
    assert talk.closed is not None


def test_a_client_that_says_no_name_is_not_let_through_by_what_it_is_called() -> None:
    """`not: {client_id: …}` and `require: client_id` are about clients that say so: null and empty are not."""
    for client_id in (None, "", "Audit", "audit ", "audit\x00", "*"):
        excluded = DENY.replace("}}]", "}, not: {client_id: audit}}]")
        talk = Dialogue(excluded).client(request(METADATA, 9, 1, client_id, topics=[{"name": "secret.x"}]))
        assert SECRET not in talk.to_broker, client_id
        required = "rules: [{name: r, kind: require, client_id: audit}]"
        talk = Dialogue(required).client(request(OFFSET_COMMIT, 5, 1, client_id, group_id="g"))
        assert talk.to_broker == b"", client_id


@pytest.mark.parametrize(
    ("kind", "effect"), [("deny", DenyEffect), ("read_only", ReadOnlyEffect), ("require", RequireEffect)]
)
def test_what_a_rule_fails_on_does_not_pass(monkeypatch: pytest.MonkeyPatch, kind: str, effect: Any) -> None:
    """It is counted and named, and the connection ends; under a rule in dry-run mode all passes."""

    def fail(*_: object) -> Sequence[Decision]:
        raise RuntimeError("never seen before")

    monkeypatch.setattr(effect, "on_request", fail)
    more = ", acks: all" if kind == "require" else ""
    data = [{"name": "secret.x", "partition_data": [{"index": 0, "records": b"r"}]}]
    frame = request(PRODUCE, 9, 1, acks=1, topic_data=data)
    written = f'rules: [{{name: r, kind: {kind}, match: {{topic: "secret*"}}{more}}}]'
    talk = Dialogue(written).client(frame)

    assert talk.to_broker == b"" and talk.closed is not None
    assert "never seen before" in talk.rules.live[0].problem
    assert Dialogue(written.replace("}}]", "}, mode: dry_run}]")).client(frame).to_broker in (frame, b"")


@pytest.mark.parametrize("version", [0, 4, 99])
def test_apis_that_are_not_shown_are_not_served(version: int) -> None:
    """Whatever version of ApiVersions a client asks with, Envelope and unknown APIs are not offered."""
    talk = Dialogue(DENY)
    asked = 0 if version == 99 else version
    talk.client(request(API_VERSIONS, asked, 1))
    offered = [{"api_key": key, "min_version": 0, "max_version": 30} for key in (3, 58, 500)]
    talk.broker(response(API_VERSIONS, asked, 1, api_keys=offered))
    (answer,) = talk.responses((API_VERSIONS, asked))

    assert {one["api_key"] for one in answer.body["api_keys"]} == {3}


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("key_type", [0, 1, 3, -1])
@pytest.mark.parametrize("role", ["group", "transactional_id"])
def test_a_coordinator_of_an_unknown_type_may_be_anybody_s(role: str, key_type: int, version: int) -> None:
    """A newer broker may know it: what is denied by name is denied as it, too."""
    typed: dict[str, Any] = {"key_type": key_type} if version else {}
    keys: dict[str, Any] = {"coordinator_keys": ["secret.x"]} if version > 3 else {"key": "secret.x"}
    body = defaults(10, version, "request") | typed | keys
    talk = Dialogue(rules("deny", f"{role}: 'secret*'")).client(asking(10, version, 1, body))
    known = {0: "group", 1: "transactional_id"}.get(key_type if version else 0)

    assert (SECRET in talk.to_broker) == (known not in (None, role))


@pytest.mark.parametrize("version", [7, 12])
def test_a_topic_without_a_name_is_none(version: int) -> None:
    """Brokers refuse a Fetch in which one is null; the rest of it is judged all the same."""
    named: list[str | None] = [None, "secret.x", None, "open.y"]
    topics = [{"topic": name, "partitions": [{"partition": 0}]} for name in named]
    for kind in ("deny", "read_only, offsets: true"):
        talk = Dialogue(rules(kind, "topic: 'secret*'"))
        talk.client(request(1, version, 1, session_epoch=0, topics=topics))
        assert talk.closed is None and (SECRET in talk.to_broker) == (kind != "deny")
