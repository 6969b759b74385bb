"""The fixture `kproxy` as a test sees it: the proxy's address, rules to put in and take out, the exchanges that went
through."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from kproxy.base.errors import DocumentError, KproxyError
from kproxy.rules.document.read import Document, check_ttl, read_document
from kproxy.rules.document.store import StoredRule
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.values.source import Source
from kproxy.runtime.rule_keeper import CounterName

from .embedded import Embedded
from .exchanges import SeenExchange, SeenExchanges
from .injected import WAIT, Injected, explain, overview
from .mock_rules import FILE as MOCK_FILE
from .mock_rules import put_hook, remove_hook
from .rule_arguments import InjectedFaults, Misuse, in_words, match_of, plain, rule_source

if TYPE_CHECKING:
    from kproxy.tools.verify.finding import Finding
    from kproxy.tools.verify.options import FailOnTerm

    from .verification import TapeReader

TTL = 3600.0
"""TTL in seconds of a test's rule, so that it expires even if the test is killed: longer than any test, and than most
debugger sessions."""

LONGEST_TEST = 40
"""Characters of a test's name in its topic prefix; topic names have up to 249."""

PATIENCE = 10.0
"""Seconds to wait for the list of topics, and for each topic's deletion."""


NAMES_RULE = "names of its own"
"""Name of the rule that gives a test its own names on the cluster."""


class KproxyWarning(UserWarning):
    """A warning for the author of a test that does not fail the test."""


class Kproxy:
    """One test's view of a running proxy.

    Attributes: bootstrap_servers (addresses for clients), own_bootstrap_servers (addresses for test setup and checks:
    only rules about names act there, and `exchanges` does not contain its traffic), upstream (the brokers behind the
    proxy), seed (for all random choices), prefix (of this test's names on the brokers; empty without one), alone (the
    topics and groups are exclusive to the test), faults (injected into this run by an exploration or its rule file;
    empty in an ordinary run).
    """

    def __init__(self, engine: Embedded) -> None:
        self.engine = engine
        self.bootstrap_servers, self.own_bootstrap_servers = engine.bootstrap_servers, engine.own_bootstrap_servers
        self.upstream, self.seed = engine.upstream, engine.store.seed
        self.injected: list[Injected] = []
        self.prefix, self.alone = engine.prefix, bool(engine.prefix)
        self.faults = InjectedFaults()
        self._kept: list[Document] = []
        self._numbers: dict[str, itertools.count[int]] = {}

    # ---- rules

    @property
    def rules(self) -> list[Injected]:
        """Return the rules of this test that are in force, in evaluation order."""
        return [one for one in self.injected if not one.removed]

    def inject(self, kind: str, *, name: str | None = None, ttl: float | str = TTL, **params: Any) -> Injected:
        """Put a rule into force: for the next frame of every connection, or, if its kind binds when connections open,
        for the next connection. As a context manager it is removed at the end of its block, otherwise at the end of the
        test.

        `params` are those of the kind in a rule file, and `match`, `not_`, `when`, `mode`. The `call` of a `python`
        rule may be a function. Raises Misuse with everything that is wrong in them.
        """
        __tracebackhide__ = True
        name = name or f"{kind} {next(self._numbers.setdefault(kind, itertools.count(1)))}"
        hook = None
        if kind == "python" and callable(params.get("call")):
            hook = params["call"] = put_hook(params["call"])
        rule = {"name": name, "kind": kind, **plain(params)}
        try:
            running = self.engine.call(partial(self._put, rule, check_ttl(ttl)))
        except (KproxyError, ValueError) as error:
            if hook is not None:
                remove_hook(hook)
            raise error.with_traceback(None) from None  # the error is in the test, not in kproxy
        injected = Injected(self.engine, rule, running, hook, self.story)
        self.injected.append(injected)
        return injected

    def hold(self, *, name: str | None = None, when: Mapping[str, Any] | None = None, **params: Any) -> Injected:
        """Hold back requests that match until `resume`: a barrier instead of a sleep."""
        count = next(self._numbers.setdefault("hold", itertools.count(1)))
        return self.inject(
            "delay", name=name or f"hold {count}", delay=0, when={**(when or {}), "hold": True}, **params
        )

    def load(self, *files: str | Path) -> None:
        """Put rule files into force, before all that is injected, in the place of those that were loaded before."""
        self._load([read_document(Source.open(Path(file))) for file in files])

    def keep(self, sources: Iterable[Source]) -> None:
        """Put documents into force until the end of the test, before all others, whatever it loads itself."""
        self._kept += [read_document(source) for source in sources]
        self._load()

    def _load(self, others: Iterable[Document] = ()) -> None:
        self.engine.load([*self._kept, *self.engine.lasting, *others])

    def rule(self, name: str) -> Injected:
        """Return the rule of that name, of the test or of a loaded file. Raises NoSuchRule."""
        for one in self.injected:
            if one.name == name:
                return one
        return self._stored(self.engine.call(lambda: self.engine.store[name]))

    @property
    def loaded(self) -> list[Injected]:
        """Return the rules of files: of --kproxy-rules, of the marker kproxy_rules, and of `load`."""
        store = self.engine.store
        found = self.engine.call(lambda: [one for one in store.stored_rules.values() if one.origin == "file"])
        return [self._stored(one) for one in found if one.parsed.source.file != MOCK_FILE]

    def _stored(self, stored: StoredRule) -> Injected:
        raw = {"name": stored.name, **stored.parsed.raw}
        return Injected(self.engine, raw, stored.running, None, self.story, stored.parsed.position)

    def wait(
        self, rule: Injected | str, hits: int = 1, timeout: float = WAIT, count: CounterName = "fired"
    ) -> Injected:
        """Wait like `Injected.wait`, for a rule that may also be given by its name."""
        __tracebackhide__ = True
        return self._one(rule).wait(hits, timeout, count)

    async def until(
        self,
        rule: Injected | str,
        hits: int = 1,
        timeout: float = WAIT,  # noqa: ASYNC109  # of asyncio and of trio
        count: CounterName = "fired",
    ) -> Injected:
        """Wait like `Injected.until`, for a rule that may also be given by its name."""
        return await self._one(rule).until(hits, timeout, count)

    def assert_applied(self, *rules: Injected | str) -> None:
        """Assert that each of these rules, or each that this test has put in, has changed something that has gone out.

        Without arguments, rules that bind when connections open are left out: they do not count. The message of the
        AssertionError has the counters of each rule and the exchanges that went through.
        """
        __tracebackhide__ = True
        wanted = [self._one(rule) for rule in rules] or [one for one in self.injected if one.running is not None]
        if not wanted:
            raise Misuse("assert_applied: expected an injected rule that counts, got none; name rules of files: "
                         "assert_applied('name')")  # fmt: skip
        missed = [one for one in wanted if not one.applied]
        if missed:
            raise AssertionError(
                "\n".join(f'the rule "{one.name}" was not applied\n{self.story(one)}' for one in missed)
            )

    def _one(self, rule: Injected | str) -> Injected:
        return self.rule(rule) if isinstance(rule, str) else rule

    # ---- names of its own

    def have_own_names(self, test: str, prefix: str = "") -> None:
        """Add `prefix` to topics, groups and transactional ids of this test on the brokers, and hide all others from
        it; applies to new connections. The default prefix is made from the test's name. If the proxy itself has a
        prefix, the test keeps that one."""
        if self.engine.prefix:
            return
        own = f"{re.sub('[^a-zA-Z0-9]+', '-', test)[:LONGEST_TEST].strip('-')}-{token_hex(4)}."
        for one in self.rules:
            if one.name == NAMES_RULE:
                one.remove()
        self.prefix, self.alone = prefix or own, True
        self.inject("prefix", name=NAMES_RULE, prefix=self.prefix)

    def delete_own_topics(self) -> None:
        """Delete the topics of the test at its end, without any fault in force; a warning names those that cannot be
        deleted. If the proxy itself has a prefix, its topics are kept."""
        if self.engine.prefix:
            return
        for one in self.rules:
            if one.kind != "prefix":
                one.remove()
        try:
            left = delete_topics(self.own_bootstrap_servers)
        except Exception as error:  # noqa: BLE001  # the test has ended; the warning names what stays
            left = [f"{type(error).__name__}: {error}"]
        if left:
            text = f'topics whose names begin with "{self.prefix}" stay on {self.upstream}: {"; ".join(left)}'
            warnings.warn(KproxyWarning(text), stacklevel=2)

    # ---- exchanges

    def exchanges(self, *, not_: Mapping[str, Any] | None = None, **match: Any) -> list[SeenExchange]:
        """Return requests with their responses, as this test's clients sent and got them, oldest first, selected by the
        arguments as by a rule's `match:`. Raises Misuse."""
        __tracebackhide__ = True
        yes, no = match_of(match), None if not_ is None else match_of(not_)
        tape, seen = self.engine.tape.front, self._selection()
        if seen.forgotten:
            message = f"{seen.forgotten} older exchanges of this test are not kept any more: at most {tape.most_frames}"
            warnings.warn(KproxyWarning(f"{message}, and {tape.most_bytes >> 20} MiB of frames"), stacklevel=2)
        for (_, what), lost in seen.missing.items():
            if what == "request":  # in answers a rule has mostly made it so
                warnings.warn(KproxyWarning(lost), stacklevel=2)
        return seen.where(yes, no)

    def findings(self, **asked: Any) -> list[Finding]:
        """Return the violations of Kafka's guarantees in this test's traffic; the arguments are those of `verify`.
        Raises Misuse."""
        __tracebackhide__ = True
        from .verification import judged  # most tests do without

        return judged(self._tape(), asked, alone=self.alone).findings

    def verify(self, *, fail_on: FailOnTerm = None, **asked: Any) -> None:
        """Assert that the traffic of this test violates no guarantee of Kafka.

        Examples: no acknowledged write is lost, no batch is stored twice, no commit is lost.

        The arguments are the options of `kproxy verify`: `view`, `only`, `without`, `level`, `fail_on`, `compacted`,
        `not_compacted`, `retention` (by topic), `assume_complete` and `records`. `fail_on`: such as "suspect" or
        "proved,lost-write=suspect", also in a list. Without `assume_complete`, the tape counts as complete for a
        cluster or names of the test's own. Raises AssertionError with the report, Misuse.
        """
        __tracebackhide__ = True
        from .verification import failure  # most tests do without

        found = failure(self._tape(), asked, fail_on, alone=self.alone)
        if found:
            raise AssertionError(found)

    def _tape(self) -> TapeReader:
        from .verification import TapeReader

        return self.engine.call(lambda: TapeReader(self.engine.tape, self.engine.topics))

    def _selection(self) -> SeenExchanges:
        taken, forgotten, cut = self.engine.call(self.engine.tape.snapshot)
        return SeenExchanges(taken, self.engine.topics, forgotten, cut)

    def story(self, rule: Injected) -> str:
        """Return how far a rule came, and why it came no further, in lines for a failed test."""
        return explain(rule, self._selection(), self.bootstrap_servers)

    def report(self) -> str:
        """Return a report for a failed test: the seed, all rules with their counters, the exchanges, the proxy's
        log."""
        return overview(self.engine, self.loaded, self.injected, self._selection())

    # ---- inside

    def _put(self, rule: Mapping[str, Any], ttl: float) -> ActiveRule | None:
        source = rule_source(rule)
        document = read_document(source)
        keeper = self.engine.proxy.keeper
        try:
            keeper.do("injected", lambda store, now: store.put(document, "test", now, ttl=ttl, again=False))
        except DocumentError as error:
            raise in_words(f"inject({rule['kind']!r})", source, rule, error, 3) from None
        return keeper.store[rule["name"]].running

    def clear(self) -> None:
        """Remove the test's rules and its exchanges; connections stay open. Warns of problems in rules, including those
        of files."""
        for one in self.injected:
            one.remove()
        rules = (*self.loaded, *self.injected)
        problems = [f'rule "{one.name}": {problem}' for one in rules for problem in one.problems]
        self.injected.clear()
        self._numbers.clear()
        self.engine.topics.learn_all(self.engine.call(self.engine.tape.snapshot)[0])
        self.engine.call(self._forget)
        for problem in problems:  # last: a warning may be an error, and all state must be cleared before it
            warnings.warn(KproxyWarning(problem), stacklevel=2)

    def _forget(self) -> None:
        self.engine.load(self.engine.lasting)
        self.engine.tape.clear()


def delete_topics(bootstrap: str, wanted: Callable[[str], bool] = bool) -> list[str]:
    """Delete all topics that the proxy shows, or those with `wanted` names. Return the reason for each one that stays.
    Raises KafkaException when no broker answers."""
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError:
        return ["confluent-kafka is not installed, which would delete them"]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in client.list_topics(timeout=PATIENCE).topics if not name.startswith("__")]
    names = [name for name in names if wanted(name)]
    left = []
    deleting = client.delete_topics(names, request_timeout=PATIENCE) if names else {}
    for name, done in deleting.items():
        try:
            done.result(PATIENCE)
        except (KafkaException, TimeoutError) as error:
            left.append(f"{name}: {error}")
    return left
