"""Record conditions of rules (`records` under `match` and `not`) in kinds that do not change single records.

A partition matches if one of its records matches the condition of `match`, and does not match the condition of `not`.
Other records of the partition never exempt it: a producer could add one for that.

A record that cannot be read (invalid JSON, unknown codec, beyond a limit) matches neither condition. In rules that
limit clients, and with `on_unreadable: reject`, it matches the condition of `match`. So does a control batch in a
Produce request, which only brokers may write. `on_registry_down` applies to records with a schema that the registry has
not returned. `retry` is the default of `error` and of rules that limit clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from kproxy.base.cooperative import yielding
from kproxy.base.errors import RecordsError
from kproxy.protocol.elements import element_at
from kproxy.protocol.primitives import Buffer
from kproxy.protocol.records import Batch
from kproxy.protocol.records.spans import Span
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.bodies import partitions_of_answer
from kproxy.rules.content.edits import RECORDS, RecordBudget, RecordCounts, is_control, whole_entries
from kproxy.rules.content.schemas import MOST_UNKNOWN, SchemaKey, SchemaUnloaded
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.filter.evaluate import RecordCondition, never
from kproxy.rules.filter.record_fields import Decoder, UnreadableRecord

from .rule import LiveRule

MOST_NAMED = 1000
"""Records of one partition that an error response names."""
FIRST_WITH_RECORD_ERRORS = 8
"""Version of Produce whose responses name records (KIP-467). Clients of earlier ones do not have INVALID_RECORD."""
NOT_ENOUGH_REPLICAS = 19
"""Error that every client retries, and treats as not stored."""


def schema_reason(rule: str) -> str:
    return f'rule "{rule}" needs a schema that is not loaded'


def is_strict(rule: LiveRule) -> bool:
    """Return True if records that cannot be read match the condition of `match`."""
    if rule.selects_single_records:
        return rule.fails_closed
    return rule.limits_clients or getattr(rule, "on_unreadable", "") == "reject"


class RecordSelector:
    """Selection of partitions by the record conditions of one rule. `response`: the records are in the response."""

    __slots__ = ("down", "no", "response", "rule", "strict", "yes")

    def __init__(self, rule: LiveRule, yes: RecordCondition | None, no: RecordCondition | None, key: int) -> None:
        self.rule, self.yes, self.no, self.response = rule, yes, no, key != PRODUCE
        self.strict = is_strict(rule)
        self.down = getattr(rule, "on_registry_down", "retry" if rule.limits_clients else "unreadable")

    @classmethod
    def of(cls, rule: LiveRule, key: int, version: int) -> RecordSelector | None:
        """Return the selector of a rule for this API and version; None: no condition applies to partitions."""
        if rule.selects_single_records or not rule.selects_records:
            return None
        yes = None if rule.match is None else rule.match.records
        no = None if rule.not_ is None or not rule.not_.about(key, version) else rule.not_.records
        return None if yes is None and no is None else cls(rule, yes, no, key)

    def matching(
        self, exchange: Exchange, entities: Sequence[Entity], now: float, counts: RecordCounts,
        waiting: list[Entity] | None = None,
    ) -> tuple[Entity, ...]:  # fmt: skip
        """Return the partitions that match, of these entities of the request. `now`: monotonic seconds. `counts` gets
        the examined records, and those that match `match`. `waiting` gets the partitions that cannot be evaluated until
        schemas are loaded."""
        time, budget = exchange.connection.unix_time(now) * 1000, budget_of(exchange)
        found: dict[Entity, None] = {}  # a response may list a partition twice
        for entity, data in self.partitions(exchange, entities):
            missing: set[SchemaKey] = set()
            if data and self.holds(exchange, entity, data, time, budget, counts, missing):
                found[entity] = None
            elif missing and waiting is not None:
                waiting.append(entity)
        return tuple(found)

    def partitions(self, exchange: Exchange, entities: Sequence[Entity]) -> Iterator[tuple[Entity, Buffer | None]]:
        """Yield the entities that are partitions, each with its records."""
        if self.response:
            for place in partitions_of_answer(exchange, entities):
                if place.asked is not None:
                    yield place.asked, place.body[RECORDS]
            return
        for entity in yielding(entities):
            if entity.partition is not None:  # by its place, as a request may list a partition twice
                yield entity, element_at(exchange.request, entity.where)[RECORDS]

    def holds(
        self, exchange: Exchange, entity: Entity, data: Buffer, time: float, budget: RecordBudget, counts: RecordCounts,
        missing: set[SchemaKey],
    ) -> bool:  # fmt: skip
        """Return True if a partition with these records matches. `time`: Unix time in ms. `missing` gets the schemas
        that decide it."""
        if next(self.selected(exchange, entity, data, time, budget, counts, missing), None) is not None:
            return True
        if len(missing) <= MOST_UNKNOWN:
            return False
        missing.clear()  # hostile records with many ids would otherwise wait forever
        return self.strict

    def selected(
        self, exchange: Exchange, entity: Entity, data: Buffer, time: float, budget: RecordBudget,
        counts: RecordCounts | None = None, missing: set[SchemaKey] | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """Return the indexes of the records of a partition that match `match`, and do not match `not`."""
        no = self.no if self.no is not None and self.rule.excludes(exchange, entity) else None
        if self.yes is None and no is None:
            return iter((0,))  # `not` is about other partitions
        decoder, controls = exchange.connection.decoder, not self.response
        return matching_records(
            data, self.yes, time, budget, decoder, counts,
            no=no, strict=self.strict, controls=controls, down=self.down, missing=missing,
        )  # fmt: skip

    def indexes(self, exchange: Exchange, entity: Entity, now: float) -> tuple[int, ...]:
        """Return the indexes of the first MOST_NAMED records of a partition of a request that match `match`."""
        data = element_at(exchange.request, entity.where)[RECORDS] if entity.partition is not None else None
        if not data or self.yes is None:
            return ()
        time = exchange.connection.unix_time(now) * 1000
        return tuple(islice(self.selected(exchange, entity, data, time, budget_of(exchange)), MOST_NAMED))


def budget_of(exchange: Exchange) -> RecordBudget:
    """Return the budget of one rule for one frame."""
    return RecordBudget.of_size(exchange.connection.content.max_decompressed_bytes)


def any_record(
    data: Buffer, yes: RecordCondition | None, time: float, budget: RecordBudget, *, no: RecordCondition | None = None,
    strict: bool = False, controls: bool = False,
) -> bool:  # fmt: skip
    """Return True if a record matches `yes` (None: any record does), and does not match `no`."""
    found = matching_records(data, yes, time, budget, no=no, strict=strict, controls=controls)
    return next(found, None) is not None


def judged(
    test: Callable[[Span], bool], wants: bool, *, strict: bool, down: str, counts: RecordCounts,
    missing: set[SchemaKey] | None,
) -> Callable[[Span], bool]:  # fmt: skip
    """Return the test of a condition that does not raise. `wants`: its result for records that match. The others:
    see `matching_records`."""

    def holds(span: Span) -> bool:
        try:
            return test(span) == wants
        except UnreadableRecord as error:
            counts.unreadable += wants
            if down == "unreadable" or not isinstance(error, SchemaUnloaded):
                return strict or not wants
            if down == "retry" and missing is not None and len(missing) <= MOST_UNKNOWN:
                missing.add(error.key)
            return down == "reject"

    return holds


def matching_records(  # noqa: PLR0913  # keywords
    data: Buffer, yes: RecordCondition | None, time: float, budget: RecordBudget, decoder: Decoder | None = None,
    counts: RecordCounts | None = None, *, no: RecordCondition | None = None, strict: bool = False,
    controls: bool = False, down: str = "unreadable", missing: set[SchemaKey] | None = None,
) -> Iterator[int]:  # fmt: skip
    """Yield the indexes of the records in a records field that match `yes` (None: all), and do not match `no`.

    `strict`: records that cannot be read match `yes`. An entry that cannot be read counts as one record. `controls`:
    control batches cannot be read; otherwise they have no records. `down`: result for records with a schema that
    is not loaded; `missing` gets these schemas with `retry`.
    """
    strict = strict or yes is None
    counts = counts or RecordCounts()
    judge = partial(judged, strict=strict, down=down, counts=counts, missing=missing)
    budget.add(len(data))
    entries, rest = whole_entries(data)
    index = 0
    for entry in yielding(entries):
        if is_control(entry):
            if controls:
                counts.unreadable += 1
                if strict:
                    yield index
            continue
        first = index
        try:
            with budget.opened(entry) as spans:
                wanted = None if yes is None else yes.test(spans, time, decoder, raises=strict or down != "unreadable")
                if wanted is never:
                    index += entry.count if isinstance(entry, Batch) else 1
                    continue
                tests = [] if wanted is None else [judge(wanted, True)]
                tests += [] if no is None else [judge(no.test(spans, time, decoder), False)]
                for span in spans:
                    index += 1
                    if all(test(span) for test in tests):
                        counts.matched += 1
                        yield index - 1
        except RecordsError:
            counts.unreadable += 1
            if strict:
                yield index
            index += 1
        finally:
            counts.seen += index - first
    if strict and rest:
        yield index
