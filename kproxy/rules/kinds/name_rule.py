"""What the kinds that change names have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from kproxy.rules.explain import Wrong
from kproxy.rules.kinds.base import Rule
from kproxy.rules.name_checks import check_renames
from kproxy.rules.name_layer import Layer
from kproxy.rules.names import AnyLayer
from kproxy.rules.namespace import Namespace


class NameRule(Rule):
    """A rule that puts a layer between client-side and broker-side names of one namespace or more."""

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        """The layers, at most one for each namespace."""
        raise NotImplementedError


class RenameRule(NameRule):
    """A rename: one field holds a map of client-side to broker-side names of one namespace."""

    space: ClassVar[Namespace]
    field: ClassVar[str]

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Every line of the map, and that it can be undone."""
        names = raw.get(cls.field)
        if isinstance(names, dict):
            for where, message in check_renames(names, cls.space):
                yield (cls.field, *where), message

    def layer(self) -> Layer:
        """The map, indexed both ways."""
        return Layer.of(getattr(self, self.field), self.space)

    def layers(self) -> Iterator[tuple[Namespace, AnyLayer]]:
        """The one of this rule."""
        yield self.space, self.layer()
