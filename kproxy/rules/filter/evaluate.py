"""Trees of filters compiled into functions. Text of a user is never executed as code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .fields import EXCHANGES, FieldTable
from .parse import All, And, FieldTest, FilterNode, Not, Or, claims

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
    """Return the function of a view that holds if the filter matches it. Cheap fields are tested first."""

    def cost(part: FilterNode) -> int:
        return max((table[claim.field].depth for claim in claims(part)), default=0)

    match node:
        case All():
            return lambda view: True
        case FieldTest():
            return _compare(node, looks, table)
        case Not(inner):
            test = predicate(inner, looks, table)
            return lambda view: not test(view)
        case And(parts):
            tests = [predicate(part, looks, table) for part in sorted(parts, key=cost)]
            return lambda view: all(test(view) for test in tests)
        case Or(parts):
            tests = [predicate(part, looks, table) for part in sorted(parts, key=cost)]
            return lambda view: any(test(view) for test in tests)


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
