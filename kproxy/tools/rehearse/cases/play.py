"""Player of cases, each in its own world: it runs the steps in order, and reports differences from the expected
output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from uuid import UUID

from kproxy.base.errors import KproxyError
from kproxy.base.terminal import counted, duration
from kproxy.rules.document.read import Document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.rule_set import ActiveRule
from kproxy.rules.values.source import Where
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.shared import ClusterState
from kproxy.tools.rehearse.cases.compare import Difference, check_piece, shown
from kproxy.tools.rehearse.cases.connection import CaseConnection
from kproxy.tools.rehearse.cases.document import Ready, answer, request
from kproxy.tools.rehearse.cases.model import CaseStep, ClientConnection, Counts, ExpectedFrame, Flow
from kproxy.tools.rehearse.dialogue import judged

MOMENT = 1e-6
"""Tolerance in seconds for times of a case: they are sums of floating-point numbers."""


class World:
    """The rules, connections and time of one case. Cases do not share state. Time begins at 0 seconds."""

    def __init__(
        self,
        documents: Iterable[Document],
        seed: int,
        connections: Mapping[str, ClientConnection],
        topics: Mapping[str, UUID],
    ) -> None:
        self.store = RuleStore(seed)
        self.store.replace_files(documents, 0.0)
        self.specs, self.topics = connections, {topic_id: name for name, topic_id in topics.items()}
        self.shared: dict[str, ClusterState] = {}
        self.connections: dict[str, CaseConnection] = {}
        self.now = 0.0

    def connection(self, name: str) -> CaseConnection:
        """Return the connection of this name, which is opened the first time."""
        if name not in self.connections:
            spec = self.specs.get(name) or self.specs[""]
            shared = self.shared.setdefault(spec.cluster, judged())
            number = len(self.connections) + 1
            self.connections[name] = CaseConnection(spec, self.store.rule_set, shared, number, self.topics, self.now)
        return self.connections[name]

    def wait(self, seconds: float) -> None:
        """Advance the time by `seconds`: deadlines of connections and of rules are met in their order."""
        end = self.now + seconds
        while self.next_event <= end:
            self.go_to(self.next_event)
        self.go_to(end)

    @property
    def next_event(self) -> float:
        """Return the time of the next timer event; infinity if none is pending."""
        due = self.store.due(self.now)
        return min((inf if due is None else due, *(one.next_wake for one in self.connections.values())))

    def go_to(self, when: float) -> None:
        """Set the time, and let rules end and connections wake that are due by then."""
        due = self.store.due(self.now)
        self.now = max(self.now, when)
        if due is not None and due <= self.now:
            self.store.expire(self.now)
            for connection in self.connections.values():
                connection.now = max(connection.now, self.now)
                connection.use(self.store.rule_set)
        for connection in self.connections.values():
            connection.advance(self.now)

    def resume(self, rule: str) -> None:
        """Resume the held requests of the rule of this name."""
        running = self.running(rule)
        if running is not None:
            running.resume()
        for connection in self.connections.values():
            connection.released()

    def running(self, rule: str) -> ActiveRule | None:
        """Return a live rule at work; None if its stage has not come yet. Raises NoSuchRule."""
        return self.store[rule].running

    @property
    def held(self) -> int:
        return sum(len(kept.running.held) for kept in self.store.stored_rules.values() if kept.running is not None)

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each rule that had an error, such as an exception in a Python function."""
        every = [kept.running for kept in self.store.stored_rules.values() if kept.running is not None]
        return [f'the rule "{one.name}" went wrong: {one.problem}' for one in every if one.problems]


SIDES = {"to_broker": BROKER, "to_client": CLIENT}


@dataclass(frozen=True)
class CaseFailure:
    """One mismatch between a case and the output; `position` is the place of the expectation in the test file."""

    position: str
    what: str
    differences: tuple[Difference, ...] = ()


def play(ready: Ready) -> list[CaseFailure]:
    """Return the failures of a case, none when it holds. The first step that fails is the last one played."""
    player = Player(ready)
    for number, step in enumerate(ready.case.steps):
        for _ in range(step.times):
            failures = player.step(step, (*ready.at, "steps", number))
            if failures:
                return failures
    return []


class Player:
    """Player of one case."""

    def __init__(self, ready: Ready) -> None:
        self.ready, self.source = ready, ready.source
        self.world = World(ready.documents(), ready.case.seed, ready.connections, ready.case.topics or {})
        self.failures: list[CaseFailure] = []
        self.at: Where = ()

    def fail(self, where: Where, what: str, differences: Sequence[Difference] = ()) -> None:
        """Add a failure at this place, which is relative to the current step."""
        self.failures.append(CaseFailure(self.source.position((*self.at, *where)), what, tuple(differences)))

    def step(self, step: CaseStep, at: Where) -> list[CaseFailure]:
        """Play one step. Return its failures."""
        self.failures, self.at = [], at
        if not self.world.connections:  # the first step's connection is open from the beginning
            self.world.connection(step.connection or "")
        for each in self.world.connections.values():
            each.take(BROKER), each.take(CLIENT)
        try:
            self.act(step)
        except KproxyError as error:
            self.fail((), str(error))
        except Exception as error:  # noqa: BLE001  # the other tests go on, and this one fails with the error
            self.fail((), f"kproxy itself went wrong: {type(error).__name__}: {error}")
        for problem in self.world.problems:
            self.fail((), problem)
        wrong = self.source.lines()
        if wrong:  # in bodies whose API and version are known only here
            self.source.forget()
            self.failures = [CaseFailure(place, what) for place, _, what in (each.partition(": ") for each in wrong)]
        return self.failures

    def act(self, step: CaseStep) -> None:
        """Perform the step's actions in the order of its fields, and check the output."""
        if step.wait is not None:
            self.world.wait(step.wait)
        if step.resume is not None:
            self.world.resume(step.resume)
        connection = self.world.connection(step.connection or "")
        for index, sent in enumerate(step.client or ()):
            at = (*self.at, "client", index, "body")
            connection.send(request(self.source, sent, at, connection.next_correlation()))
        self.expect("to_broker", step.to_broker, connection)
        for index, answered in enumerate(step.broker or ()):
            if not connection.asked:
                self.fail(("broker", index), "the broker has no request that it could answer")
                return
            asked = connection.asked.popleft()
            at = (*self.at, "broker", index, "body")
            connection.respond(asked, answer(self.source, answered, at, asked.key, asked.version, asked.correlation))
        self.expect("to_client", step.to_client, connection)
        self.states(step, connection)

    # ---- output

    def expect(self, word: str, expected: list[ExpectedFrame] | None, connection: CaseConnection) -> None:
        """Compare the pieces of one side with those that the step expects there."""
        if expected is None:
            return
        side = SIDES[word]
        for index, one in enumerate(expected):
            where = (word, index)
            if one.after is not None and not self.pass_time(one.after, where, connection, side):
                return
            if not connection.arrived[side]:
                self.fail(where, f"{word}: expected {counted(len(expected), 'frame')}, got {counted(index, 'frame')}"
                                 + self.why(connection))  # fmt: skip
                return
            piece = connection.arrived[side].pop(0)
            for what, differences in check_piece(self.source, one, (*self.at, *where), piece):
                self.fail(where, f"{word}: {what}", differences)
        if rest := connection.take(side):
            found = ", ".join(map(str, rest))
            what = "nothing" if not expected else f"{counted(len(expected), 'frame')} and nothing more"
            self.fail((word,), f"{word}: expected {what}, got {found}")

    def pass_time(self, after: list[float], where: Where, connection: CaseConnection, side: int) -> bool:
        """Let the time of `after` pass. Return True if nothing came before it, and something when it was over."""
        began = self.world.now
        if connection.arrived[side]:
            self.fail((*where, "after"), f"expected nothing for {duration(after[0])}, it came at once")
            return False
        self.world.wait(max(0.0, after[0] - MOMENT))
        early = bool(connection.arrived[side])
        self.world.wait(max(0.0, began + after[-1] + MOMENT - self.world.now))
        if early or not connection.arrived[side]:
            came = f"it came after {duration(connection.arrived[side][0].when - began)}" if early else "it did not come"
            span = " to ".join(map(duration, after))
            self.fail((*where, "after"), f"expected it after {span}, {came}{self.why(connection)}")
            return False
        return True

    def why(self, connection: CaseConnection) -> str:
        """Return a possible reason for missing output, appended to a failure; empty if unknown."""
        closed = connection.closed
        if closed is not None:
            return f"; kproxy has closed the connection: {closed.message}"
        if self.world.held:
            return f"; {counted(self.world.held, 'request')} held until they are resumed"
        return "; kproxy does not read from the client just now" if connection.waiting[CLIENT] else ""

    # ---- checks at the end of a step

    def states(self, step: CaseStep, connection: CaseConnection) -> None:
        """Check the states that the step expects at its end: closed, muted, held, flow and counters."""
        closed = step.closed
        if closed is not None:
            connection.expects_end = closed is not False
            self.same(("closed",), "closed", closed or "not at all", connection.ended or "not at all")
        elif not connection.expects_end and connection.closed is not None:
            self.fail((), f"kproxy has closed the connection: {connection.closed.message}")
        if step.muted is not None:
            self.same(("muted",), "muted", shown(step.muted), shown(not connection.read[CLIENT]))
        if step.held is not None:
            self.same(("held",), "held", str(step.held), str(self.world.held))
        if step.flow is not None:
            self.flow(step.flow, connection)
        for rule, counts in (step.counts or {}).items():
            self.count(rule, counts)

    def same(self, where: Where, what: str, expected: str, found: str) -> None:
        if expected != found:
            self.fail(where, what, [Difference("", expected, found)])

    def flow(self, expected: list[Flow], connection: CaseConnection) -> None:
        shapes = connection.shapes
        if len(shapes) != len(expected):
            self.same(("flow",), "flow", counted(len(expected), "limit"), counted(len(shapes), "limit"))
            return
        for index, (wanted, shape) in enumerate(zip(expected, shapes, strict=True)):
            given = {name: getattr(wanted, name) for name in wanted.model_fields_set}
            wrong = [
                Difference(name, shown(value), shown(getattr(shape, name)))
                for name, value in given.items()
                if value != getattr(shape, name)
            ]
            if wrong:
                self.fail(("flow", index), "flow", wrong)

    def count(self, rule: str, counts: Counts) -> None:
        running = self.world.running(rule)
        wrong = []
        for name in (each for each in Counts.model_fields if each in counts.model_fields_set):
            found = 0 if running is None else getattr(running, name)
            if getattr(counts, name) != found:
                wrong.append(Difference(name, str(getattr(counts, name)), str(found)))
        if wrong:
            self.fail(("counts", rule), f'counters of "{rule}"', wrong)
