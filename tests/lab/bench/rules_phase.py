"""CPU cost of rules: one exchange of a small Produce in the session alone, without sockets, with and without rules.

Most rules of a rule file do not match an exchange. The number of such rules must not change its cost.

A second case measures the work on the records of an uncompressed batch: spans against decoded records.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kproxy.protocol import Message
from kproxy.protocol.records import Batch, Record, decode, encode_batch, entries, rewrite
from kproxy.protocol.records.spans import OFFSET_DELTA, EntrySpans, Span
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import FETCH
from kproxy.rules.bodies import PartitionBody
from kproxy.rules.content.edits import MessageEdits, RecordBudget
from kproxy.rules.content.masks import NULL, Keep
from kproxy.rules.content.record_masks import FieldPath, RecordMasks, masked_records
from kproxy.rules.document.read import parse_rules
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange as RuleExchange
from kproxy.rules.exchange import Facts
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.kinds.base.record_selector import matching_records
from kproxy.rules.kinds.base.records_rule import RecordChanges
from kproxy.rules.rule_set import RuleSet
from kproxy.session.commands import Send
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.dialogue import request, response
from tests.lab.bench.rows import Rows

CASE = "rules: an exchange in the session"
NONE = "no rule"
QUOTA = "quota, not reached"
WAITS, FIRES = "error that waits for its turn", "error in the broker's place"
MANY = (1, 10, 100, 1000)
HERE = Facts("", "", "")
TOPIC = [{"name": "orders", "partition_data": [{"index": 0, "records": b"r" * 200}]}]
RENAME = {"name": "names", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}
ASK = request(0, 9, 1, acks=1, topic_data=TOPIC)
ROOM = 4096
"""Bytes of the buffer, many more than a frame here, as in `net`."""

Rule = Mapping[str, Any]


def error(number: int, **match: Any) -> Rule:
    return {"name": f"rule {number}", "kind": "error", "match": match, "error": 29}


def rule_sets() -> dict[str, Sequence[Rule]]:
    """By what they are called in the report."""
    found: dict[str, Sequence[Rule]] = {NONE: ()}
    for many in MANY:
        found[f"other API × {many}"] = [error(number, api="Fetch", topic=f"t{number}") for number in range(many)]
    for many in MANY:
        found[f"other topic × {many}"] = [error(number, api="Produce", topic=f"t{number}") for number in range(many)]
    for many in MANY:
        found[f"other client id × {many}"] = [
            {"name": f"rule {number}", "kind": "delay", "match": {"client_id": f"c{number}"}, "delay": "1s"}
            for number in range(many)
        ]
    for many in MANY[:3]:
        found[f"other glob × {many}"] = [error(number, api="Produce", topic=f"t{number}-*") for number in range(many)]
    mine = error(0, api="Produce", topic="orders")
    found["rename, matching"] = [RENAME]
    found[QUOTA] = [{"name": "q", "kind": "quota", "per": ["client_id"], "produce": "100GB/s"}]
    found[WAITS] = [{**mine, "when": {"nth": 1_000_000_000}}]
    found[FIRES] = [mine]
    found["error after the work"] = [{**mine, "at": "response"}]
    return found


class Exchange:
    """A session under some rules, fed with the same exchange over and over."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = parse_rules(json.dumps({"rules": rules})) if rules else RuleSet()
        bound = self.rules.bind(HERE)
        plan = Plan(ConnectionSettings.of(bound, advertise=False), bound.live)
        self.session = Session(plan, ClusterState(), HERE, 1, bound)
        self.now = 0.0
        name = "prod.orders" if RENAME in rules else "orders"
        say = response(0, 9, 1, responses=[{"name": name, "partition_responses": [{"index": 0, "base_offset": 7}]}])
        self.ask, self.say = ASK, say
        self.buffer = bytearray(ROOM)
        self.view = memoryview(self.buffer)

    def run(self, times: int) -> float:
        """CPU microseconds of one."""
        began = time.process_time()
        for _ in range(times):
            self.now += 0.001
            self.feed(self.session.from_client, self.ask)
            if self.session.inflight.fifo and self.session.inflight.fifo[0][1].key >= 0:
                self.feed(self.session.from_broker, self.say)
        return (time.process_time() - began) / times * 1e6

    def feed(self, take: Any, data: bytes) -> None:
        self.buffer[: len(data)] = data  # as a read does: the session may have changed what was there
        take(self.view, len(data), self.now)
        commands = self.session.commands
        for command in commands:
            if isinstance(command, Send) and command.token:
                self.session.sent(command.token, self.now)
        commands.clear()


RECORDS_CASE = "rules: a record of a batch"
SPANS, DECODED = "spans of 100 B", "decoded, 100 B"
FILTERED, REWRITTEN = "every other record, by spans, {}", "every other record, decoded, {}"
SELECTED, SEARCHED = "selected by a JSON path, 1 kB", "a tenth selected by a JSON path, 1 kB"
MASKED = "two fields of JSON masked, 1 kB"
HEADED, REHEADED = "add_header, {}", "a header more, decoded, {}"
SIZES = {"100 B": 100, "1 kB": 1000}
FETCH_VERSION = 12
COUNT = 1000
"""Records of the batch."""


def record_work() -> dict[str, Callable[[], object]]:
    """Work on one batch, by its name in the report."""
    batches: dict[str, Batch] = {}
    for name, size in SIZES.items():
        records = [Record(at, 1000 + at, b"key %d" % at, b"v" * size) for at in range(COUNT)]
        (entry,) = entries(encode_batch(records))
        assert isinstance(entry, Batch)
        batches[name] = entry

    def kept(spans: EntrySpans) -> Iterator[Span]:
        return (span for span in spans if span[OFFSET_DELTA] & 1)

    def filtered(batch: Batch) -> object:
        spans = EntrySpans(batch)
        return spans.write(kept(spans))

    def rewritten(batch: Batch) -> object:
        return rewrite(batch, [record for record in decode(batch, stored=True) if record.offset & 1])

    def reheaded(batch: Batch) -> object:
        added = (("x-client", b"bench"),)
        return rewrite(batch, [replace(record, headers=added) for record in decode(batch, stored=True)])

    found: dict[str, Callable[[], object]] = {
        DECODED: lambda: sum(1 for _ in decode(batches["100 B"])),
        SPANS: lambda: sum(1 for _ in EntrySpans(batches["100 B"])),
        SELECTED: select_work(0),
        SEARCHED: select_work(10),
        MASKED: mask_work(),
    }
    for name, batch in batches.items():
        found[REWRITTEN.format(name)] = lambda batch=batch: rewritten(batch)
        found[FILTERED.format(name)] = lambda batch=batch: filtered(batch)
        found[REHEADED.format(name)] = lambda batch=batch: reheaded(batch)
        found[HEADED.format(name)] = header_work(batch)
    return found


def select_work(every: int) -> Callable[[], object]:
    """Return the work of a condition on a partition of orders. `every`: distance of matching records (0: none)."""
    condition = RecordCondition("value.customer.country == DE")
    text = '{"id": %d, "customer": {"name": "someone", "country": "%s"}, "note": "%s"}'
    values = [text % (at, "DE" if every and at % every == 0 else "FR", "x" * 930) for at in range(COUNT)]
    field = encode_batch([Record(at, 1000 + at, b"key %d" % at, value.encode()) for at, value in enumerate(values)])
    return lambda: sum(1 for _ in matching_records(field, condition, 0.0, RecordBudget()))


def mask_work() -> Callable[[], object]:
    """Return the work of two masks on a partition of orders."""
    fields = {"value.customer.name": Keep(first=1), "value.customer.country": NULL}
    masks = RecordMasks((FieldPath.parse(text), mask, False) for text, mask in fields.items())
    text = '{"id": %d, "customer": {"name": "someone", "country": "DE"}, "note": "%s"}'
    field = encode_batch([Record(at, at, b"key", (text % (at, "x" * 930)).encode()) for at in range(COUNT)])

    def work() -> object:
        body = {"partition_index": 0, "records": field}
        edits = MessageEdits(Message(schema.load(FETCH), FETCH_VERSION, {}, {"responses": []}))
        changed = edits.field(body).change_records(masked_records(masks, None), RecordBudget())
        assert changed
        edits.flush()
        return body

    return work


def header_work(batch: Batch) -> Callable[[], object]:
    """Return the work of an `add_header` rule on a partition with this batch."""
    rule = {"name": "h", "kind": "add_header", "at": "fetch", "headers": {"x-client": "{client_id}"}}
    talk = Exchange([rule])
    effect = talk.rules.live[0].effect
    assert isinstance(effect, RecordChanges)
    exchange = RuleExchange(talk.session.engine.view, schema.load(FETCH), FETCH_VERSION, 1, "bench", 100, 0.0)

    def work() -> object:
        body = {"partition_index": 0, "records": batch.raw}
        topic = {"topic": "t", "partitions": [body]}
        edits = MessageEdits(Message(exchange.api, FETCH_VERSION, {}, {"responses": [topic]}))
        place = PartitionBody(Entity("t", None, 0), body)
        effect.change(exchange, edits.field(body), place, RecordBudget(), 0.0)
        edits.flush()
        return body

    return work


def measure_records(rows: Rows, *, rounds: int, times: int) -> None:
    """`times` records of each. All take turns in each round."""
    work = record_work()
    for turn in range(rounds):
        for name in list(work)[:: 1 if turn % 2 else -1]:
            batches = max(1, times // COUNT)
            began = time.process_time()
            for _ in range(batches):
                work[name]()
            rows.add(RECORDS_CASE, name, {"us": (time.process_time() - began) / batches / COUNT * 1e6})


def measure(rows: Rows, *, rounds: int, times: int) -> None:
    """All sets take turns in each round."""
    measure_records(rows, rounds=rounds, times=5 * times)
    exchanges = {name: Exchange(rules) for name, rules in rule_sets().items()}
    for exchange in exchanges.values():
        exchange.run(50)
    names = list(exchanges)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rows.add(CASE, name, {"us": exchanges[name].run(times)})
    print(f"rules: {rounds} rounds", file=sys.stderr)
