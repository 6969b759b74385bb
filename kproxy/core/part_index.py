"""Finds the rules that can be about a request without asking each of them: a thousand rules for a thousand topics cost
what one does.

Strategy. A rule that names things exactly (`topic: orders`, not `orders-*`) stands in a table under each of these
names; all others are asked for every request. One table a rule: that of its first such selector.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kproxy.rules.entity import Entity
from kproxy.rules.exchange import Exchange
from kproxy.rules.frame_match import OF_ENTITY, FrameMatch
from kproxy.rules.kinds.live import LiveRule

if TYPE_CHECKING:
    from .ruled import Part

FIELDS = ("topic", "group", "transactional_id", "client_id", "principal")
WORTH_IT = 4
"""With fewer rules asking each is as fast."""


class PartIndex:
    """Over the rules of one (api, version)."""

    __slots__ = ("general", "parts", "tables")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.general: list[int] = []
        self.tables: dict[str, dict[str, list[int]]] = {}
        tables: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, part in enumerate(parts):
            field, names = exact(part.running.rule)
            for name in names:
                tables[field][name].append(number)
            if not names:
                self.general.append(number)
        self.tables = {field: dict(table) for field, table in tables.items()}

    def candidates(self, exchange: Exchange, found: Iterable[Entity]) -> Sequence[Part]:
        """Those that can be about a request with these entities, in file order."""
        if not self.tables or len(self.parts) < WORTH_IT:
            return self.parts
        numbers = set(self.general)
        for field, table in self.tables.items():
            names = {getattr(one, field) for one in found} if field in OF_ENTITY else (getattr(exchange, field),)
            for name in names:
                numbers.update(table.get(name, ()))
        return [self.parts[number] for number in sorted(numbers)]


def exact(rule: LiveRule) -> tuple[str, list[str]]:
    """A selector that holds for these texts and no others; no texts: there is none."""
    plain = type(rule).unnamed is LiveRule.unnamed and type(rule).holds_for is LiveRule.holds_for
    if plain and rule.match is not None and type(rule.match).holds_entity is FrameMatch.holds_entity:
        for field in FIELDS:
            texts = getattr(rule.match, field)
            if texts and not any("*" in text or text.startswith("/") for text in texts):
                return field, texts
    return "", []
