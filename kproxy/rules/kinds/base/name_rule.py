"""The base classes of kinds that change names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from kproxy.rules.names.checks import check_renames
from kproxy.rules.names.composed import AnyLayer
from kproxy.rules.names.layer import Layer
from kproxy.rules.names.namespace import Namespace
from kproxy.rules.values.model import Wrong

from .rule import Rule


class NameRule(Rule):
    """Rule that puts a layer between client-side and broker-side names of one namespace or more. Override `layers`."""

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        """Yield the layers with their namespaces, at most one for each."""
        raise NotImplementedError


class RenameRule(NameRule):
    """Rule with a field that maps client-side to broker-side names of one namespace."""

    space: ClassVar[Namespace]
    field: ClassVar[str]

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Refuse wrong names, and a map that cannot be undone."""
        names = raw.get(cls.field)
        if isinstance(names, dict):
            for where, message in check_renames(names, cls.space):
                yield (cls.field, *where), message

    def layer(self) -> Layer:
        """Return the map, indexed in both directions."""
        return Layer.of(getattr(self, self.field), self.space)

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        yield self.space, self.layer()
