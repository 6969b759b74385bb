"""Trees of filters compiled into functions. Text of a user is never executed as code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kproxy.base.cooperative import yield_now
from kproxy.base.errors import RecordsError
from kproxy.protocol.records.spans import END, START, EntrySpans, Span

from .exchange_fields import EXCHANGES
from .fields import FieldDepth, FieldTable, split_path
from .kinds import unquoted
from .parse import All, And, FieldTest, FilterNode, Not, Or, claims, parse, written
from .record_fields import MOST_LOOKS, RECORDS, Decoder, Format, RecordView, UnreadableRecord, parse_path

Predicate = Callable[[Any], bool]
LOOK_SHIFT = 12
"""Long texts count for one more value for each 4096 characters."""
READ_SHIFT = 11
"""A claim about a record counts as one more value for each 2048 bytes of it."""
NEGATED = {"!=": "==", "!~": "~"}


class Looks:
    """Limit of the values that a filter reads of one view. `error` makes the exception beyond it."""

    __slots__ = ("error", "left", "most")

    def __init__(self, most: int, error: Callable[[str], Exception]) -> None:
        self.most = self.left = most
        self.error = error

    def charge(self, looks: int) -> None:
        self.left -= looks
        if self.left < 0:
            raise self.error(f"the filter would look at more than {self.most} values of it")

    def among(self, values: Iterable[Any], compare: Predicate) -> bool:
        """Return True if the comparison holds for any of these values."""
        if type(values) is tuple and len(values) == 1:
            (value,) = values
            self.charge(1 + (len(value) >> LOOK_SHIFT) if type(value) is str else 1)
            return compare(value)
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
    test, count = predicate(node, looks, table.records), sum(1 for _ in claims(node))

    def holds(view: Any) -> bool:
        for record in view.records():
            looks.charge(count * (1 + (record.span[END] - record.span[START] >> READ_SHIFT)))
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


class Literals(NamedTuple):
    """Texts; each matching record contains one of them. `escape`: a record with it may have an escape of JSON in their
    place; empty: texts are not in JSON."""

    texts: tuple[bytes, ...]
    escape: bytes = b""


class LiteralSearch:
    """Search of an entry for literals. For records in their order, the bytes are read once."""

    __slots__ = ("data", "escape", "places")

    def __init__(self, wanted: Literals, data: bytes) -> None:
        self.data, self.escape = data, wanted.escape
        self.places: dict[bytes, int] = {text: data.find(text) for text in wanted.texts}
        if wanted.escape:
            self.places[b""] = self.next_escape(0)

    def next(self, start: int) -> int:
        """Return the first place of a literal or an escape from `start` on, or the end of the data."""
        nearest = len(self.data)
        for text, at in self.places.items():
            if 0 <= at < start:
                at = self.data.find(text, start) if text else self.next_escape(start)
                self.places[text] = at
            if 0 <= at < nearest:
                nearest = at
        return nearest

    def next_escape(self, start: int) -> int:
        at = self.data.find(b"\\", start)  # one byte is found faster than two
        while at >= 0 and not self.data.startswith(self.escape, at):
            at = self.data.find(b"\\", at + 1)
        return at


MOST_LITERALS = 8
ESCAPED = re.compile(rb'[\x00-\x1f"\\/]')
"""Characters with short escapes in JSON. All others can only be escaped by \\u."""


def in_json(texts: Iterable[bytes]) -> Literals:
    texts = tuple(texts)
    escape = b"\\" if any(map(ESCAPED.search, texts)) else b"\\u"
    return Literals(tuple(b'"%b"' % text for text in texts), escape)


def literals(node: FilterNode) -> Literals | None:
    """Return the most selective literals of a condition about one record; None: it requires none."""
    match node:
        case FieldTest():
            return _literals_of(node)
        case And(parts):
            found = [one for part in parts if (one := literals(part)) is not None]
            return max(found, key=lambda one: min(map(len, one.texts)), default=None)
        case Or(parts):
            each = [literals(part) for part in parts]
            texts = tuple(text for one in each if one is not None for text in one.texts)
            if None in each or len(texts) > MOST_LITERALS:
                return None
            return Literals(texts, min((one.escape for one in each if one is not None and one.escape), default=b""))
        case _:
            return None


def _literals_of(claim: FieldTest) -> Literals | None:
    root, path = split_path(claim.field)
    if claim.operator in NEGATED or root not in ("key", "value", "header"):
        return None
    values = claim.value if claim.operator == "in" else (claim.value,) if claim.operator == "==" else ()
    exact = _encoded(values)
    if root == "header":
        found = (exact or _encoded([unquoted(path[1:])])) if path else None
        return Literals(found) if found else None
    if not path:
        return Literals(exact) if exact else None
    if exact:
        return in_json(exact)
    names = _encoded([step for step in parse_path(path) if isinstance(step, str)])
    return in_json((max(names, key=len),)) if names else None


def _encoded(values: Iterable[Any]) -> tuple[bytes, ...] | None:
    """Return texts as bytes; None if one is not text, is empty, or has a replacement character, or if they are many."""
    texts = tuple(values)
    if not 0 < len(texts) <= MOST_LITERALS or not all(isinstance(text, str) and text for text in texts):
        return None
    try:
        encoded = tuple(text.encode() for text in texts)
    except UnicodeEncodeError:
        return None
    return None if any("\ufffd" in text for text in texts) else encoded


MOST_SEARCHED = 2 << 20
"""Decompressed bytes of an entry that are searched for literals."""
MOST_AT_ONCE = 1 << 18
"""Bytes that the claims of a condition read between two calls of the driver: about half a millisecond."""
EACH = 256
"""Bytes that a claim about a short record counts as."""


def never(span: Span) -> bool:
    """Test of an entry without the literals of a condition."""
    return False


class RecordCondition:
    """Condition about one record, compiled from one text. `decoder`: reads values with a schema. Raises FilterError for
    a wrong text. Equal conditions have equal trees."""

    def __init__(self, text: str, form: Format = "auto", decoder: Decoder | None = None) -> None:
        self.tree, self.form, self.decoder = parse(text, RECORDS), form, decoder
        self.compiled, self.busy = self.compile(), False
        self.literals = literals(self.tree)
        self.claims = sum(1 for _ in claims(self.tree))

    def compile(self) -> tuple[Looks, Predicate]:
        looks = Looks(MOST_LOOKS, UnreadableRecord)
        return looks, predicate(self.tree, looks, RECORDS)

    def __str__(self) -> str:
        return written(self.tree, RECORDS)

    @property
    def cost(self) -> str:
        depth = max((RECORDS[claim.field].depth for claim in claims(self.tree)), default=FieldDepth.AT_ONCE)
        part = ("reads positions of records", "reads bytes of records", "decodes keys or values")[depth]
        texts = () if self.literals is None else self.literals.texts
        return f"{part}{' of batches with ' if texts else ''}{' or '.join(text.decode() for text in texts)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordCondition) and (self.tree, self.form) == (other.tree, other.form)

    def __hash__(self) -> int:
        return hash((self.tree, self.form))

    def matches(self, spans: EntrySpans, span: Span, now: float = 0) -> bool:
        """Return True if the record matches. `now`: Unix time in ms. Raises UnreadableRecord."""
        return self.test(spans, now)(span)

    def test(
        self, spans: EntrySpans, now: float = 0, decoder: Decoder | None = None, *, raises: bool = True
    ) -> Callable[[Span], bool]:
        """Return the test of the records of one entry, with yield points. `now`: Unix time in ms. `decoder`: instead of
        the condition's own. The test raises UnreadableRecord, and what the decoder raises. With `raises` False, it may
        return False for a record that cannot be read, and is `never` for an entry without matching records."""
        decoder = decoder or self.decoder
        (looks, holds), own = self.compiled, False
        factor, spent = self.claims, 0
        view = RecordView(spans, NO_SPAN, self.form, now, decoder)
        needed, search, gap = self.literals, None, spans.gap
        since = at = 0
        if not raises and needed is not None and not (needed.escape and decoder) and len(spans.data) <= MOST_SEARCHED:
            search = LiteralSearch(needed, bytes(spans.data))
            at = search.next(0)
            if not spans.added and at == len(spans.data):
                return never

        def test(span: Span) -> bool:
            nonlocal at, since, spent, looks, holds, own
            start, end = span[START], span[END]
            if search is not None and since <= start < gap:
                if at < start:
                    at, since = search.next(start), start
                if end <= at:
                    return False
            spent += (end - start + EACH) * factor
            if spent > MOST_AT_ONCE:
                spent = 0
                yield_now()
            if self.busy and not own:  # another connection has yielded within a record: its limit is in use
                (looks, holds), own = self.compile(), True
            looks.left = MOST_LOOKS
            view.span, view._value = span, False
            if own:
                return holds(view)
            self.busy = True
            try:
                return holds(view)
            finally:
                self.busy = False

        return test
