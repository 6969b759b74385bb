"""Rules that end with the pages of the live view that added them.

A page names itself by a random id, in the query of its stream and of the rules that it adds. It is present while a
stream of its id is open, and for GRACE seconds after. A rule is removed once none of its pages is present. All of this
is in the process that serves the admin API, so it is the same with and without workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from structlog.typing import FilteringBoundLogger

from kproxy.errors import KproxyError, NoSuchRule, RuleInUse
from kproxy.net.rules.keeper import RuleKeeper
from kproxy.rules.stored_rules import StoredDocument

GRACE = 30.0
"""Seconds that a page may be without a stream: a reload, or a connection that breaks, takes less."""


@dataclass(slots=True)
class LeasedRule:
    """Rule with the pages that it needs one of. `document`: the rule as they added it."""

    document: StoredDocument
    pages: set[str] = field(default_factory=set)


class PageLeases:
    """Pages that are present, and the rules that end with them."""

    def __init__(self, keeper: RuleKeeper, log: FilteringBoundLogger, clock: Callable[[], float] = monotonic) -> None:
        self.keeper, self.log, self.clock = keeper, log, clock
        self.streams: Counter[str] = Counter()
        self.left: dict[str, float] = {}  # when a page without a stream is present no more
        self.rules: dict[str, LeasedRule] = {}

    def opened(self, page: str) -> None:
        """Count a stream of this page."""
        self.streams[page] += 1
        self.left.pop(page, None)

    def closed(self, page: str) -> None:
        """Count a stream of this page no more; begin the grace period after the last one."""
        self.streams[page] -= 1
        if not self.streams[page]:
            del self.streams[page]
            self.leave(page)

    def add(self, page: str, names: Iterable[str]) -> None:
        """Have these rules of the store end with this page, besides others. With "", they end with no page."""
        stored = self.keeper.store.stored_rules
        self.rules = {name: leased for name, leased in self.rules.items() if name in stored}
        for name in names:
            before = self.rules.pop(name, None)
            if page:
                pages = {page} if before is None else {*before.pages, page}
                self.rules[name] = LeasedRule(stored[name].stored_document, pages)
        if page not in self.streams:
            self.leave(page)

    def leave(self, page: str) -> None:
        """Begin the grace period of a page, if rules depend on it."""
        if any(page in leased.pages for leased in self.rules.values()):
            due = self.left[page] = self.clock() + GRACE
            self.keeper.reactor.call_at(due, lambda: self.look(page))

    def look(self, page: str) -> None:
        """Remove the rules of a page whose grace period is over."""
        due = self.left.get(page)
        if due is None or self.clock() < due:
            return
        del self.left[page]
        for name, leased in list(self.rules.items()):
            leased.pages.discard(page)
            if not leased.pages:
                del self.rules[name]
                self.keeper.reactor.spawn(self.remove, name, leased.document)

    async def remove(self, name: str, document: StoredDocument) -> None:
        """Remove a rule, unless it is gone or was replaced. If that fails, try again after GRACE seconds."""

        def check() -> None:
            if self.keeper.store[name].stored_document is not document:
                raise RuleInUse(f'the rule "{name}" was replaced')

        try:
            await self.keeper.do_everywhere(
                "removed with its page", lambda store, now: store.remove(name, now), rule=name, check=check
            )
        except (NoSuchRule, RuleInUse):
            pass
        except KproxyError as error:
            self.log.warning("rule not removed with its page, trying again later", rule=name, reason=str(error))
            again = partial(self.keeper.reactor.spawn, self.remove, name, document)
            self.keeper.reactor.call_at(self.clock() + GRACE, again)
