"""Events about rules: sets that came into force or were refused, and the counts of each live rule by the minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kproxy.events.schema import RULE_EVENT
from kproxy.rules.running import Running

from .gate import EventGate
from .text import stamp

RuleCounts = tuple[int, int, int, int]
"""Counts of a rule: set back, matched, fired, applied."""
LiveRules = Callable[[], Iterable[Running]]
MOST_MISTAKES = 100
"""Mistakes of a refused set that its event tells; the log and the API have them all."""
MINUTE = 60.0


class RuleEvents:
    """Maker of the events about rules. `live` gives the live rules in force."""

    def __init__(self, events: EventGate, live: LiveRules) -> None:
        self.events, self.live = events, live
        self.reported: dict[Running, RuleCounts] = {}
        self.minute: float | None = None

    def loaded(self, now: float, origin: str, version: str, rules: int, before: str | None = None) -> None:
        """Put the event that a set came into force. `now`: seconds since 1970, here as everywhere in this class."""
        what = "loaded" if before is None else "swapped"
        data = {"what": what, "origin": origin, "version": version, "rules": rules}
        self.put(now, data if before is None else data | {"before": before})

    def rejected(self, now: float, origin: str, version: str, mistakes: Iterable[str]) -> None:
        """Put the event that a set was refused; the one of `version` stays in force."""
        first_mistakes = list(mistakes)[:MOST_MISTAKES]
        self.put(now, {"what": "rejected", "origin": origin, "version": version, "mistakes": first_mistakes})

    def changed(self, now: float, change: str, rule: str | None, version: str, rules: int) -> None:
        """Put the event of a change of one rule or of all: removed, expired, enabled, killed …"""
        what = next((word for word in ("removed", "expired") if change.startswith(word)), "changed")
        data = {"what": what, "change": change, "version": version, "rules": rules}
        self.put(now, data if rule is None else data | {"rule": rule})

    def tick(self, now: float) -> None:
        """Put the events of the minute that is over, if one is. To be called every second or so."""
        minute = now // MINUTE * MINUTE
        if self.minute is None:
            self.minute = minute
        elif minute > self.minute:
            self.tell()
            self.minute = minute

    def tell(self) -> None:
        """Put the counts of the rules in force since the last call.

        To be called also at the end, and before the rules are replaced.
        """
        counts = {}
        for running in self.live():
            counts[running] = now = (running.resets, running.matched, running.fired, running.applied)
            then = self.reported.get(running, (0, 0, 0, 0))
            if now[0] != then[0]:  # counted from 0 again
                then = (now[0], 0, 0, 0)
            if now != then:
                self.fired(running, [a - b for a, b in zip(now[1:], then[1:], strict=True)])
        self.reported = counts

    def fired(self, running: Running, grown: list[int]) -> None:
        minute = self.minute or 0.0
        data = {
            "what": "fired",
            "rule": running.name,
            "kind": running.rule.kind,
            "origin": running.origin,
            "minute": stamp(minute),
            "matched": grown[0],
            "fired": grown[1],
            "applied": grown[2],
        }
        self.put(minute, data | {"observes": True} if running.observes else data)

    def put(self, now: float, data: dict[str, object]) -> None:
        self.events.put(RULE_EVENT.name, now, data)
