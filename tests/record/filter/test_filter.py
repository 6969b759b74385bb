"""Filters at work: every field and operator on literal exchanges, and what has to be kept for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kproxy.base.errors import FilterError
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.audit.request_event import request_event
from kproxy.record.exchange import Depth, Form, ObservedExchange
from kproxy.record.filters import READ_AT_ONCE, EventView, ExchangeView, Filter
from kproxy.record.observer.records import LIVE, OF_FILES, NotKept, records_of
from kproxy.rules.filter.exchange_fields import COLUMNS_AT_ONCE, FIELDS
from tests.support.exchange_factory import Somebody, exchange, orders
from tests.support.frames import produce_body
from tests.support.line_count import LineCount

PRODUCE: Mapping[str, Any] = {
    "connection": 7, "cluster": "main", "listener": "inner", "client_address": "10.1.2.3", "client_port": 5000,
    "node": 2, "broker": "kafka-2:9092", "principal": "alice", "software_name": "librdkafka",
    "software_version": "1.9.2", "client_id": "etl-1", "correlation_id": 17, "api": "Produce", "api_key": 0,
    "version": 9, "depth": "header", "outcome": "answered", "responder": "broker", "request_bytes": 2_000_000,
    "response_bytes": 80, "request_in": "2026-11-21T10:11:12.500000Z", "latency_ms": 250.5, "broker_ms": 240.0,
    "rule_ms": 5.0, "wait_ms": 0.5, "throttle_ms": 0, "rules": ["slow", "odd"], "error": "NOT_LEADER_OR_FOLLOWER",
    "errors": ["NOT_LEADER_OR_FOLLOWER", "INVALID_RECORD"], "acks": -1, "transactional_id": "pay-1",
    "producer_id": 4000, "total_records": 1200, "total_bytes": 1_900_000,
    "topics": [
        {"topic": "orders", "broker_topic": "prod.orders", "partitions": [
            {"partition": 0, "codec": "zstd", "base_offset": 10, "producer_id": 4001},
            {"partition": 3, "codec": "none"},
        ]},
        {"topic": "bills", "topic_id": "7f3a0000-0000-4000-8000-000000000001", "partitions": [{"partition": 1}]},
    ],
}  # fmt: skip
HEARTBEAT: Mapping[str, Any] = {
    "api": "Heartbeat", "version": 4, "outcome": "unanswered", "group": "billing", "member": "consumer-1-x",
    "instance": "w-3", "generation": 12, "decode_error": "Heartbeat v4 at byte 9: 3 bytes left",
}  # fmt: skip
CREATE: Mapping[str, Any] = {
    "api": "CreateTopics", "version": 7, "outcome": "closed", "responder": "kproxy", "request_bytes": 100,
    "resources": [{"type": "topic", "name": "new"}, {"type": "group", "name": "g9"}, {"type": "user", "name": "bob"}],
}  # fmt: skip


def holds(text: str, event: Mapping[str, Any]) -> bool:
    return Filter(text).holds(EventView(event))


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("api == Produce", PRODUCE), ("api in (Fetch, Produce)", PRODUCE), ("api ~ ^prod", PRODUCE),
        ("api != Fetch", PRODUCE), ("api !~ fetch", PRODUCE),
        ("version == 9", PRODUCE), ("version in (1, 9)", PRODUCE), ("version < 10", PRODUCE), ("version <= 9", PRODUCE),
        ("version > 8", PRODUCE), ("version >= 9", PRODUCE), ("version != 8", PRODUCE),
        ("topic == bills", PRODUCE), ("topic ~ ^ord", PRODUCE), ("topic != logs", PRODUCE), ("topic !~ log", PRODUCE),
        ("topic == new", CREATE), ("broker_topic ~ ^prod", PRODUCE), ("topic_id ~ ^7f3a", PRODUCE),
        ("partition == 3", PRODUCE), ("partition in (1, 9)", PRODUCE), ("partition > 2", PRODUCE),
        ("group == billing", HEARTBEAT), ("group == g9", CREATE), ("member ~ ^consumer-1", HEARTBEAT),
        ("instance == w-3", HEARTBEAT), ("generation >= 12", HEARTBEAT), ("transactional_id ~ pay", PRODUCE),
        ("resource == bob", CREATE), ("acks == all", PRODUCE), ("acks < 0", PRODUCE), ("correlation_id == 17", PRODUCE),
        ("time >= 2026-11-21T10:11", PRODUCE), ("time < 2026-11-21T10:11:12.6", PRODUCE),
        ("time <= 2026-11-21T10:11:12.500000Z", PRODUCE),
        ("client_id == etl-1", PRODUCE), ("principal == alice", PRODUCE), ('software ~ "^librdkafka 1"', PRODUCE),
        ("client_address == 10.0.0.0/8", PRODUCE), ("client_address in (10.9.9.9, 10.1.2.3)", PRODUCE),
        ("client_address != 192.168.0.0/16", PRODUCE), ("connection == 7", PRODUCE), ("node == 2", PRODUCE),
        ('broker ~ "^kafka-2:"', PRODUCE), ("cluster == main", PRODUCE), ("listener == inner", PRODUCE),
        ("error", PRODUCE), ("error == INVALID_RECORD", PRODUCE), ("error ~ not_leader", PRODUCE),
        ("error in (6, 7)", PRODUCE), ("error != UNKNOWN_SERVER_ERROR", PRODUCE),
        ("pending", HEARTBEAT), ("pending", CREATE), ("done", PRODUCE), ("outcome == closed", CREATE),
        ("latency > 250ms", PRODUCE), ("latency <= 0.2505s", PRODUCE), ("broker_time == 240ms", PRODUCE),
        ("not throttle", PRODUCE), ("throttle == 0ms", PRODUCE), ("size > 1MB", PRODUCE), ("size == 100", CREATE),
        ("request_bytes >= 2MB", PRODUCE), ("response_bytes < 100", PRODUCE), ("records > 1000", PRODUCE),
        ("bytes > 1MB", PRODUCE), ("codec == none", PRODUCE), ("codec in (lz4, zstd)", PRODUCE),
        ("codec != gzip", PRODUCE), ("producer_id == 4000", PRODUCE), ("producer_id == 4001", PRODUCE),
        ("offset == 10", PRODUCE), ("ruled", PRODUCE), ("rule == odd", PRODUCE), ("injected", CREATE),
        ("decode_error", HEARTBEAT),
        ("depth == header", PRODUCE), ("rule_time > 0ms", PRODUCE), ("wait_time < 1ms", PRODUCE),
        ("", HEARTBEAT), ("~k produce ~t orders", PRODUCE), ("~k fetch or ~q", CREATE), ("not ~k fetch", PRODUCE),
    ],
)  # fmt: skip
def test_a_filter_that_holds(text: str, event: Mapping[str, Any]) -> None:
    """And its opposite does not."""
    assert holds(text, event)
    assert not holds(f"not ({text})" if text else "not api", event)


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("topic == order", PRODUCE), ("topic != orders", PRODUCE), ("topic !~ ord", PRODUCE), ("group", PRODUCE),
        ("group == x", PRODUCE), ("throttle", PRODUCE), ("latency > 1s", PRODUCE), ("latency < 1s", HEARTBEAT),
        ("injected", PRODUCE), ("ruled", CREATE), ("pending", PRODUCE), ("decode_error", PRODUCE), ("error", CREATE),
        ("partition > 3", PRODUCE), ("api == Fetch", PRODUCE), ("time > 2026-11-22", PRODUCE), ("~k fetch ~q", CREATE),
        ("client_address == 10.0.0.0/8", CREATE), ("software ~ a", CREATE), ("size > 0", HEARTBEAT),
    ],
)  # fmt: skip
def test_a_filter_that_does_not_hold(text: str, event: Mapping[str, Any]) -> None:
    """What is absent is neither equal nor less; with != none of several may be equal."""
    assert not holds(text, event)


def test_what_is_absent_is_not_equal() -> None:
    """So `!=` and `!~` hold for it."""
    assert holds("group != x", PRODUCE)
    assert holds("topic !~ x", HEARTBEAT)


# ---- exchanges seen


def produced(*records: Record, form: Form = Form.WHOLE) -> ObservedExchange:
    return exchange("Produce", 9, produce_body("orders", records=encode_batch(records), acks=1), {}, form=form)


def judged(text: str, seen: ObservedExchange) -> bool:
    return Filter(text).holds(ExchangeView(seen, lambda seen: {"topics": [{"topic": "orders"}]}))


def test_header_facts_need_no_event() -> None:
    """They are read from the exchange itself, so that most exchanges cost little."""
    seen = exchange("Heartbeat", 4, {"group_id": "g"}, {}, who=Somebody(node=3, client_address="10.0.0.1"))

    def never(seen: ObservedExchange) -> Any:
        raise AssertionError("no event is needed")

    wanted = Filter(
        "~k heartbeat ~v 4 ~cl tester ~n 3 ~src 10.0.0.1 ~s ~c 1 ~size > 20 ~lat 20ms not (~mod ~inj ~e ~t x)"
    )
    assert wanted.holds(ExchangeView(seen, never))
    assert wanted.depth(12, 4) is Depth.SKETCH


def test_the_event_is_made_once() -> None:
    """Whatever many claims ask of it."""
    made: list[ObservedExchange] = []

    def make(seen: ObservedExchange) -> Mapping[str, Any]:
        made.append(seen)
        return PRODUCE

    view = ExchangeView(produced(), make)

    assert Filter("~t orders ~t bills ~p 3 ~codec none").holds(view)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~key ^user-1$", True), ("~key user-2", False), ("~val timeout", True), ("~val ^never", False),
        ('~h "^trace=abc$"', True), ("~h other", False), ("~keyless", True), ("~tomb", True),
        ("~key user ~t orders", True), ("~key user ~k fetch", False),
        ("headers == 1", True), ("header.trace == abc", True), ("header.trace != abc", False), ("age < 1h", True),
        ("timestamp < 1970-01-02", True), ("record_size == 9", True), ("structured", True), ("value.c == DE", True),
        ("value.c == DE and key.id == 1", False), ("value.c == FR and key.id == 1", True), ("value.c == NL", False),
        ("value.c == FR and not header.trace", True), ("value.c == DE and not header.trace", False),
        ("not header.trace", False), ("not value.c == NL", True), ("value.c != NL and value.c != BE", True),
        ("(value.c == DE or value.c == NL) and not key.id", True), ("value.c == DE and (~t bills or ~t orders)", True),
        ("schema or schema_id == 1 or subject == a", False),
    ],
)  # fmt: skip
def test_what_is_in_records(text: str, expected: bool) -> None:
    """Keys, values and headers as text and as JSON; conditions joined by `and` hold for one record."""
    seen = produced(
        Record(0, 0, b"user-1", None),
        Record(1, 0, None, b"a timeout"),
        Record(2, 0, b"k", b"v", (("trace", b"abc"),)),
        Record(3, 0, b'{"id": 1}', b'{"c": "FR"}'),
        Record(4, 0, b"d", b'{"c": "DE"}', (("trace", b"x"),)),
        Record(5, 0, b"", b'{"c": "D'),
    )

    assert judged(text, seen) is expected


def test_what_was_not_kept_cannot_be_judged() -> None:
    """It does not match, is counted, and it is said why; neither does its opposite match."""
    seen = produced(Record(0, 0, b"k", b"v"), form=Form.HEAD)
    for text in ("~key k", "not ~key k"):
        wanted = Filter(text)
        assert not wanted.holds(ExchangeView(seen, lambda seen: {}))
        assert (wanted.unknown, wanted.why) == (1, "of the request the beginning was kept")

    assert not Filter("~keyless").holds(EventView(PRODUCE))


def test_other_apis_have_no_records() -> None:
    """Nor has a Fetch without an answer: nothing needs to be kept to say so."""
    heartbeat = exchange("Heartbeat", 4, {"group_id": "g"}, {}, form=Form.HEAD)
    fetch = exchange("Fetch", 12, {}, None)

    assert (list(records_of(heartbeat)), list(records_of(fetch))) == ([], [])
    assert not judged("~keyless", heartbeat)


# ---- what has to be kept


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("", 0, Depth.COUNT), ("~k produce ~lat > 1s", 0, Depth.COUNT), ("~t x", 0, Depth.SKETCH),
        ("~k produce ~t x", 0, Depth.SKETCH), ("~k produce ~t x", 1, Depth.COUNT),
        ("~k produce or ~t x", 1, Depth.SKETCH), ("not ~k produce ~t x", 0, Depth.COUNT),
        ("~key x", 0, Depth.FULL), ("~k fetch ~key x", 0, Depth.COUNT), ("not (~k produce or ~t x)", 0, Depth.COUNT),
        ("~v 9 ~t x", 0, Depth.SKETCH), ("~v 8 ~t x", 0, Depth.COUNT), ("~t x", 999, Depth.SKETCH),
    ],
)  # fmt: skip
def test_how_much_has_to_be_kept(text: str, key: int, expected: Depth) -> None:
    """What an API's frames cannot match by its key and version alone, need not be kept of them."""
    assert Filter(text).depth(key, 9) is expected


def test_which_apis_are_possible() -> None:
    """By name, also of those that the table lacks."""
    assert Filter("~k produce").possible(0, 9)
    assert not Filter("~k produce").possible(1, 9)
    assert Filter("api ~ unknown").possible(999, 0)


def test_a_filter_is_written_in_the_long_form() -> None:
    assert str(Filter("~k produce ~t ^a !~q")) == "api == Produce and topic ~ ^a and not pending"
    assert (bool(Filter("")), bool(Filter("~q"))) == (False, True)
    assert (Filter("~key x").needs_records, Filter("~t x").needs_records) == (True, False)


def test_every_field_is_tried() -> None:
    """A new one has to have its case above."""
    marks = test_a_filter_that_holds.pytestmark + test_what_is_in_records.pytestmark  # type: ignore[attr-defined]
    tried = {claim.field for mark in marks for text, _ in mark.args[1] for claim in Filter(text).claims()}

    assert tried - {"key.id", "header.trace", "value.c"} == {field.name for field in FIELDS}


def test_columns_that_need_no_frame_are_those_that_views_read_in_place() -> None:
    """The table of fields and the view know the same ones."""
    assert READ_AT_ONCE.keys() == COLUMNS_AT_ONCE


def test_many_claims_about_many_values_are_bounded_together() -> None:
    """Each claim looks at each value; whoever asks chooses how many claims, and clients how many values."""
    topics = [{"name": f"t{number}", "partition_data": []} for number in range(1000)]
    seen = exchange("Produce", 8, {"acks": 1, "topic_data": topics}, {"responses": []})
    looked: list[int] = []

    class Counted(ExchangeView):
        def get(self, column: str) -> Any:
            looked.append(1000)
            return super().get(column)

    for text, judged in (("~t zz", True), (" or ".join(["~t zz"] * 100), False)):
        wanted = Filter(text)
        looked.clear()
        assert not wanted.holds(Counted(seen, lambda one: request_event(one, float, 1 << 31)))
        assert wanted.unknown == (not judged)
        assert sum(looked) < 50_000, "the rest of the claims is not asked"
    assert "20000 values" in wanted.why


def test_records_are_read_once_however_many_claims_ask() -> None:
    """As far as they are asked for; what cannot be told is told to each claim."""
    seen = exchange("Produce", 8, {"acks": 1, "topic_data": [{"name": "t", "partition_data": [
        {"index": 0, "records": orders(50)}]}]}, {"responses": []})  # fmt: skip
    view = ExchangeView(seen, lambda one: {})
    first = [one.spans.key(one.span) for one in view.records()]
    assert [one.spans.key(one.span) for one in view.records()] == first
    assert len(first) == 50
    assert next(iter(view.records())) is next(iter(view.records()))

    seen.request.data = b"cut"
    view = ExchangeView(seen, lambda one: {})
    for _ in range(2):
        with pytest.raises(NotKept, match="cannot be read"):
            list(view.records())


def test_while_traffic_passes_fewer_records_are_looked_at_than_in_files() -> None:
    """The event loop waits for a filter; what it did not look at is not judged, and said."""
    records = encode_batch([Record(number, 0, b"k", b"v") for number in range(9000)])
    topic = {"name": "t", "partition_data": [{"index": 0, "records": records}]}
    seen = exchange("Produce", 8, {"acks": 1, "topic_data": [topic]}, {"responses": []})
    live, of_file = Filter("~val nowhere"), Filter("~val nowhere")

    assert not live.holds(ExchangeView(seen, lambda one: {}))
    assert not of_file.holds(ExchangeView(seen, lambda one: {}, OF_FILES))
    assert (live.unknown, of_file.unknown) == (1, 0)
    assert f"more than {LIVE.records} records" in live.why


def test_filter_claims_are_limited() -> None:
    """One claim may have any number of values, and costs as much as a claim of one value."""
    with pytest.raises(FilterError, match="more than 100 claims"):
        Filter(" or ".join(["~t a"] * 101))
    names = ", ".join(f"t{number}" for number in range(400))
    topics = [{"name": f"x{number}", "partition_data": []} for number in range(1000)]
    seen = exchange("Produce", 8, {"acks": 1, "topic_data": topics}, {"responses": []})
    view = ExchangeView(seen, lambda one: request_event(one, float, 1 << 31))
    one, many = Filter("topic == t1"), Filter(f"topic in ({names})")
    spent = []
    for wanted in (one, many):
        wanted.holds(view)
        with LineCount() as count:
            wanted.holds(view)
        spent.append(count.total)
    assert spent[1] < 2 * spent[0]
    assert Filter(f"topic in ({names}, x7)").holds(view)
