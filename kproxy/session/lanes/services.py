"""Services of a session for its lanes: the engine of live rules, and lookups of nodes and topics.

A frame waits while its rewrites lack facts. `Lookups` requests ports of nodes from the driver, and topics from the
broker by a request of kproxy's own. When the result arrives, the frame is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kproxy.session.cluster import (
    CORRELATION,
    all_topics_request,
    named_topics_request,
    remember_named,
    remember_topics,
)
from kproxy.session.commands import BROKER, EnsureNodes, LoadSchemas, Send
from kproxy.session.frame import OWN
from kproxy.session.live.engine import Engine
from kproxy.session.rewrite.context import GONE, NeedsLookup
from kproxy.session.sasl.login import LaneLogins
from kproxy.session.session_state import SessionState
from kproxy.session.telemetry import TelemetryGateway

if TYPE_CHECKING:
    from kproxy.session.lanes.assembler import Assembler

NODES: Final = "nodes"
"""Wait reason: the addresses of nodes."""
SCHEMAS: Final = "schemas"
"""Wait reason: schemas of the cluster's registry."""
TOPICS: Final = "topics"
"""Wait reason: the cluster's topics."""


class Lookups:
    """Lookups of one session. `nodes`: those of an EnsureNodes without an answer so far. `topics_came`: the broker has
    answered since the last call of `take_news`."""

    def __init__(self, session: SessionState) -> None:
        self.session = session
        self.nodes: Mapping[int, tuple[str, int]] = {}
        self.topics_came = False

    def begin(self, needed: NeedsLookup, now: float) -> str:
        """Request the missing facts; return the reason to wait, NODES, SCHEMAS or TOPICS."""
        if needed.nodes:
            self.nodes = needed.nodes
            self.session.commands.append(EnsureNodes(dict(needed.nodes)))
            return NODES
        if needed.schemas:
            self.session.commands.append(LoadSchemas(needed.schemas))
            return SCHEMAS
        if needed.all_topics:
            self.ask_broker(all_topics_request(), self.learn_all, now)
        else:
            self.ask_broker(named_topics_request(needed.ids), self.learn_named, now)
        return TOPICS

    def ask_broker(self, request: bytes, answer: Callable[[bytes, float], None], now: float) -> None:
        """Send a request of kproxy's own; `answer` is called with the response's frame when its turn has come."""
        self.session.inflight.fifo.append((CORRELATION, OWN, now, answer))
        self.session.commands.append(Send(BROKER, request))

    def nodes_ready(self, addresses: Mapping[int, tuple[str, int] | None]) -> None:
        """Process the response to EnsureNodes, see `Session.nodes_ready`."""
        context = self.session.context
        for node, address in self.nodes.items():
            context.nodes[node] = (*address, addresses.get(node) or GONE)
        self.nodes = {}

    def learn_named(self, frame: bytes, now: float) -> None:
        """Cache the names of unknown ids from the response."""
        remember_named(self.session.context.cluster_memory, frame, self.session.counters)
        self.topics_came = self.session.has_pending = True  # not now: earlier frames have not left yet

    def learn_all(self, frame: bytes, now: float) -> None:
        remember_topics(self.session.context.cluster_memory, frame, now, self.session.counters)
        self.topics_came = self.session.has_pending = True

    def take_news(self) -> bool:
        """Return True if topics have come since the last call."""
        came, self.topics_came = self.topics_came, False
        return came


class LaneHost(SessionState):
    """State of one session, with the services that its lanes use. Engine and lookups are made when the first frame
    needs them."""

    _engine: Engine | None = None
    _lookups: Lookups | None = None
    logins: LaneLogins
    telemetry: TelemetryGateway | None = None
    """Receiver of the client's own metrics; None: not received."""

    def granted(self, now: float) -> None:
        """Continue the lane that got memory by a `Wake`, or that is first in the queue of a quota."""
        raise NotImplementedError

    def wake(self, lanes: Sequence[Assembler]) -> None:
        """Have these lanes, of any session, go on: they have the memory that they waited for."""
        raise NotImplementedError

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self)
        return self._engine

    @property
    def lookups(self) -> Lookups:
        if self._lookups is None:
            self._lookups = Lookups(self)
        return self._lookups
