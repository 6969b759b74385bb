"""Gate: decides by the rules `allow_from` who may connect, before there is a session, or TLS.

Of the rules that hold for a connection any may let it in; one for which none holds comes in. A rule that observes
counts where it would have kept a client out, beside all the others, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kproxy.rules.facts import Facts
from kproxy.rules.kinds.allow_from import AllowFrom
from kproxy.rules.running import Running

SHOWN = 3
"""Rules named in the reason; of more there is a number."""


@dataclass(frozen=True, slots=True)
class Barred:
    """Refusal of a client that may not come in. `rules`: those of which any would have had to let it in."""

    client_address: str
    rules: tuple[Running, ...]

    @property
    def how(self) -> Literal["rst", "fin"]:
        """Return the way in which its connection ends: as the first rule says."""
        return _model(self.rules[0]).how

    @property
    def closes(self) -> bool:
        """Return True if a connection that is open already ends, too."""
        return any(_model(one).existing == "close" for one in self.rules)

    @property
    def why(self) -> str:
        """Return the reason for the log, with the names of some rules."""
        names = ", ".join(f'"{one.name}"' for one in self.rules[:SHOWN])
        more = f" and {len(self.rules) - SHOWN} more" if len(self.rules) > SHOWN else ""
        return f"{self.client_address} is in none of the networks of {names}{more}"


class Gate:
    """Gate of a rule set: its rules `allow_from`."""

    __slots__ = ("rules",)

    def __init__(self, live: Iterable[Running]) -> None:
        self.rules = tuple(one for one in live if isinstance(one.rule, AllowFrom))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def ask(self, facts: Facts) -> Barred | None:
        """Return why a client that connects may not come in, None if it may; count what the rules did."""
        holding = [rule for rule in self.rules if rule.rule.holds(facts)]
        barred = self.evaluate(facts, holding)
        unknown = not any(_model(rule).lets_in(facts.client_address) for rule in holding)
        for rule in holding:
            rule.count(fired=unknown if rule.observes else barred is not None)
            if barred is not None and not rule.observes:
                rule.was_applied()
        return barred

    def look(self, facts: Facts) -> Barred | None:
        """Return the same, of a connection that is open, without counting it."""
        return self.evaluate(facts, [one for one in self.rules if one.rule.holds(facts)])

    @staticmethod
    def evaluate(facts: Facts, holding: Iterable[Running]) -> Barred | None:
        deciding = tuple(one for one in holding if not one.observes)
        if not deciding or any(_model(one).lets_in(facts.client_address) for one in deciding):
            return None
        return Barred(facts.client_address, deciding)


def _model(running: Running) -> AllowFrom:
    assert isinstance(running.rule, AllowFrom)
    return running.rule
