"""Rules as they are parsed from their documents, before they become a rule set."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.values.source import Source, Where


class ListenerTraits(NamedTuple):
    """Listener as far as rules must know it: its cluster, whether it speaks TLS, and whether brokers keep their own
    addresses there."""

    cluster: str
    tls: bool
    transparent: bool = False


@dataclass(frozen=True)
class ParsedRule:
    """Rule and where it was written; `rule` is None when there are mistakes in it, `name` when it has none.

    `at` is its path in the source, `stage` the number of the scenario's stage that it belongs to (None: to none), `ttl`
    after how many seconds it goes away by itself (None: it does not), `raw` what was written, without that.
    """

    name: str | None
    rule: Rule | None
    source: Source
    at: Where
    stage: int | None = None
    ttl: float | None = None
    raw: dict[Any, Any] = field(default_factory=dict)

    def note(self, where: tuple[Any, ...], message: str, *, key: bool = False) -> None:
        """Note a mistake at a path below this rule."""
        self.source.note((*self.at, *where), message, key=key)

    @cached_property
    def position(self) -> str:
        """Return the rule's place in its document as `file:line:column`."""
        return self.source.position(self.at)
