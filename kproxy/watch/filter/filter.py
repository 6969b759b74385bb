"""Tree → function: a filter that can be asked of each exchange.

Strategy: made once, as functions within functions; the tests that need least are asked first. What a filter can be true
of is asked beforehand by API and version alone, so that frames of other APIs need not be kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kproxy.watch.records import NotKept
from kproxy.watch.seen import Depth
from kproxy.wire import schema

from .fields import BY_NAME
from .parse import parse
from .tree import All, And, Claim, Node, Not, Or, written
from .view import View

Predicate = Callable[[View], bool]
_NEGATED = {"!=": "==", "!~": "~"}


class Filter:
    """Of this text. Raises FilterError. `unknown` counts the exchanges that it could not judge, `why` says why the
    last one: what it asks was not kept of them. They are not counted as matching."""

    def __init__(self, text: str = "") -> None:
        self.tree = parse(text)
        self.unknown, self.why = 0, ""
        self._holds = _predicate(self.tree)
        self._depth = max((BY_NAME[claim.field].depth for claim in self.claims()), default=Depth.COUNT)

    def __str__(self) -> str:
        return written(self.tree)

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return not isinstance(self.tree, All)

    def claims(self) -> Iterator[Claim]:
        """All that it is made of."""
        return _claims(self.tree)

    @property
    def needs_records(self) -> bool:
        """Whether it asks for what is in records."""
        return self._depth is Depth.FULL

    def holds(self, view: View) -> bool:
        """Whether the exchange is meant."""
        try:
            return self._holds(view)
        except NotKept as error:
            self.unknown += 1
            self.why = str(error)
            return False

    def possible(self, key: int, version: int) -> bool:
        """Whether it may hold for exchanges of this API and version."""
        return _may(self.tree, key, version) is not False

    def depth(self, key: int, version: int) -> Depth:
        """How much must be kept of these frames to judge them."""
        return self._depth if self.possible(key, version) else Depth.COUNT


def _claims(node: Node) -> Iterator[Claim]:
    match node:
        case Claim():
            yield node
        case Not(inner):
            yield from _claims(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _claims(part)


def _cost(node: Node) -> int:
    return max((BY_NAME[claim.field].depth for claim in _claims(node)), default=0)


def _predicate(node: Node) -> Predicate:
    match node:
        case All():
            return lambda view: True
        case Claim():
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


def _compare(claim: Claim) -> Predicate:
    """Of the field's values any has to pass; with != and !~ none may be equal, or fit."""
    field = BY_NAME[claim.field]
    read = field.read
    if not claim.operator:
        return lambda view: any(read(view))
    compare = field.kind.compare(_NEGATED.get(claim.operator, claim.operator), claim.value)
    if claim.operator in _NEGATED:
        return lambda view: not any(compare(value) for value in read(view))
    return lambda view: any(compare(value) for value in read(view))


def _may(node: Node, key: int, version: int) -> bool | None:
    """What the filter says of this API and version, None where that depends on the exchange."""
    match node:
        case All():
            return True
        case Claim():
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
    """Of which only the API and its version are known."""

    def __init__(self, key: int, version: int) -> None:
        name = schema.load(key).name if key in schema.paths() else f"unknown({key})"
        self.known = {"api": name, "version": version}

    def get(self, column: str) -> object:
        return self.known.get(column)

    def records(self) -> tuple[()]:
        return ()
