"""Rules as they stand in their documents, before they become a rule set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from kproxy.rules.kinds.base import Rule
from kproxy.rules.source import Source


class Place(NamedTuple):
    """What rules must know of a listener: its cluster, and whether it speaks TLS."""

    cluster: str
    tls: bool


@dataclass(frozen=True, slots=True)
class Written:
    """A rule and where it was written; `rule` is None when there are mistakes in it, `name` when it has none."""

    name: str | None
    rule: Rule | None
    source: Source
    index: int

    def note(self, where: tuple[Any, ...], message: str, *, key: bool = False) -> None:
        """Note a mistake at a path below this rule."""
        self.source.note(("rules", self.index, *where), message, key=key)

    @property
    def position(self) -> str:
        return self.source.position(("rules", self.index))
