"""Rules that end with the pages of the live view that added them.

A page names itself by a random id, in the query of its stream and of the rules that it adds. It is present while a
stream of its id is open, and for GRACE seconds after. A rule is removed once none of its pages is present. All of this
is in the process that serves the admin API, so it is the same with and without workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import KproxyError
from kproxy.rules.document.store import StoredDocument
from kproxy.runtime.rules.keeper import RuleKeeper

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
        gone: dict[str, StoredDocument] = {}
        for name, leased in list(self.rules.items()):
            leased.pages.discard(page)
            if not leased.pages:
                gone[name] = self.rules.pop(name).document
        if gone:
            self.keeper.reactor.spawn(self.remove, gone)

    async def remove(self, gone: Mapping[str, StoredDocument]) -> None:
        """Remove rules, except those that were replaced, in one operation. If it fails, repeat it after GRACE seconds.

        One operation, because each copies and checks all rules, and changes of operators wait for it.
        """
        stored = {id(one) for one in self.keeper.store.documents}
        gone = {name: one for name, one in gone.items() if id(one) in stored}
        if not gone:
            return
        documents = {id(one) for one in gone.values()}
        rule = next(iter(gone)) if len(gone) == 1 else None
        try:
            await self.keeper.do_everywhere(
                "removed with its page" if rule else f"{len(gone)} rules removed with their page",
                lambda store, now: store.remove_documents(documents, now), rule=rule,
            )  # fmt: skip
        except KproxyError as error:
            self.log.warning(
                "rules not removed with their page, trying again later", rules=len(gone), reason=str(error)
            )
            again = partial(self.keeper.reactor.spawn, self.remove, gone)
            self.keeper.reactor.call_at(self.clock() + GRACE, again)
