"""Nodes of a filter's tree, and its one spelling, which is printed whichever of several was read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .fields import BY_NAME


@dataclass(frozen=True, slots=True)
class All:
    """Filter without any claim, which every exchange passes."""


@dataclass(frozen=True, slots=True)
class FieldTest:
    """Claim `field operator value`. Without an operator: the field is there, and is not 0, empty or false.

    `value`: as the field's kind parsed it; a tuple of such values for `in`, the expression's text for `~`.
    """

    field: str
    operator: str = ""
    value: Any = None


@dataclass(frozen=True, slots=True)
class Not:
    """Negation, which holds where `inner` does not."""

    inner: FilterNode


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two nodes or more."""

    parts: tuple[FilterNode, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two nodes or more."""

    parts: tuple[FilterNode, ...]


FilterNode = All | FieldTest | Not | And | Or

PLAIN = re.compile(r"[^\s()\"',!&|~<>=]+")
"""Expression for values that need no quotes."""
WORDS = frozenset(("and", "or", "not", "in"))


def written(node: FilterNode) -> str:
    """Return the filter as text that parses to the same tree."""
    match node:
        case All():
            return ""
        case FieldTest():
            return _claim(node)
        case Not(inner):
            return f"not {_part(inner)}"
        case And(parts):
            return " and ".join(map(_part, parts))
        case Or(parts):
            return " or ".join(map(_part, parts))


def _part(node: FilterNode) -> str:
    return f"({written(node)})" if isinstance(node, And | Or) else written(node)


def _claim(claim: FieldTest) -> str:
    kind = BY_NAME[claim.field].kind
    if not claim.operator:
        return claim.field
    if claim.operator == "in":
        return f"{claim.field} in ({', '.join(quoted(kind.show(value)) for value in claim.value)})"
    text = str(claim.value) if claim.operator in ("~", "!~") else kind.show(claim.value)
    return f"{claim.field} {claim.operator} {quoted(text)}"


def quoted(text: str) -> str:
    """Return a text as a value of the language, in quotes where it needs them.

    Within quotes a backslash stands for itself, unless a quote or another backslash follows.
    """
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        return text
    escaped = re.sub(r'\\(?=[\\"]|\Z)', r"\\\\", text).replace('"', '\\"')
    return f'"{escaped}"'
