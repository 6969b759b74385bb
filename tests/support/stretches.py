"""The longest stretch of work of a session between two yield points, for large messages of any API.

A yield point is a place where other connections may run (base/cooperative.py). Work is measured in two units:

- `LINES`: executed Python lines, which are the same on every machine. `make test` counts them.
- `SECONDS`: CPU time, which includes long calls of C code. `make stretches` measures it (the marker `measured`). The
  garbage collector is off, since its work does not belong to a message.

    @IN_BOTH_UNITS
    def test_metadata_response_yields(unit: Unit) -> None:
        frame = large(3, 12, "response", unit.count)

        def work(watch: Watch) -> None:
            talk = Dialogue(RULES).client(REQUEST)
            with watch:
                talk.broker(frame)

        unit.check(work)

`python -m tests.support.stretches --sieve FILE` measures the CPU time of all cases, and prints the table of
tests/lab/stretches/RESULTS.md (stretch_tables.py, stretch_sieve.py).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from time import thread_time
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import pytest
import trio

from kproxy.base import cooperative
from kproxy.protocol import Message
from kproxy.protocol.framing import framed
from kproxy.protocol.records.batch import encode_batch
from kproxy.protocol.records.record import Record
from kproxy.protocol.table import layout, schema
from kproxy.protocol.table.layout import Slot, Struct
from kproxy.rules.exchange import Edit, Exchange
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from kproxy.session.cluster import BY_ID_VERSION, CORRELATION
from kproxy.session.commands import BROKER
from kproxy.tools.rehearse.dialogue import Dialogue
from tests.support.frames import message
from tests.support.line_count import LineCount
from tests.support.pace import within
from tests.support.random_rules import acts_on, example, loads

READ = 262144
"""Bytes that a driver gives to a session at once."""


class Stopwatch:
    """Clock that measures the CPU seconds between two yield points. `longest`: of one stretch; `where`: the call stack
    at its end, if `trace`."""

    def __init__(self, trace: bool = False) -> None:
        self.longest = self.last = self.total = 0.0
        self.looks = 0
        self.trace, self.where = trace, ""

    def look(self) -> None:
        """End a stretch at a yield point, and begin the next one."""
        now = thread_time()
        took = now - self.last
        self.total += took
        self.looks += 1
        if took > self.longest:
            self.longest = took
            if self.trace and took > 0.02:
                self.where = "".join(traceback.format_stack(limit=14)[:-1])
        self.last = thread_time()

    def apart(self, work: Callable[[], Any]) -> Any:
        """Do work that a proxy does in a thread. Its time belongs to no stretch."""
        self.look()
        try:
            return work()
        finally:
            self.last = thread_time()

    def __enter__(self) -> Stopwatch:
        self.before = cooperative.install_hooks(self.look, self.apart)
        self.enabled = gc.isenabled()
        gc.disable()
        self.last = thread_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.look()
        cooperative.install_hooks(self.before)
        if self.enabled:
            gc.enable()


Watch = Stopwatch | LineCount
TRIES = 4
"""Measurements; the shortest counts. The first one fills caches, and other programs use the machine."""


class StepWatch(trio.abc.Instrument):
    """Context manager in which each step of a trio task ends a stretch of `watch`. `turns`: yield points do, as well,
    as in work that a reactor runs as a turn. Otherwise they keep the hook that they have."""

    def __init__(self, watch: Watch, *, turns: bool = True) -> None:
        self.watch, self.turns = watch, turns

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.watch.look()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.watch.look()

    def __enter__(self) -> Watch:
        if isinstance(self.watch, Stopwatch):
            gc.collect()
        trio.lowlevel.add_instrument(self)
        state = cooperative.YieldState
        self.before = state.hook, state.thread_runner, state.guard
        self.watch.__enter__()
        if not self.turns:
            cooperative.install_hooks(*self.before)
        return self.watch

    def __exit__(self, *error: object) -> None:
        self.watch.__exit__(None, None, None)
        cooperative.install_hooks(*self.before)
        trio.lowlevel.remove_instrument(self)


@dataclass(frozen=True)
class Unit:
    """Unit of work. `count`: elements of a long frame; `longest`: limit of a stretch in that frame."""

    name: str
    count: int
    longest: float

    def watch(self) -> Watch:
        """Return a context manager that measures the stretches of its block."""
        return Stopwatch(trace=True) if self.name == "seconds" else LineCount(fine=True, trace=True)

    def check(self, work: Callable[[Watch], object], longest: float | None = None) -> Watch:
        """Fail if a stretch of `work` is longer than `longest` (default: the limit of this unit). Return the last
        measurement. `work` does all of its preparation, and enters the watch for what is measured."""
        limit = self.longest if longest is None else longest
        watch = self.watch()
        for _ in range(TRIES):
            watch = self.watch()
            work(watch)
            if watch.longest <= limit:
                return watch
        self.judge(watch, limit)
        return watch

    async def check_steps(
        self,
        work: Callable[[], Awaitable[None]],
        again: Callable[[], None] = lambda: None,
        *,
        longest: float,
        turns: bool = True,
    ) -> None:
        """Fail if a step or stretch of the async function `work` is longer than `longest`. `again` prepares another
        attempt. `turns`: see `StepWatch`."""
        watch = self.watch()
        for attempt in range(TRIES):
            if attempt:
                again()
            watch = self.watch()
            with StepWatch(watch, turns=turns):
                await work()
            if watch.longest <= longest:
                return
        self.judge(watch, longest)

    def judge(self, watch: Watch, limit: float, what: str = "") -> None:
        """Fail if the longest stretch of `watch` is over its limit. `what` is measured."""
        if watch.longest > limit and (self.name == "lines" or not within(watch.longest, limit)):
            text = f"{what}: expected at most {limit:g} {self.name} in a stretch, got {watch.longest:g}"
            pytest.fail(f"{text} at\n{watch.where}")


ALL_CASES = bool(os.environ.get("KPROXY_TEST_ALL"))
LINES = Unit("lines", 2_000, 5_000)
SECONDS = Unit("seconds", 100_000, 0.050) if ALL_CASES else Unit("seconds", 10_000, 0.015)
"""A fifth of the time that linear work takes is left to a machine that does other work."""
IN_BOTH_UNITS = pytest.mark.parametrize(
    "unit", [pytest.param(LINES, id="lines"), pytest.param(SECONDS, id="seconds", marks=pytest.mark.measured)]
)


@dataclass(frozen=True)
class Cost:
    """Unit of the whole work of a call: `lines` or `seconds`."""

    name: str

    def of(self, work: Callable[[], object]) -> float:
        """Return the Python lines or CPU seconds that a call of `work` takes."""
        if self.name == "lines":
            with LineCount() as count:
                work()
            return float(count.total)
        gc.collect()
        began = thread_time()
        work()
        return thread_time() - began

    def check(self, work: Callable[[], object], *, lines: float, seconds: float) -> None:
        """Fail if `work` takes more than this in each of `TRIES` calls."""
        spent, limit = 0.0, lines if self.name == "lines" else seconds
        for _ in range(TRIES):
            spent = self.of(work)
            if spent <= limit:
                return
        if self.name == "lines" or not within(spent, limit):
            pytest.fail(f"expected at most {limit:g} {self.name}, got {spent:g}")


BY_COST = pytest.mark.parametrize(
    "cost",
    [pytest.param(Cost("lines"), id="lines"), pytest.param(Cost("seconds"), id="seconds", marks=pytest.mark.measured)],
)
PARTITION = ("partition", "partition_index", "partition_indexes", "index", "partition_id")
"""Names of fields with a partition's number; other numbers are few, since a response may not name many nodes."""


class Large:
    """Maker of bodies in which one array has many elements. `deep`: the one inside the first element.

    Elements are named by their place in that array, so that a response is about the entities of its request.
    """

    def __init__(self, count: int, deep: bool, records: bytes = b"") -> None:
        self.count, self.deep, self.records = count, deep, records
        self.number = 0

    def struct(self, struct: Struct, depth: int, many: bool) -> dict[str, Any]:
        return {slot.name: self.slot(slot, depth, many) for slot in struct.slots} | {
            slot.name: slot.default() for slot in struct.tagged
        }

    def slot(self, slot: Slot, depth: int, many: bool) -> Any:
        if not slot.array:
            return self.value(slot, depth, many)
        inner = slot.struct is not None and any(one.array and one.struct is not None for one in slot.struct.slots)
        here = many and not (self.deep and inner)
        count = self.count if here else 1
        made = []
        for number in range(count):
            self.number = number if here else self.number
            made.append(self.value(slot, depth + 1, many and not here))
        if here:
            self.number = 0
        return made

    def value(self, slot: Slot, depth: int, many: bool) -> Any:
        if slot.struct is not None:
            if not slot.array and slot.nullable:
                return None
            return self.struct(slot.struct, depth, many)
        if slot.type == "string":
            return f"name-{self.number}"
        if slot.type == "uuid":
            return UUID(int=(self.number + 1) | 4 << 76)
        if slot.type == "records":
            return self.records
        if slot.type == "bytes":
            return b""
        if slot.name in PARTITION:
            return self.number
        if slot.name == "acks":
            return -1  # else nothing is answered
        return 0 if slot.name == "error_code" or slot.type == "bool" or depth == 0 else self.number % 100


def body(key: int, version: int, direction: str, count: int, *, deep: bool = False, records: bytes = b"") -> Any:
    """Return the fields of a message with `count` elements."""
    return Large(count, deep, records).struct(layout.body(key, version, direction), 0, many=True)


def large(
    key: int, version: int, direction: str, count: int, *, deep: bool = False, records: bytes = b"", **values: Any
) -> bytes:
    """Return a frame of `count` elements, with its size."""
    made = body(key, version, direction, count, deep=deep, records=records) | values
    return framed(message(key, version, direction, made, 1))


def batch(count: int, codec: int = 0) -> bytes:
    """Return a batch of so many small records."""
    records = [Record(n, 1_700_000_000_000 + n, b"k", b"v" * 20) for n in range(count)]
    return encode_batch(records, codec=codec)


OWN = CORRELATION.to_bytes(4, "big", signed=True)


class Length(bytearray):
    """Length of the bytes that came out, which a driver hands to the kernel without copying them: only that is kept."""

    length = 0
    asks = False
    """True if the last bytes are a request of kproxy's own for topics by id."""

    def __iadd__(self, more: Any) -> Self:  # type: ignore[misc]  # it is never added to anything
        self.length += len(more)
        self.asks = bytes(more[6:12]) == BY_ID_VERSION.to_bytes(2, "big") + OWN
        return self

    def __bool__(self) -> bool:
        return self.length > 0


@dataclass(frozen=True)
class Case:
    """A rule of one kind, and an exchange of which one frame is long, or both are."""

    kind: str
    rules: str
    api: str
    version: int
    way: str
    deep: bool

    def __str__(self) -> str:
        return f"{self.kind}, {self.api} {self.version}, {'deep' if self.deep else 'wide'} {self.way}"

    def measure(self, count: int, trace: bool = False) -> Stopwatch:
        """Return the stopwatch of an exchange in which one frame has `count` elements, or both frames have."""
        watch = Stopwatch(trace)
        self.run(count, watch)
        return watch

    def run(self, count: int, watch: Watch) -> None:
        """Measure how a session passes both frames."""
        key = schema.names()[self.api]
        talk = Dialogue(self.rules)
        out = {side: Length() for side in talk.out}
        talk.out.update(out)
        counts = {way: count if self.way in (way, BOTH) else 1 for way in WAYS}
        asked, said = (frame(key, self.version, way, counts[way], self.deep) for way in WAYS)
        told = frame(3, BY_ID_VERSION, "response", counts["request"], False) if by_id(key, self.version) else b""
        with watch:
            talk.client(asked, READ)
            if out[BROKER].asks:  # which names topic ids have
                talk.broker(told[:4] + OWN + told[8:], READ)
            talk.later(LATER if talk.wakes else 0)
            if not talk.closed and out[BROKER]:
                talk.broker(said, READ)
                talk.later(LATER if talk.wakes else 0)
        talk.session.end(0.0)


LATER = 60.0
"""Seconds after which a frame that a rule has held goes on."""
WAYS, BOTH = ("request", "response"), "both"
MATCHES: tuple[dict[str, str] | None, ...] = (None, {"topic": "name-*"}, {"group": "name-*"})
WORDS: dict[str, tuple[str, ...]] = {
    "at": ("request", "response", "both", "produce", "fetch"),
    "where": ("header", "body", "crc", "key"),
    "what": ("request", "response"),
    "level": ("top", "entity"),
}
MORE: dict[str, list[dict[str, Any]]] = {
    "python": [{"call": "tests.support.stretches:edits", "at": "both"}],
    "corrupt": [{"bits": 1_000_000}, {"where": "body", "bits": 1_000_000}],
    "drop_records": [{"fraction": 1.0}],
}
"""Parameters that are tried for a kind in addition to those of its example."""
NAMED = ("Metadata", "Produce", "Fetch", "OffsetFetch", "DescribeTopicPartitions", "CreateTopics", "DescribeGroups")
"""APIs that are measured for kinds that bind when a connection opens."""
SMALL_BATCH = batch(2)


@lru_cache(8)
def frame(key: int, version: int, way: str, count: int, deep: bool) -> bytes:
    return large(key, version, way, count, deep=deep, records=SMALL_BATCH)


def broad(kind: str) -> list[str]:
    """Return documents with a rule of this kind that is about as much as may be: the example with other selectors, and
    with other words for its effect and for the frame that it acts on."""
    rule = {name: value for name, value in example(kind).items() if name not in ("when", "match")}
    fields = KINDS[kind].model_fields
    others = [{name: word} for name in WORDS if name in fields for word in WORDS[name] if word != rule.get(name)]
    others += MORE.get(kind, [])
    found = [rule if match is None else rule | {"match": match} for match in MATCHES]
    found += [rule | other | match for match, other in product(({}, {"match": MATCHES[1]}), others)]
    texts = [text for text in (json.dumps({"rules": [one]}) for one in found) if loads(text)]
    return texts or [json.dumps({"rules": [example(kind)]})]


def edits(exchange: Exchange, message: Message) -> Edit:
    """Return an edit that claims to have changed the message: a hook of kind `python`."""
    return Edit()


def cases(everything: bool = False) -> Iterator[Case]:
    """Yield a case of each kind with one API and both long frames; `everything`: with all APIs, versions, forms and
    selectors."""
    every = tuple(sorted(schema.load(key).name for key in schema.paths()))  # not under the names that they once had
    for number, (kind, model) in enumerate(KINDS.items()):
        apis = acts_on(kind, every) if issubclass(model, LiveRule) else list(NAMED)
        rules = broad(kind)
        if not everything:
            preferred = [name for name in NAMED if name in apis] or apis
            apis, rules = preferred[number % max(1, len(preferred)) :][:1], rules[:1]
        for rule, api in product(rules, apis):
            key = schema.names()[api]
            versions = schema.load(key).versions
            named = max((version for version in versions if not by_id(key, version)), default=versions.last)
            chosen = sorted({versions.first, named, versions.last})
            for version, way, deep in product(chosen, (*WAYS, BOTH), (False, True)):
                if everything or (version == named and deep == bool(number % 2)):
                    yield Case(kind, rule, api, version, way, deep)


def by_id(key: int, version: int) -> bool:
    """Return True if the request has ids in place of topic names, so that kproxy has to ask for the names."""
    return any(slot.type == "uuid" for slot in layout.body(key, version, "request").everywhere())


if __name__ == "__main__":
    from tests.support.stretch_tables import main

    main(sys.argv[1:])
