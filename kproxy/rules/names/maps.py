"""Name maps of all namespaces that hold for one connection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .composed import AnyLayer, NameMap
from .namespace import GROUP, NAMESPACES, TOPIC, TRANSACTIONAL_ID, Namespace


@dataclass(frozen=True, slots=True)
class NameMaps:
    """Name maps of one connection, by namespace; None: no rule says anything about these names."""

    topics: NameMap | None = None
    groups: NameMap | None = None
    transactional_ids: NameMap | None = None

    @classmethod
    def of(cls, layers: Iterable[tuple[Namespace, AnyLayer]]) -> NameMaps | None:
        """Return the maps that the layers of all name rules, in file order, come to; None if there are no layers."""
        by_space: dict[Namespace, list[AnyLayer]] = {}
        for space, layer in layers:
            by_space.setdefault(space, []).append(layer)
        maps = [NameMap(by_space[space], space) if space in by_space else None for space in NAMESPACES]
        return cls(*maps) if by_space else None

    def get(self, space: Namespace) -> NameMap | None:
        """Return the map of one namespace, None if no rule is about it."""
        return {TOPIC: self.topics, GROUP: self.groups, TRANSACTIONAL_ID: self.transactional_ids}[space]

    @property
    def maps(self) -> list[NameMap]:
        """Return the maps of those namespaces that rules are about."""
        return [one for one in (self.topics, self.groups, self.transactional_ids) if one is not None]

    @property
    def isolates(self) -> bool:
        """Return True if names of others are to be out of reach in any namespace."""
        return any(one.isolates for one in self.maps)
