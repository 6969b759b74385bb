"""The tree of a filter, and how it is written: whatever spelling was read, this one is printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .fields import BY_NAME


@dataclass(frozen=True, slots=True)
class All:
    """Every exchange: the filter that says nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`field operator value`. Without an operator: the field is there, and is not 0, empty or false.

    `value` is what the field's kind makes of the text: a tuple of such for `in`, the expression's text for `~`.
    """

    field: str
    operator: str = ""
    value: Any = None


@dataclass(frozen=True, slots=True)
class Not:
    """What the other does not hold for."""

    inner: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more."""

    parts: tuple[Node, ...]


Node = All | Claim | Not | And | Or

PLAIN = re.compile(r"[^\s()\"',!&|~<>=]+")
"""Values that need no quotes."""
WORDS = frozenset(("and", "or", "not", "in"))


def written(node: Node) -> str:
    """The filter as text, which is read as the same tree."""
    match node:
        case All():
            return ""
        case Claim():
            return _claim(node)
        case Not(inner):
            return f"not {_part(inner)}"
        case And(parts):
            return " and ".join(map(_part, parts))
        case Or(parts):
            return " or ".join(map(_part, parts))


def _part(node: Node) -> str:
    return f"({written(node)})" if isinstance(node, And | Or) else written(node)


def _claim(claim: Claim) -> str:
    kind = BY_NAME[claim.field].kind
    if not claim.operator:
        return claim.field
    if claim.operator == "in":
        return f"{claim.field} in ({', '.join(quoted(kind.show(value)) for value in claim.value)})"
    text = str(claim.value) if claim.operator in ("~", "!~") else kind.show(claim.value)
    return f"{claim.field} {claim.operator} {quoted(text)}"


def quoted(text: str) -> str:
    """The text as a value: in quotes where it has to be. There a backslash is itself, but before a quote or another."""
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        return text
    escaped = re.sub(r'\\(?=[\\"]|\Z)', r"\\\\", text).replace('"', '\\"')
    return f'"{escaped}"'
