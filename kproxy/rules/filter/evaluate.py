"""Trees of filters compiled into functions. Text of a user is never executed as code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kproxy.base.errors import RecordsError
from kproxy.protocol.records.spans import EntrySpans, Span

from .exchange_fields import EXCHANGES
from .fields import FieldTable
from .parse import All, And, FieldTest, FilterNode, Not, Or, claims, parse, written
from .record_fields import MOST_LOOKS, RECORDS, Decoder, Format, RecordView, UnreadableRecord

Predicate = Callable[[Any], bool]
LOOK_SHIFT = 12
"""Long texts count for one more value for each 4096 characters."""
NEGATED = {"!=": "==", "!~": "~"}


class Looks:
    """Limit of the values that a filter reads of one view. `error` makes the exception beyond it."""

    __slots__ = ("error", "left", "most")

    def __init__(self, most: int, error: Callable[[str], Exception]) -> None:
        self.most = self.left = most
        self.error = error

    def among(self, values: Iterable[Any], compare: Predicate) -> bool:
        """Return True if the comparison holds for any of these values."""
        for value in values:
            self.left -= 1 + (len(value) >> LOOK_SHIFT) if type(value) is str else 1
            if self.left < 0:
                raise self.error(f"the filter would look at more than {self.most} values of it")
            if compare(value):
                return True
        return False


def predicate(node: FilterNode, looks: Looks, table: FieldTable = EXCHANGES) -> Predicate:
    """Return the function of a view that holds if the filter matches it. Cheap fields are tested first.

    Conditions about records that are joined by `and` hold if one record matches all of them. A negation alone holds if
    no record matches what it negates. Records that cannot be read do not match.
    """

    def cost(part: FilterNode) -> int:
        return max((table[claim.field].depth for claim in claims(part)), default=0)

    match node:
        case All():
            return lambda view: True
        case FieldTest():
            if not table.is_of_records(node.field):
                return _compare(node, looks, table)
            if node.operator not in NEGATED:
                return _any_record(node, looks, table)
            test = _any_record(FieldTest(node.field, NEGATED[node.operator], node.value), looks, table)
            return lambda view: not test(view)
        case Not(inner):
            test = predicate(inner, looks, table)
            return lambda view: not test(view)
        case And(parts):
            about = of_one_record(parts, table)
            rest = sorted((part for part in parts if part not in about), key=cost)
            tests = [predicate(part, looks, table) for part in rest]
            if about:
                tests.append(_any_record(And(about), looks, table))
            return lambda view: all(test(view) for test in tests)
        case Or(parts):
            tests = [predicate(part, looks, table) for part in sorted(parts, key=cost)]
            return lambda view: any(test(view) for test in tests)


def of_one_record(parts: Iterable[FilterNode], table: FieldTable) -> tuple[FilterNode, ...]:
    """Return the parts of a conjunction that one record has to match together; none if all of them are negations."""
    about = tuple(part for part in parts if all(table.is_of_records(claim.field) for claim in claims(part)))
    return () if len(about) < 2 or all(isinstance(part, Not) or _is_negated(part) for part in about) else about


def _is_negated(part: FilterNode) -> bool:
    return isinstance(part, FieldTest) and part.operator in NEGATED


def _any_record(node: FilterNode, looks: Looks, table: FieldTable) -> Predicate:
    """Return the test whether one record of a view matches these conditions about one record."""
    assert table.records is not None
    test = predicate(node, looks, table.records)

    def holds(view: Any) -> bool:
        for record in view.records():
            try:
                if test(record):
                    return True
            except RecordsError:
                continue
        return False

    return holds


def _compare(claim: FieldTest, looks: Looks, table: FieldTable) -> Predicate:
    """Return the test of one claim. One value of the field has to match; with != and !~ none may be equal or match."""
    field = table[claim.field]
    read = field.read
    if not claim.operator:
        return lambda view: looks.among(read(view), bool)
    compare = field.kind.compare(NEGATED.get(claim.operator, claim.operator), claim.value)
    if claim.operator in NEGATED:
        return lambda view: not looks.among(read(view), compare)
    return lambda view: looks.among(read(view), compare)


NO_SPAN: Span = (-1,) * 9


class RecordCondition:
    """Condition about one record, compiled from one text. `decoder`: reads values with a schema. Raises FilterError for
    a wrong text. Equal conditions have equal trees."""

    def __init__(self, text: str, form: Format = "auto", decoder: Decoder | None = None) -> None:
        self.tree, self.form, self.decoder = parse(text, RECORDS), form, decoder
        self.looks = Looks(MOST_LOOKS, UnreadableRecord)
        self.holds = predicate(self.tree, self.looks, RECORDS)

    def __str__(self) -> str:
        return written(self.tree, RECORDS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordCondition) and (self.tree, self.form) == (other.tree, other.form)

    def __hash__(self) -> int:
        return hash((self.tree, self.form))

    def matches(self, spans: EntrySpans, span: Span, now: float = 0) -> bool:
        """Return True if the record matches. `now`: Unix time in ms. Raises UnreadableRecord."""
        return self.test(spans, now)(span)

    def test(self, spans: EntrySpans, now: float = 0, decoder: Decoder | None = None) -> Callable[[Span], bool]:
        """Return the test of the records of one entry. `now`: Unix time in ms. `decoder`: instead of the condition's
        own. The test raises UnreadableRecord, and what the decoder raises."""
        looks, holds = self.looks, self.holds
        view = RecordView(spans, NO_SPAN, self.form, now, decoder or self.decoder)

        def test(span: Span) -> bool:
            looks.left = MOST_LOOKS
            view.span, view._value = span, False
            return holds(view)

        return test
