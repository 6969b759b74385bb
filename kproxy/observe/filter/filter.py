"""Filters that are asked of each exchange, compiled from their trees.

Strategy: a tree becomes functions within functions once; of several tests, those that need least of the frames are made
first. Beforehand a filter is asked for which APIs and versions it can hold at all, so that frames of others need not be
kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kproxy.observe.exchange import Depth
from kproxy.observe.records import NotKept
from kproxy.rules.filter.fields import BY_NAME, FieldDepth, View
from kproxy.rules.filter.parse import parse
from kproxy.rules.filter.tree import All, And, FieldTest, FilterNode, Not, Or, written
from kproxy.wire.table import schema

DEPTHS = {FieldDepth.AT_ONCE: Depth.COUNT, FieldDepth.FIELDS: Depth.SKETCH, FieldDepth.RECORDS: Depth.FULL}
Predicate = Callable[[View], bool]
_NEGATED = {"!=": "==", "!~": "~"}


class Filter:
    """Filter of exchanges, compiled from one text. Raises FilterError if the text is wrong.

    `unknown` counts the exchanges that could not be judged, since the bytes that the filter asks about were not kept;
    `why` says so of the last one. Such an exchange does not pass the filter.
    """

    def __init__(self, text: str = "") -> None:
        self.tree = parse(text)
        self.unknown, self.why = 0, ""
        self._holds = _predicate(self.tree)
        self._depth = max((DEPTHS[BY_NAME[claim.field].depth] for claim in self.claims()), default=Depth.COUNT)

    def __str__(self) -> str:
        return written(self.tree)

    def __bool__(self) -> bool:
        """Return False if the filter has no claim, so that every exchange passes."""
        return not isinstance(self.tree, All)

    def claims(self) -> Iterator[FieldTest]:
        """Yield the claims that the filter is made of."""
        return _claims(self.tree)

    @property
    def needs_records(self) -> bool:
        """Return True if the filter asks about the content of records."""
        return self._depth is Depth.FULL

    def holds(self, view: View) -> bool:
        """Return True if the exchange passes the filter; False, too, if that cannot be told (see `unknown`)."""
        try:
            return self._holds(view)
        except NotKept as error:
            self.unknown += 1
            self.why = str(error)
            return False

    def possible(self, key: int, version: int) -> bool:
        """Return True if exchanges of this API and version may pass the filter."""
        return _may(self.tree, key, version) is not False

    def depth(self, key: int, version: int) -> Depth:
        """Return how much of the frames of this API and version must be kept to judge their exchanges."""
        return self._depth if self.possible(key, version) else Depth.COUNT


def _claims(node: FilterNode) -> Iterator[FieldTest]:
    match node:
        case FieldTest():
            yield node
        case Not(inner):
            yield from _claims(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _claims(part)


def _cost(node: FilterNode) -> int:
    return max((BY_NAME[claim.field].depth for claim in _claims(node)), default=0)


def _predicate(node: FilterNode) -> Predicate:
    match node:
        case All():
            return lambda view: True
        case FieldTest():
            return _compare(node)
        case Not(inner):
            test = _predicate(inner)
            return lambda view: not test(view)
        case And(parts):
            tests = [_predicate(part) for part in sorted(parts, key=_cost)]
            return lambda view: all(test(view) for test in tests)
        case Or(parts):
            tests = [_predicate(part) for part in sorted(parts, key=_cost)]
            return lambda view: any(test(view) for test in tests)


def _compare(claim: FieldTest) -> Predicate:
    """Return the test of one claim: any of the field's values has to pass; with != and !~ none may be equal, or fit."""
    field = BY_NAME[claim.field]
    read = field.read
    if not claim.operator:
        return lambda view: any(read(view))
    compare = field.kind.compare(_NEGATED.get(claim.operator, claim.operator), claim.value)
    if claim.operator in _NEGATED:
        return lambda view: not any(compare(value) for value in read(view))
    return lambda view: any(compare(value) for value in read(view))


def _may(node: FilterNode, key: int, version: int) -> bool | None:
    """Return the result for all exchanges of this API and version, None where it depends on the exchange."""
    match node:
        case All():
            return True
        case FieldTest():
            return _predicate(node)(_ApiView(key, version)) if node.field in ("api", "version") else None
        case Not(inner):
            found = _may(inner, key, version)
            return None if found is None else not found
        case And(parts):
            answers = [_may(part, key, version) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [_may(part, key, version) for part in parts]
            return True if True in answers else None if None in answers else False


class _ApiView:
    """View of an exchange of which only the API and its version are known."""

    def __init__(self, key: int, version: int) -> None:
        name = schema.load(key).name if key in schema.paths() else f"unknown({key})"
        self.known = {"api": name, "version": version}

    def get(self, column: str) -> object:
        return self.known.get(column)

    def records(self) -> tuple[()]:
        return ()
