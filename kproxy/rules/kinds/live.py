"""What every kind has whose rules take effect at the next frame: quota, access and fault rules.

Such a kind is one file with a frozen model (`LiveRule`) and, where it keeps something in mind, an `Effect`. The engine
in `core` decides whether a rule fires; then it calls the effect, and turns its decisions into bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kproxy.rules.common import Common
from kproxy.rules.decision import Decision
from kproxy.rules.depth import Depth
from kproxy.rules.entity import Entity
from kproxy.rules.exchange import ConnectionView, Exchange
from kproxy.rules.facts import Facts
from kproxy.rules.frame_match import FrameMatch
from kproxy.rules.kinds.base import Direction, Family, Rule, Scope
from kproxy.rules.shape import TrafficShape
from kproxy.rules.when import When

Decisions = Sequence[Decision]

LIMITING: frozenset[Family] = frozenset(("access", "quota"))
"""Families of rules that limit clients: what these do to get around one counts for nothing."""


Lasting = Annotated[
    bool,
    Field(
        description="it is meant for good, as part of how clients are served, and the kill switch leaves it in force; "
        "false: it is a fault"
    ),
]
"""Of the field `lasting`, which kinds have that can be meant so."""


@dataclass(slots=True)
class EffectProblem:
    """Something that went wrong in a rule: what, how often, and what was said the last time."""

    what: str
    count: int = 0
    last: str = ""


class Effect:
    """A rule at work. Override what the kind does; `now` is monotonic seconds."""

    seed: str = ""
    """Of the chances that it draws itself; set before it is first called, and its own for each rule."""
    clock: Callable[[], float] = staticmethod(lambda: 0.0)
    """Monotonic seconds, to measure how long something took; set by whoever starts the rule, since rules have none."""
    common: Common | None = None
    """What it shares with the same rule in other processes, where there are any; set like `seed`."""

    def on_connect(self, connection: ConnectionView, now: float) -> Decisions:
        """A client has connected."""
        return ()

    def on_request(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """The rule fired for this request, for these entities of it."""
        return ()

    def on_response(self, exchange: Exchange, entities: Sequence[Entity], now: float) -> Decisions:
        """The response to a request for which the rule fired."""
        return ()

    def shape(self, connection: ConnectionView) -> TrafficShape | None:
        """How the bytes of this connection flow while the rule is in force; None: as they come."""
        return None

    def problems(self) -> Sequence[EffectProblem]:
        """What has gone wrong inside of it so far, for log, metrics and API."""
        return ()


class LiveRule(Rule):
    """A named entry under `rules:` that takes effect at the next frame."""

    scope: ClassVar[Scope] = "entity"
    family: ClassVar[Family] = "fault"

    match: FrameMatch | None = Field(default=None, description="frames that it is for; all of them if left out")
    not_: FrameMatch | None = Field(default=None, alias="not", description="frames that it is not for")
    when: When | None = Field(default=None, description="which of these it acts on; all of them if left out")
    mode: Literal["enforce", "observe"] = Field(
        default="enforce", description="observe: it is counted where it would act, and nothing is done"
    )

    def model_post_init(self, context: Any, /) -> None:
        """Whoever may be anyone is one of those whom a limit is for, and none of those whom it spares."""
        super().model_post_init(context)
        if self.match is not None and self.family in LIMITING:
            self.match.suspect_anyone()

    @property
    def is_fault(self) -> bool:
        """Return True if the kill switch turns it off."""
        return self.family == "fault" and not getattr(self, "lasting", False)

    def holds(self, facts: Facts) -> bool:
        """Whether this rule can be about frames of such a connection."""
        wanted = self.match is None or self.match.holds(facts)
        not_ = self.not_
        return wanted and (not_ is None or not not_.of_connection or not not_.holds(facts))

    @property
    def is_unconditional(self) -> bool:
        """Whether it can be about frames of every connection."""
        wanted = self.match is None or self.match.of_any_connection
        return wanted and (self.not_ is None or not self.not_.of_connection)

    @property
    def connects(self) -> bool:
        """Whether it acts when a client connects (`Effect.on_connect`): selected and counted are connections then."""
        return False

    def depth(self, direction: Direction, key: int, version: int) -> Depth:
        """Whether it acts on frames of this direction, API and version, and how deep it must see them for that."""
        raise NotImplementedError

    def holds_for(self, entity: Entity) -> bool:
        """Whether the selectors hold for what a request is about; `not` apart."""
        return self.match is None or self.match.holds_entity(entity)

    @property
    def selects_topics(self) -> bool:
        """Whether it selects topics by their names."""
        return any(one is not None and one.topic is not None for one in (self.match, self.not_))

    @property
    def reads_principal(self) -> bool:
        """Whether it goes by who the client is, so that requests wait for an authentication that is under way."""
        return any(one is not None and one.principal is not None for one in (self.match, self.not_))

    @property
    def reads_topics(self) -> bool:
        """Whether topics must have their names where a request gives only ids; the broker is then asked for them."""
        return True

    @property
    def reads_entities(self) -> bool:
        """Whether a body is seen for what it is about. If not, fetch sessions need not be known for this rule."""
        return True

    @property
    def selects_errors(self) -> bool:
        """Whether it looks at what the broker answered, so that it has its say only then."""
        return any(one is not None and one.sees_error for one in (self.match, self.not_))

    def unnamed(self, exchange: Exchange) -> bool:
        """Whether it has a say in a request none of whose entities match, such as one that asks for all there is.

        Its effect is then called with no entities.
        """
        return False

    def may_be_unnamed(self, key: int, version: int) -> bool:
        """Whether `unnamed` can say yes to a request of this API and version."""
        return type(self).unnamed is not LiveRule.unnamed

    @property
    def stops_unread(self) -> bool:
        """Whether what kproxy cannot read must not pass, since it may be what the rule forbids."""
        return False

    def shows(self, key: int, version: int) -> bool:
        """Whether an answer may mention what the rule forbids though nobody asked for it; it is then left out."""
        return False

    def letters(self, key: int, version: int) -> tuple[bytes, ...] | None:
        """Return bytes of which a frame holds one of these if the rule can be about it, topics given by id and requests
        for all there is apart, or changes the answer; None: it cannot be told by bytes."""
        return None

    def forbids(self, entity: Entity) -> bool:
        """Whether an answer must not mention it."""
        return False

    def warnings(self) -> Iterable[str]:
        """What this rule will not do though one might think so: shown when it loads, and by `kproxy check`."""
        return ()

    def start(self) -> Effect:
        """The rule's effect, with all the state that it has."""
        raise NotImplementedError

    def about(self, key: int, version: int) -> bool:
        """Whether the selectors can hold for a request of this API and version."""
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
