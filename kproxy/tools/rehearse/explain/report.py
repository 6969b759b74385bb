"""Surveys: the opinions of all rules about one target, the depth of the plan, and the final outcome for its frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kproxy.protocol.framing import framed
from kproxy.rules.kinds.base.rule import Rule
from kproxy.rules.kinds.limit_versions import LimitVersions
from kproxy.rules.rule_set import RuleSet
from kproxy.session.commands import BROKER, CLIENT
from kproxy.session.plan import ConnectionSettings, Plan, Step
from kproxy.tools.rehearse.cases.compare import check_untouched
from kproxy.tools.rehearse.cases.connection import CaseConnection
from kproxy.tools.rehearse.cases.model import ClientConnection
from kproxy.tools.rehearse.dialogue import judged, response
from kproxy.tools.rehearse.explain.target import Target

from .evaluate import Opinion, opinion
from .target import OF_CONNECTION, explain_selectors, finding


@dataclass(frozen=True)
class Survey:
    """Survey of one target. `positions`: each rule's place in its file, by name. `happens`: lines about the final
    outcome for the frame."""

    step: Step
    opinions: tuple[Opinion, ...]
    positions: dict[str, str]
    happens: tuple[str, ...]


class Surveyor:
    """Surveyor of a rule set: asks all rules, in file order, about one target after the other. Rules count the targets
    as the proxy would.

    `nth`: number of the first target, from 1, among the requests that a rule is about. `now`: seconds since the start.
    """

    def __init__(self, rules: RuleSet, *, nth: int, now: float, advertise: bool) -> None:
        self.rules, self.nth, self.now, self.advertise = rules, nth, now, advertise
        self.connection: CaseConnection | None = None

    def survey(self, target: Target) -> Survey:
        """Return the opinions of all rules about a target, and the outcome for its frame."""
        rules, now = self.rules, self.now
        running = {one.name: one for one in rules.live}
        client_id = target.message.header.get("client_id")
        for one in rules.live if self.nth > 1 else ():
            for _ in range(self.nth - 1):
                one.count(fired=one.trigger.fires(now, 1, client_id))
        opinions = tuple(opinion(rule, running.get(rule.name), target, now) for rule in rules.rules)
        positions = dict(zip((rule.name for rule in rules.rules), rules.origins, strict=True))
        step = plan(target, rules, self.advertise)[target.key << 16 | target.version]
        happens: tuple[str, ...] = ()
        if target.frame is not None and self.nth == 1 and not now:
            happens = tuple(self.outcome(target, target.frame, any(one.word == "depends" for one in opinions)))
        self.nth = 1
        return Survey(step, opinions, positions, happens)

    def outcome(self, target: Target, frame: bytes, is_open: bool) -> Iterator[str]:
        """Yield in words the outcome for the frame under all rules together, from a session without a network.

        `is_open`: a rule depends on unknown facts, so the outcome is unknown.
        """
        yield ""
        if is_open:
            yield "  what becomes of it depends on what is said above; say more of the connection, such as --listener"
            return
        if self.connection is None:
            facts, known = target.facts, target.known
            spec = ClientConnection(
                listener=facts.listener, cluster=facts.cluster, client_address=facts.client_address, sni=facts.sni,
                certificate=facts.certificate, node=facts.node, principal=known.get("principal"),
                client_software=known.get("client_software"), advertise=self.advertise,
            )  # fmt: skip
            self.connection = CaseConnection(spec, RuleSet(self.rules.rules, self.rules.origins), judged(), 1, {}, 0.0)
        if self.connection.closed is not None:
            yield "  the connection is closed already"
            return
        self.connection.send(framed(frame))
        yield from came_out(self.connection)
        while self.connection.asked:  # responses keep their order: without this one, kproxy's own next one would wait
            asked = self.connection.asked.popleft()
            self.connection.respond(asked, response(asked.key, asked.version, asked.correlation))
        self.connection.take(CLIENT)


def plan(target: Target, rules: RuleSet, advertise: bool) -> Plan:
    """Return the plan of a connection for which all rules hold that may hold.

    Versions are limited only by rules that surely hold, since a request beyond a limit is stopped.
    """
    bound = rules.bind_without(frozenset(index for index, rule in enumerate(rules.rules) if not applies(rule, target)))
    return Plan(ConnectionSettings.of(bound, advertise=advertise or bound.advertise is not None), bound.live)


def applies(rule: Rule, target: Target) -> bool:
    """Return True if the rule can be about the target's connection, as far as its facts are known."""
    if isinstance(rule, LimitVersions):
        return explain_selectors(rule, target.subject).word == "holds"
    used = [name for name in OF_CONNECTION if getattr(rule.match, name, None) is not None]
    return not any(finding(rule.match, name, target.subject).word == "fails" for name in used if rule.match)


def came_out(connection: CaseConnection) -> Iterator[str]:
    waits = min((when for when in connection.wakes if when > connection.now), default=None)
    to_broker, to_client = connection.take(BROKER), connection.take(CLIENT)
    if waits is not None and not to_broker and not to_client:
        yield f"  the request waits for {waits:g} s"
        connection.advance(connection.now + waits)
        to_broker, to_client = connection.take(BROKER), connection.take(CLIENT)
    for piece in to_broker:
        wrong = [one for _, found in check_untouched(piece) for one in found]
        how = ", changed" if wrong else ": the very bytes"
        yield f"  the broker gets {piece}{how}"
        for one in wrong:
            yield f"            {one.path}: {one.expected} → {one.found}"
    if not to_broker:
        yield "  the broker gets nothing"
    for piece in to_client:
        yield f"  the client gets {piece} of kproxy's own"
    if connection.closed is not None:
        yield f"  the connection is closed: {connection.closed.message}"
