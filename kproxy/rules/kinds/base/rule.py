"""Base classes of all rules: `Rule`, and `LiveRule` with its `Effect` for rules that act on the next frame.

A kind is one file: a frozen model with its parameters as fields, with its `group` and an `example`. `kproxy rules
kinds` shows the first sentence of its docstring. Errors, schema, lists and reference pages are generated from the
model. Guide: CONTRIBUTING.md.

The engine in `session` evaluates selectors and trigger, calls the effect, and applies its decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import AfterValidator, Field

from kproxy.protocol.records.spans import EntrySpans, Span
from kproxy.protocol.table.api_keys import PRODUCE
from kproxy.rules.content.edits import RecordCounts
from kproxy.rules.content.schemas import SchemaUnloaded
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import (
    ConnectionView,
    Decision,
    Edit,
    Exchange,
    Facts,
    FrameDepth,
    LeaveOut,
    TrafficShape,
)
from kproxy.rules.filter.parse import claims
from kproxy.rules.filter.record_fields import Format, UnreadableRecord
from kproxy.rules.select.frame_match import WITH_RECORDS, FrameMatch
from kproxy.rules.select.match import ConnectionMatch
from kproxy.rules.shared_numbers import SharedNumbers
from kproxy.rules.trigger import When
from kproxy.rules.values.model import Model

if TYPE_CHECKING:
    from kproxy.rules.bucket import QuotaTurn

Group = Literal[
    "names",
    "addresses and versions",
    "access",
    "quotas",
    "errors and delays",
    "connections",
    "frames",
    "cluster metadata",
    "groups, offsets and transactions",
    "records",
    "record content",
    "custom changes",
]
"""Group of a kind, which the kind names; groups are listed in this order, and in each the kinds by their names."""
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

Scope = Literal["connection", "frame", "entity"]
Direction = Literal["request", "response"]
VisiblePart = Literal[
    "topic names", "topic ids", "group ids", "transactional ids", "broker addresses", "api versions", "client racks"
]

Family = Literal["names", "fault", "access", "quota", "content", "code"]
"""Purpose of a rule: names, addresses and versions; faults, which `kproxy faults disable` turns off; who may do what,
and how much of it; content of records; code of one's own."""
LONGEST_NAME = 200
"""Characters; a rule's name is a label of metrics and a column of tables."""


UNADDRESSABLE = (".", "..")
"""Names that clients resolve as steps in URLs: `/api/rules/../reset` becomes `/api/reset`."""


def _one_line(text: str) -> str:
    if text in UNADDRESSABLE:
        raise ValueError(f'a rule cannot be called "{text}", which the addresses of the admin API cannot have')
    if not text or len(text) > LONGEST_NAME or not text.isprintable():
        raise ValueError(f"expected a rule name of one line with 1 to {LONGEST_NAME} characters, got {len(text)}")
    return text


RuleName = Annotated[str, AfterValidator(_one_line)]


class Rule(Model):
    """Base of all rules: a named entry under `rules:`."""

    group: ClassVar[Group] = "custom changes"
    """Group in `kproxy rules kinds`, and its page of the documentation."""
    family: ClassVar[Family] = "names"
    scope: ClassVar[Scope] = "connection"
    """`connection`: applies when a connection opens; open connections keep their settings. `frame`, `entity`: applies
    to the next frame."""
    directions: ClassVar[tuple[Direction, ...]] = ("request", "response")
    needs: ClassVar[tuple[VisiblePart, ...]] = ()
    """Parts of frames that must be visible for it; the plan follows from that."""
    example: ClassVar[str]
    """YAML of one rule, checked by a test."""

    name: RuleName = Field(description="unique over all documents; appears in logs and metrics")
    kind: str = Field(description="kind of the rule")
    match: ConnectionMatch | None = Field(default=None, description="connections to act on (default: all)")
    not_: ConnectionMatch | None = Field(default=None, alias="not", description="connections to leave alone")

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that were read with the rule. A change of one of them changes `content`."""
        return ()

    @cached_property
    def content(self) -> str:
        """Return the rule as JSON; equal rules have equal JSON."""
        return self.model_dump_json(by_alias=True)

    def holds(self, facts: Facts) -> bool:
        """Return True if the rule is for such a connection."""
        wanted = self.match is None or self.match.holds(facts)
        return wanted and (self.not_ is None or not self.not_.holds(facts))

    def may_hold(self, listener: str, cluster: str) -> bool:
        """Return True if the rule can be for some connection on that listener."""
        return self.match is None or self.match.may_hold(listener, cluster)

    def always_holds(self, listener: str, cluster: str) -> bool:
        """Return True if this rule is for every connection on that listener."""
        wanted = self.match is None or self.match.always_holds(listener, cluster)
        return wanted and (self.not_ is None or not self.not_.may_hold(listener, cluster))

    @property
    def is_unconditional(self) -> bool:
        """Return True if the rule is for every connection."""
        return self.match is None and self.not_ is None


Decisions = Sequence[Decision]
MakeRecordTest = Callable[[EntrySpans], Callable[[Span], bool]]

LIMITING: frozenset[Family] = frozenset(("access", "quota"))
"""Families of rules that limit clients. Rules cannot exempt a client because of data that the client chose."""
AFTER_LOGIN = LIMITING | {"content"}
"""Families of rules that need the principal: requests wait for an authentication in progress."""


Permanent = Annotated[bool, Field(description="the rule stays in force while faults are disabled; false: a fault")]
"""Type of the field `permanent` of kinds that operators also use without testing faults."""


@dataclass(slots=True)
class EffectProblem:
    """Problem of an effect: its name, how often it came, and the text of the last time."""

    what: str
    count: int = 0
    last: str = ""


UNCOUNTED = Edit(counted=False)


class Effect:
    """Active rule with its state. Override the methods that the kind needs; `now` is monotonic seconds."""

    seed: str = ""
    """Seed of the chances that it draws itself; set before it is first called, and its own for each rule."""
    clock: Callable[[], float] = staticmethod(lambda: 0.0)
    """Monotonic clock for measurements, set by the caller that starts the rule."""
    steady: bool = False
    """Set if what it decides about requests of one API and version is always the same, whatever they hold."""
    always_acts: bool = False
    """Set if it decides something about each request or response that it is asked about."""
    records: RecordCounts = RecordCounts()
    """Counts of the records that it has seen; set by the rule that it belongs to."""
    common: SharedNumbers | None = None
    """State that it shares with the same rule in other processes, where there are any; set like `seed`."""

    def on_connect(self, connection: ConnectionView, now: float) -> Decisions:
        """Return decisions about a new connection."""
        return ()

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """Return decisions about a request after the trigger fired. `entities`: its matching entities."""
        return ()

    def terms(self, exchange: Exchange) -> Any:
        """Return data for `passes`, valid for requests that begin like this one; None: always call `on_request`."""
        return None

    def passes(self, terms: Any, size: int, now: float) -> bool:
        """Charge a request of `size` bytes and return True if the rule leaves it alone. Otherwise return False;
        `on_request` charges it."""
        return False

    def turn(self, terms: Any, size: int, now: float) -> QuotaTurn | None:
        """Return the turn with the charges of a request that `passes` accepted; None: no charges."""
        return None

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """Return decisions about the response to a request after the trigger fired."""
        return ()

    def would_act(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> bool:
        """Return True if the effect would act on the response of the exchange, or on its request before that has come.

        For rules with `mode: dry_run`: messages stay unchanged, state of the effect (buckets, draws) changes.
        """
        trial = exchange.trial()
        decide = self.on_response if exchange.response_size else self.on_request
        return any(
            trial.lists_others(decision.visible) if isinstance(decision, LeaveOut) else decision != UNCOUNTED
            for decision in decide(trial, entities, now)
        )

    def shape(self, connection: ConnectionView) -> TrafficShape | None:
        """Return how the bytes of this connection flow while the rule is in force; None: as they come."""
        return None

    def problems(self) -> Sequence[EffectProblem]:
        """Return the problems of the effect so far, for log, metrics and API."""
        return ()


class LiveRule(Rule):
    """Rule that takes effect at the next frame."""

    scope: ClassVar[Scope] = "entity"
    family: ClassVar[Family] = "fault"
    of_answers: ClassVar[bool] = False
    """True for rules about what answers list: they do not match, and do not count, requests that ask for nothing."""
    waits_for_schemas: ClassVar[bool] = False
    """True for kinds with the option `on_registry_down`."""
    selects_single_records: ClassVar[bool] = False
    """True for kinds that change records: `records` selects single records, by the test in `PartitionBody`. False: it
    selects partitions (`RecordSelector`)."""

    match: FrameMatch | None = Field(default=None, description="frames to act on (default: all)")
    not_: FrameMatch | None = Field(default=None, alias="not", description="frames to leave alone")
    when: When | None = Field(default=None, description="trigger: which matching requests to act on (default: all)")
    mode: Literal["enforce", "dry_run"] = Field(
        default="enforce", description="dry_run: count the requests that the rule would act on, and change none"
    )
    format: Format = Field(
        default="auto",
        description="form of keys and values for `records` and fields: text, json, avro, or auto (by schema id and "
        "first byte)",
    )

    def model_post_init(self, context: Any, /) -> None:
        """A client with an unknown principal matches `match:` of limiting rules, and never `not:`."""
        super().model_post_init(context)
        if self.match is not None and self.limits_clients:
            self.match.suspect_anyone()
        for one in (self.match, self.not_):
            if one is not None and one.records is not None:
                one.records.form = self.format

    @property
    def limits_clients(self) -> bool:
        """Return True if clients cannot exempt themselves from the rule by data that they choose."""
        return self.family in LIMITING

    @property
    def fails_closed(self) -> bool:
        """Return True if frames that the rule cannot read, or fails on, must not pass: the connection is closed."""
        return self.family == "access"

    @property
    def is_fault(self) -> bool:
        """Return True if `kproxy faults disable` turns it off."""
        return self.family == "fault" and not getattr(self, "permanent", False)

    def holds(self, facts: Facts) -> bool:
        """Return True if the rule can be about frames of such a connection."""
        wanted = self.match is None or self.match.holds(facts)
        not_ = self.not_
        return wanted and (not_ is None or not not_.of_connection or not not_.holds(facts))

    @property
    def is_unconditional(self) -> bool:
        """Return True if the rule can be about frames of every connection."""
        wanted = self.match is None or self.match.of_any_connection
        return wanted and (self.not_ is None or not self.not_.of_connection)

    @property
    def connects(self) -> bool:
        """Return True if it acts when a client connects (`Effect.on_connect`), and counts connections."""
        return False

    def depth(self, direction: Direction, key: int, version: int) -> FrameDepth:
        """Return how deep it must see frames of this direction, API and version; NOTHING: it does not act on them."""
        raise NotImplementedError

    def holds_for(self, entity: Entity) -> bool:
        """Return True if the entity selectors in `match` hold."""
        return self.match is None or self.match.holds_entity(entity)

    @property
    def selects_topics(self) -> bool:
        """Return True if the rule selects topics by their names."""
        return any(one is not None and one.topic is not None for one in (self.match, self.not_))

    @property
    def reads_principal(self) -> bool:
        """Return True if it selects principals, so that requests wait for an authentication that is under way."""
        return any(one is not None and one.principal is not None for one in (self.match, self.not_))

    @property
    def reads_topics(self) -> bool:
        """Return True if topics need their names where a request gives only ids; the broker is then asked for them."""
        return True

    @property
    def reads_entities(self) -> bool:
        """Return True if bodies are parsed for entities. If False, fetch sessions may be unknown."""
        return True

    @property
    def selects_errors(self) -> bool:
        """Return True if it selects errors of the broker, so that it is evaluated when the response has come."""
        return any(one is not None and one.sees_error for one in (self.match, self.not_))

    @property
    def selects_records(self) -> bool:
        """Return True if it has a condition about the content of records."""
        return any(one is not None and one.records is not None for one in (self.match, self.not_))

    @property
    def reads_schemas(self) -> bool:
        """Return True if it decodes records, so that a frame waits for schemas that are not loaded."""
        return self.selects_records and self.format != "text"

    @property
    def selects_subjects(self) -> bool:
        """Return True if it has a condition about the subjects of a value's schema."""
        conditions = [one.records for one in (self.match, self.not_) if one is not None and one.records is not None]
        return any(claim.field == "subject" for condition in conditions for claim in claims(condition.tree))

    def judged_late(self, key: int) -> bool:
        """Return True if its selectors need the response: the broker's errors, or the records that are read."""
        reads = self.selects_records and not self.selects_single_records and key != PRODUCE
        return self.selects_errors or (reads and key in WITH_RECORDS)

    def excludes(self, exchange: Exchange, entity: Entity) -> bool:
        """Return True if all lines of `not` hold for an entity, except conditions about records and errors."""
        no = self.not_
        return (
            no is not None
            and no.about(exchange.api.key, exchange.version)
            and no.holds(exchange.connection.facts)
            and no.holds_frame(exchange)
            and no.holds_entity(entity)
        )

    def record_test(
        self, exchange: Exchange, entity: Entity, now: float, counts: RecordCounts
    ) -> MakeRecordTest | None:
        """Return the maker of the test that selects single records of a partition; None: all are selected. A record
        that cannot be read is selected by rules that fail closed only. `now`: monotonic seconds."""
        yes = None if self.match is None else self.match.records
        no = None if self.not_ is None or not self.excludes(exchange, entity) else self.not_.records
        if yes is None and no is None:
            return None
        time, decoder = exchange.connection.unix_time(now) * 1000, exchange.connection.decoder

        def make(spans: EntrySpans) -> Callable[[Span], bool]:
            wanted = None if yes is None else yes.test(spans, time, decoder, raises=self.fails_closed)
            unwanted = None if no is None else no.test(spans, time, decoder, raises=self.fails_closed)

            def test(span: Span) -> bool:
                try:
                    matches = (wanted is None or wanted(span)) and not (unwanted is not None and unwanted(span))
                except UnreadableRecord as error:
                    counts.unreadable += 1
                    if self.waits_for_schemas and isinstance(error, SchemaUnloaded):
                        raise
                    matches = self.fails_closed
                counts.matched += matches
                return matches

            return test

        return make

    def unnamed(self, exchange: Exchange) -> bool:
        """Return True if it acts on a request without a matching entity, such as one for all topics. Its effect is
        called with no entities."""
        return False

    def may_be_unnamed(self, key: int, version: int) -> bool:
        """Return True if `unnamed` can hold for a request of this API and version."""
        return type(self).unnamed is not LiveRule.unnamed

    @property
    def stops_unread(self) -> bool:
        """Return True if what kproxy cannot read must not pass, since it may be what the rule forbids."""
        return False

    def shows(self, key: int, version: int) -> bool:
        """Return True if an answer may mention, unasked, what the rule forbids; it is then redacted."""
        return False

    def required_literals(self, key: int, version: int) -> tuple[bytes, ...] | None:
        """Literals; each frame that the rule can affect contains one of them, a topic id or a request for all topics.
        None: no prefilter."""
        return None

    @property
    def wanted(self) -> str:
        """Return the filter that an exchange must match in addition to the selectors, or an empty text."""
        return ""

    @property
    def acts_late(self) -> bool:
        """Return True if it acts on responses only, so that its filter is asked when they have come."""
        return False

    def forbids(self, entity: Entity) -> bool:
        """Return True if an answer must not mention the entity."""
        return False

    def warnings(self) -> Iterable[str]:
        """Yield warnings about missing effects of the rule, for the log and `kproxy check`."""
        return ()

    def start(self) -> Effect:
        """Return the rule's effect, with all the state that it has."""
        raise NotImplementedError

    def about(self, key: int, version: int) -> bool:
        """Return True if the selectors can hold for a request of this API and version."""
        return self.match is None or self.match.about(key, version)


class SelectingRule(LiveRule):
    """Live rule that needs the names of topics, where a request gives only ids, for nothing but to select them."""

    whole: ClassVar[bool] = False
    """True: it acts on frames whatever they are about, so that fetch sessions need not be known for it."""

    @property
    def reads_topics(self) -> bool:
        return self.selects_topics

    @property
    def reads_entities(self) -> bool:
        return not self.whole
