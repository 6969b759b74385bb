"""Filters that are asked of each exchange, compiled from their trees.

Strategy: a tree becomes functions within functions once; of several tests, those that need least of the frames are made
first. Beforehand a filter is asked for which APIs and versions it can hold at all, so that frames of others need not be
kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kproxy.protocol.table import schema
from kproxy.record.exchange import Depth
from kproxy.record.observer.records import NotKept
from kproxy.rules.filter.fields import BY_NAME, FieldDepth, View
from kproxy.rules.filter.parse import All, And, FieldTest, FilterNode, Not, Or, parse, written

MOST_LOOKS = 20_000
"""Values of one exchange that a filter looks at: some tens of milliseconds. Filters come over the network, and each of
a hundred claims may be about each of ten thousand records."""
LOOK_SHIFT = 12
"""Long values count for one more for each 4096 characters."""
DEPTHS = {FieldDepth.AT_ONCE: Depth.COUNT, FieldDepth.FIELDS: Depth.SKETCH, FieldDepth.RECORDS: Depth.FULL}
Predicate = Callable[[Any], bool]
_NEGATED = {"!=": "==", "!~": "~"}


class Filter:
    """Filter of exchanges, compiled from one text. Raises FilterError if the text is wrong.

    `unknown` counts the exchanges that could not be judged, since the bytes that the filter asks about were not kept;
    `why` says so of the last one. Such an exchange does not pass the filter.
    """

    def __init__(self, text: str = "") -> None:
        self.tree = parse(text)
        self.unknown, self.why = 0, ""
        self._looks = Looks()
        self._holds = _predicate(self.tree, self._looks)
        self._depth = max((DEPTHS[BY_NAME[claim.field].depth] for claim in self.claims()), default=Depth.COUNT)

    def __str__(self) -> str:
        return written(self.tree)

    def __bool__(self) -> bool:
        """Return False if the filter has no claim, so that every exchange passes."""
        return not isinstance(self.tree, All)

    def claims(self) -> Iterator[FieldTest]:
        return _claims(self.tree)

    @property
    def needs_records(self) -> bool:
        """Return True if the filter asks about the content of records."""
        return self._depth is Depth.FULL

    def holds(self, view: View) -> bool:
        """Return True if the exchange passes the filter; False, too, if that cannot be told (see `unknown`)."""
        self._looks.left = MOST_LOOKS
        try:
            return self._holds(view)
        except NotKept as error:
            self.unknown += 1
            self.why = str(error)
            return False

    def possible(self, key: int, version: int) -> bool:
        """Return True if exchanges of this API and version may pass the filter."""
        return _may(self.tree, _of_api(key, version)) is not False

    def possible_topic(self, topic: str) -> bool:
        """Return True if exchanges about this topic, and no other, may pass the filter."""
        named = {"topic": topic, "broker_topic": topic}
        return _may(self.tree, _KnownView({"topics": [named]}, *named)) is not False

    def certain(self, key: int, version: int) -> bool:
        """Return True if all exchanges of this API and version pass the filter."""
        return _may(self.tree, _of_api(key, version)) is True

    def depth(self, key: int, version: int) -> Depth:
        """Return how much of the frames of this API and version must be kept to judge their exchanges."""
        return self._depth if self.possible(key, version) else Depth.COUNT


class Looks:
    """Count of the values of one exchange that may still be looked at."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_LOOKS

    def among(self, values: Iterable[Any], compare: Predicate) -> bool:
        """Return True if the comparison holds for any of these values. Raises NotKept when they are too many."""
        for value in values:
            self.left -= 1 + (len(value) >> LOOK_SHIFT) if type(value) is str else 1
            if self.left < 0:
                raise NotKept(f"the filter would look at more than {MOST_LOOKS} values of it")
            if compare(value):
                return True
        return False


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


def _predicate(node: FilterNode, looks: Looks) -> Predicate:
    match node:
        case All():
            return lambda view: True
        case FieldTest():
            return _compare(node, looks)
        case Not(inner):
            test = _predicate(inner, looks)
            return lambda view: not test(view)
        case And(parts):
            tests = [_predicate(part, looks) for part in sorted(parts, key=_cost)]
            return lambda view: all(test(view) for test in tests)
        case Or(parts):
            tests = [_predicate(part, looks) for part in sorted(parts, key=_cost)]
            return lambda view: any(test(view) for test in tests)


def _compare(claim: FieldTest, looks: Looks) -> Predicate:
    """Return the test of one claim: any of the field's values has to pass; with != and !~ none may be equal, or fit."""
    field = BY_NAME[claim.field]
    read = field.read
    if not claim.operator:
        return lambda view: looks.among(read(view), bool)
    compare = field.kind.compare(_NEGATED.get(claim.operator, claim.operator), claim.value)
    if claim.operator in _NEGATED:
        return lambda view: not looks.among(read(view), compare)
    return lambda view: looks.among(read(view), compare)


def _may(node: FilterNode, view: _KnownView) -> bool | None:
    """Return the result for all exchanges that a view is known of, None where it depends on the exchange."""
    match node:
        case All():
            return True
        case FieldTest():
            return _predicate(node, Looks())(view) if node.field in view.fields else None
        case Not(inner):
            found = _may(inner, view)
            return None if found is None else not found
        case And(parts):
            answers = [_may(part, view) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [_may(part, view) for part in parts]
            return True if True in answers else None if None in answers else False


class _KnownView:
    """View of an exchange of which only these columns are known, and so the values of these fields of a filter."""

    def __init__(self, known: dict[str, Any], *fields: str) -> None:
        self.known, self.fields = known, fields

    def get(self, column: str) -> object:
        return self.known.get(column)

    def records(self) -> tuple[()]:
        return ()


def _of_api(key: int, version: int) -> _KnownView:
    """Return the view of an exchange of this API and version."""
    name = schema.load(key).name if key in schema.paths() else f"unknown({key})"
    return _KnownView({"api": name, "version": version}, "api", "version")
