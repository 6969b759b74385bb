"""Backend of the admin API: the running proxy.

A proxy has one member per process that carries traffic; without workers this is one member in this process. Operations
ask members for connections, nodes and tails. Rules, captures and ports belong to the backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.base.errors import KproxyError, plural
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.live_view.reading import OpenedCaptures
from kproxy.record.live_view.watch import ViewTotals, tick_of, together
from kproxy.rules.document.store import StoredDocument
from kproxy.runtime.io.scheduler import in_turns
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.readiness import ClusterNeed, Readiness
from kproxy.runtime.rule_keeper import RuleKeeper
from kproxy.runtime.server import Server

from .guard import AdminTokens
from .problem import MemberGone, Problem
from .worker_api import Member, ViewTerms

if TYPE_CHECKING:
    from kproxy.app.config.keeper import ConfigKeeper
    from kproxy.app.workers.pool_captures import PoolCaptures

T = TypeVar("T")


@dataclass(eq=False)
class Backend:
    """Running proxy as the operations see it. `readiness`: clusters that do not respond yet. `scraped`: the metrics for
    Prometheus. `addresses`: where clients of a listener reach these nodes. `need`: clusters that have to respond before
    the proxy is ready."""

    keeper: RuleKeeper
    members: Sequence[Member]
    readiness: Callable[[], Awaitable[Readiness]]
    scraped: Callable[[], Awaitable[bytes]]
    captures: PoolCaptures
    addresses: Callable[[str, Mapping[int, HostPort]], Mapping[int, HostPort]]
    log: FilteringBoundLogger
    need: ClusterNeed = "any"
    began: float = field(default_factory=monotonic)
    sources: OpenedCaptures = field(default_factory=OpenedCaptures)
    listeners: set[int] = field(default_factory=set)  # Numbers of those who listen to a tail; `numbers` gives them out
    numbers: count[int] = field(default_factory=count)
    view: ViewConfig = field(default_factory=ViewConfig)
    configs: ConfigKeeper | None = None
    """Keeper of the config in force; None where it does not change while kproxy runs."""
    tokens: AdminTokens = field(default_factory=AdminTokens)  # Tokens that the admin address asks for
    stream: str = field(default_factory=partial(token_hex, 4))
    """Id of all streams of views: places in them mean something as long as this is the same."""
    totals: TotalsKeeper = field(init=False)
    leases: PageLeases = field(init=False)  # Rules that end with pages of the view
    streams: dict[Any, trio.CancelScope] = field(default_factory=dict)  # Scopes of the streams that go on now

    def __post_init__(self) -> None:
        self.totals = TotalsKeeper(self)
        self.leases = PageLeases(self.keeper, self.log)

    def use_view(self, view: ViewConfig) -> None:
        """Apply another view config, and end the streams that it no longer allows."""
        before, self.view = self.view, view
        for stream, scope in self.streams.items():
            if not stream.goes_on(before, view):
                scope.cancel()

    async def ask_members(self, ask: Callable[[Member], Awaitable[T]]) -> list[T]:
        """Call all members concurrently; return their results in order. Results of a process that ends during the call
        are missing. Raises Problem if a member refuses or does not respond."""
        answers: dict[int, T] = {}
        errors: dict[int, Exception] = {}

        async def ask_one(member: Member) -> None:
            try:
                answers[member.index] = await ask(member)
            except MemberGone:
                pass
            except Exception as error:  # noqa: BLE001  # raised below, alone
                errors[member.index] = error

        async with trio.open_nursery() as nursery:
            for member in self.members:
                if member.process is not None:
                    nursery.start_soon(ask_one, member)
        for index in sorted(errors):
            raise errors[index]
        return [answers[index] for index in sorted(answers)]


def process_backend(
    keeper: RuleKeeper, server: Server, find_readiness: Callable[[], Readiness],
    metrics: Callable[[], Iterable[bytes]], log: FilteringBoundLogger, *, captures: PoolCaptures,
    need: ClusterNeed = "any", view: ViewTerms | None = None,
) -> Backend:  # fmt: skip
    """Return the backend of a proxy without workers."""

    async def readiness() -> Readiness:
        return find_readiness()

    async def scraped() -> bytes:
        return await joined(metrics())

    def addresses(listener: str, nodes: Mapping[int, HostPort]) -> Mapping[int, HostPort]:
        return server.port_service.known_addresses(listener, nodes)

    members = [Member(server, keeper, view=view)]
    config = ViewConfig(enabled=False) if view is None else view.config
    return Backend(keeper, members, readiness, scraped, captures, addresses, log, need, view=config)


async def joined(pieces: Iterable[bytes]) -> bytes:
    text = bytearray()

    def add() -> Iterator[None]:
        for piece in pieces:
            text.extend(piece)
            yield

    await in_turns(add())
    return bytes(text)


FRESH = 0.5  # Maximum age of cached totals in seconds: every viewer requests them each second
MOST_RULES = 1000  # Rules with counters in each tick; /api/rules lists all rules

RuleTotals = tuple[int, int, int, int]  # Counters of one rule: matched, fired, applied, and how many it holds now


@dataclass(frozen=True, slots=True)
class SecondTotals:
    """Totals of all processes at one time, with counters of rules, and versions of rules and captures. A page reads
    these resources again when a version changes."""

    at: float
    totals: ViewTotals
    rules: Mapping[str, RuleTotals] = field(default_factory=dict)
    rules_version: str = ""
    captures_version: str = ""

    @property
    def known(self) -> bool:
        return self.at > float("-inf")

    def tick(self, before: SecondTotals) -> dict[str, Any]:
        told = tick_of(self.totals, before.totals, self.at - before.at)
        told["rules"] = {name: grown(counts, before.rules.get(name)) for name, counts in self.rules.items()}
        if self.totals.audit:
            told["audit"] = dict(
                zip(("written", "waiting", "lost", "failing", "blocked"), self.totals.audit, strict=True)
            )
        return told


def grown(counts: RuleTotals, before: RuleTotals | None) -> list[int]:
    """Return the increase of a rule's counters, and the number of frames it holds."""
    return [*(max(0, now - then) for now, then in zip(counts[:3], (before or counts)[:3], strict=True)), counts[3]]


class TotalsKeeper:
    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.counting = trio.Lock()
        self.last = SecondTotals(float("-inf"), ViewTotals())

    async def latest(self) -> SecondTotals:
        """Return totals at most FRESH seconds old; the previous totals if a process does not respond."""
        async with self.counting:
            if monotonic() - self.last.at > FRESH:
                with suppress(Problem):
                    self.last = await self.count()
        return self.last

    async def count(self) -> SecondTotals:
        backend = self.backend
        totals = together(await backend.ask_members(lambda member: member.view_totals()))
        await backend.keeper.count()
        store = backend.keeper.store
        rules: dict[str, RuleTotals] = {}
        for name, stored in list(store.stored_rules.items())[:MOST_RULES]:
            running = stored.running
            if running is not None:
                rules[name] = running.matched, running.fired, running.applied, len(running.held)
        captures = [(one.name, one.state) for one in await backend.captures.show_all()]
        switched = [(name, stored.active) for name, stored in store.stored_rules.items()]
        return SecondTotals(
            monotonic(),
            totals,
            rules,
            f"{store.rule_set.id}-{digest([*switched, store.faults_disabled])}",
            digest(captures),
        )


def digest(things: list[Any]) -> str:
    """Return a short hash of these values."""
    return blake2b(repr(things).encode(), digest_size=4).hexdigest()


GRACE = 30.0  # Seconds that a page may be without a stream: a reload, or a connection that breaks, takes less


@dataclass(slots=True)
class LeasedRule:
    """Rule that is removed once none of `pages` is present. `document`: the rule as added."""

    document: StoredDocument
    pages: set[str] = field(default_factory=set)


class PageLeases:
    """Present pages, and the rules that are removed with them."""

    def __init__(self, keeper: RuleKeeper, log: FilteringBoundLogger, clock: Callable[[], float] = monotonic) -> None:
        self.keeper, self.log, self.clock = keeper, log, clock
        self.streams: Counter[str] = Counter()
        self.left: dict[str, float] = {}  # when a page without a stream is present no more
        self.rules: dict[str, LeasedRule] = {}

    def opened(self, page: str) -> None:
        self.streams[page] += 1
        self.left.pop(page, None)

    def closed(self, page: str) -> None:
        """Count a closed stream of this page; the last one starts the grace period."""
        self.streams[page] -= 1
        if not self.streams[page]:
            del self.streams[page]
            self.page_left(page)

    def add(self, page: str, names: Iterable[str]) -> None:
        """Lease rules of the store to this page; "" removes their leases."""
        stored = self.keeper.store.stored_rules
        self.rules = {name: leased for name, leased in self.rules.items() if name in stored}
        for name in names:
            before = self.rules.pop(name, None)
            if page:
                pages = {page} if before is None else {*before.pages, page}
                self.rules[name] = LeasedRule(stored[name].stored_document, pages)
        if page not in self.streams:
            self.page_left(page)

    def page_left(self, page: str) -> None:
        """Start the grace period of a page that has rules."""
        if any(page in leased.pages for leased in self.rules.values()):
            due = self.left[page] = self.clock() + GRACE
            self.keeper.reactor.call_at(due, lambda: self.expire(page))

    def expire(self, page: str) -> None:
        """Remove the rules of pages with an expired grace period."""
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
                "removed with its page" if rule else f"{plural(len(gone), 'rule')} removed with their page",
                lambda store, now: store.remove_documents(documents, now), rule=rule,
            )  # fmt: skip
        except KproxyError as error:
            self.log.warning(
                "rules not removed with their page, trying again later", rules=len(gone), reason=str(error)
            )
            again = partial(self.keeper.reactor.spawn, self.remove, gone)
            self.keeper.reactor.call_at(self.clock() + GRACE, again)
