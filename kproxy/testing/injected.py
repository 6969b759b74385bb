"""A rule that a test has injected: its counters, waiting, resuming, removal; and why a rule did not act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from kproxy.base.errors import NoSuchRule, plural, renamed
from kproxy.rules.document.store import RuleStore, StoreChange
from kproxy.rules.rule_set import ActiveRule
from kproxy.runtime.rule_keeper import CounterName

from .embedded import Embedded
from .exchanges import SeenExchange, SeenExchanges
from .mock_rules import remove_hook
from .rule_arguments import Misuse, match_of

WAIT = 10.0
"""Default timeout of a wait, in seconds: far more than a client's own pauses between retries."""


SLOW = "hook_slow"
"""Name of the problem of a slow Python function: it delays other connections in production, but is not a problem in a
test."""


class RuleCounters(NamedTuple):
    """Counters of a rule. matched: requests that match the selectors; fired: matched requests for which the trigger
    fired; applied: fired requests with an effect that has been sent."""

    matched: int
    fired: int
    applied: int

    def __str__(self) -> str:
        return f"matched {self.matched}, fired {self.fired}, applied {self.applied}"


class Injected:
    """A rule in force, from `inject` until `remove` or the end of its `with` block; its counters stay readable after
    that. `story` returns how far the rule came, for a wait that times out. `place`: `file:line:column` of a rule that a
    file defines, empty for one that the test injected."""

    def __init__(
        self,
        engine: Embedded,
        rule: Mapping[str, Any],
        running: ActiveRule | None,
        hook: str | None,
        story: Callable[[Injected], str],
        place: str = "",
    ) -> None:
        self.engine, self.rule, self.running, self.hook, self.story = engine, rule, running, hook, story
        self.name, self.kind = str(rule["name"]), str(rule["kind"])
        self.removed, self.place = False, place

    # ---- counters

    @property
    def counters(self) -> RuleCounters:
        """Return all three counters at one moment; everything that a client can have noticed is counted. Raises
        NoSuchRule for a rule that has none."""
        running = self.running
        if running is None:
            raise NoSuchRule(f'"{self.name}" binds when a connection opens; rules of the kind {self.kind} do not count')
        return self.engine.call(lambda: RuleCounters(running.matched, running.fired, running.applied))

    @property
    def matched(self) -> int:
        return self.counters.matched

    @property
    def fired(self) -> int:
        return self.counters.fired

    @property
    def applied(self) -> int:
        return self.counters.applied

    @property
    def hits(self) -> int:
        """Return the same as `fired`: how often the rule acted, whether that has gone out yet or is held."""
        return self.counters.fired

    @property
    def problems(self) -> list[str]:
        """Return the problems in the rule itself, such as an exception in a Python function of the test."""
        running = self.running
        if running is None:
            return []
        told = [f"{one.what}, {times(one.count)}: {one.last}" for one in running.effect.problems() if one.count
                and one.what != SLOW]  # fmt: skip
        return told + ([f"failed {times(running.raised)}: {running.said}"] if running.raised else [])

    @property
    def notes(self) -> list[str]:
        """Return notes about harmless events: a Python function of the test blocked the proxy."""
        running = self.running
        return [] if running is None else [
            f"slow, {times(one.count)}: everybody waits for a function meanwhile; the last was {one.last}"
            for one in running.effect.problems() if one.count and one.what == SLOW
        ]  # fmt: skip

    # ---- waiting

    def wait(self, hits: int = 1, timeout: float = WAIT, count: CounterName = "fired") -> Self:
        """Return once the rule has acted `hits` times. Raises AssertionError after `timeout` seconds.

        It blocks the calling thread and its event loop, including a client that uses that loop.
        """
        __tracebackhide__ = True
        return self._settle(self._reached(hits, timeout, count), hits, timeout, count)

    async def until(self, hits: int = 1, timeout: float = WAIT, count: CounterName = "fired") -> Self:  # noqa: ASYNC109  # of both loops
        """Wait like `wait`, without blocking the test's event loop (asyncio or trio)."""
        done = self._reached(hits, timeout, count)
        if trio.lowlevel.in_trio_run():
            token, event = trio.lowlevel.current_trio_token(), trio.Event()

            def tell(done: Future[bool]) -> None:
                with suppress(trio.RunFinishedError):  # the test has ended
                    token.run_sync_soon(event.set)

            done.add_done_callback(tell)
            await event.wait()
        else:
            import asyncio

            await asyncio.wrap_future(done)
        return self._settle(done, hits, timeout, count)

    def _reached(self, hits: int, timeout: float, count: CounterName) -> Future[bool]:
        if not self.removed:
            return self.engine.reached(self.name, hits, count, timeout)
        done: Future[bool] = Future()
        done.set_result(getattr(self.counters, count) >= hits)
        return done

    def _settle(self, done: Future[bool], hits: int, timeout: float, count: CounterName) -> Self:
        __tracebackhide__ = True
        if done.result():
            return self
        said = f'the rule "{self.name}" has not {count} {times(hits)} within {timeout:g} s'
        raise AssertionError(f"{said}\n{self.story(self)}")

    # ---- ends

    if not TYPE_CHECKING:  # a type checker reports unknown attributes itself

        def __getattr__(self, name):
            hint = renamed("method", name, ["resume"])
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def resume(self) -> int:
        """Resume the requests that the rule holds (`when: {hold: true}`). Return their number."""
        running = self.running
        return 0 if running is None else self.engine.call(running.resume)

    def remove(self) -> None:
        """Take the rule out: it acts no more, and the requests that it holds go on. Does nothing the second time."""
        if not self.removed:
            self.removed = True
            self.engine.call(lambda: self.engine.proxy.keeper.do("removed", self._take_out, rule=self.name))
            if self.hook is not None:
                remove_hook(self.hook)

    def _take_out(self, store: RuleStore, now: float) -> StoreChange:
        return store.remove(self.name, now) if self.name in store.stored_rules else StoreChange()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        counters = "" if self.running is None else f": {self.counters}"
        return f'<rule "{self.name}"{counters}{", removed" if self.removed else ""}>'


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


MOST_LINES = 12
"""Maximum number of items of one list; longer lists of APIs or topics show the most frequent ones."""
LOG_LINES = 20
HIDDEN = ("name", "kind")
MOCK = " (librdkafka's mock, see its limits in docs/test-faults.md; Apache Kafka: --kproxy-upstream=kafka)"


def written(rule: Injected) -> str:
    """Return the rule as the call of `inject` for it, after its place if a file defines it."""
    params = "".join(f", {name}={value!r}" for name, value in rule.rule.items() if name not in HIDDEN)
    if rule.place:
        return f"{rule.place}: {rule.kind}{params}"
    return f"inject({rule.kind!r}{params})"


def explain(rule: Injected, seen: SeenExchanges, bootstrap: str) -> str:
    """Return lines with the stage at which a rule stopped, and the exchanges that were seen instead."""
    return "\n".join(f"  {line}" for line in (written(rule), *reasons(rule, seen, bootstrap)))


def reasons(rule: Injected, seen: SeenExchanges, bootstrap: str) -> Iterator[str]:
    """Yield the rule's counters and problems, the stage at which it stopped, and the exchanges that went through."""
    if rule.running is None:
        yield f"rules of the kind {rule.kind} bind when a connection opens, and do not count"
        return
    counters = rule.counters
    yield str(counters)
    yield from (*rule.problems, *rule.notes)
    if not seen.all:
        yield f"nothing has gone through kproxy: do the clients connect to {bootstrap}?"
    elif not counters.matched:
        yield from unmatched(rule.rule.get("match") or {}, seen)
    elif not counters.fired:
        yield f"its trigger let none of them fire it: when={rule.rule.get('when')}"
    elif not counters.applied:
        yield from unapplied(rule, seen)
    if seen.all:
        yield f"seen: {summary(seen.all)}"


def unapplied(rule: Injected, seen: SeenExchanges) -> Iterator[str]:
    """Yield why a rule that fired was not applied: how many of its requests are unanswered, and why."""
    open_ones = [one for one in seen.all if rule.name in one.taken.rules and one.answered is None]
    if not open_ones:
        yield "it fired, and had nothing to change in those requests and responses"
    for cause, number in Counter(one.taken.cut_by for one in open_ones).items():
        requests = f"{plural(number, 'request')} that it fired for"
        if not cause:
            held = "held by this rule or still" if (rule.rule.get("when") or {}).get("hold") else "still"
            yield f"{requests}: {held} unanswered, the connection is open"
        elif cause.startswith("client_"):
            yield f"{requests}: the client closed the connection ({cause}) before the response was sent"
        else:
            yield f"{requests}: the connection was closed ({cause}) before the response was sent"


def unmatched(match: Mapping[str, Any], seen: SeenExchanges) -> Iterator[str]:
    """Yield for each selector alone how many exchanges it matches."""
    for name, value in match.items():
        try:
            found = len(seen.where(match_of({name: value})))
        except Misuse:
            continue
        yield f"{name}={value!r} alone matches {found or 'none'} of {plural(len(seen.all), 'exchange')}"


def summary(exchanges: list[SeenExchange]) -> str:
    """Return the most frequent exchanges in one line: `4 × Produce 9 (orders), Produce 9 (orders) →
    NOT_LEADER_OR_FOLLOWER`."""
    counts = Counter(map(str, exchanges))
    listed = [f"{count} × {text}" if count > 1 else text for text, count in counts.most_common(MOST_LINES)]
    rest = len(counts) - len(listed)
    return ", ".join(listed) + (f", and {plural(rest, 'other')}" if rest else "")


def overview(engine: Embedded, loaded: Sequence[Injected], injected: Sequence[Injected], seen: SeenExchanges) -> str:
    """Return the report for a failed test: seed, rules of files and of the test, traffic and log."""
    seed = engine.store.seed
    brokers = engine.upstream + (MOCK if engine.mock else "")
    lines = [f"seed {seed} (the same chances again: --kproxy-seed={seed})",
             f"clients at {engine.bootstrap_servers}, brokers at {brokers}"]  # fmt: skip
    # A production file may have hundreds of rules: those that matched come first, and only this many others are listed.
    matched = [one for one in loaded if one.running is not None and one.matched]
    others = [one for one in loaded if one not in matched]
    for rule in (*matched, *others[:MOST_LINES], *injected):
        counters = "" if rule.running is None else f": {rule.counters}"
        lines.append(f'rule "{rule.name}"{" (removed)" if rule.removed else ""}{counters}')
        lines.append(f"  {written(rule)}")
        lines += [f"  {problem}" for problem in (*rule.problems, *rule.notes)]
    if len(others) > MOST_LINES:
        lines.append(f"and {plural(len(others) - MOST_LINES, 'more rule')} of files, which matched nothing")
    older = f" (and {plural(seen.forgotten, 'exchange')} before that)" if seen.forgotten else ""
    lines.append(f"went through: {summary(seen.all) or 'nothing'}{older}")
    lines += seen.missing.values()
    log = engine.log().splitlines()[-LOG_LINES:]
    return "\n".join([*lines, *(["log:"] if log else []), *(f"  {line}" for line in log)])
