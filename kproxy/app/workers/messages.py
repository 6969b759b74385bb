"""Messages between the supervisor and a worker: about processes, connections and nodes, from the supervisor's admin
API, and about rules."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from kproxy.app.config.document import Config
from kproxy.record.live_view.watch import ViewPart, ViewTotals
from kproxy.record.metrics.merged import MetricSamples
from kproxy.record.metrics.worker_totals import LabelShare
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime.listeners.listener_ports import ClientAddresses
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.readiness import Readiness

from .channel import Notice, Question


class ListenerPlace(msgspec.Struct, frozen=True, array_like=True):
    """Place of a listener: the number of its ports, which changes when it moves, and its bootstrap port."""

    number: int
    port: int


class ClusterNodes(msgspec.Struct, frozen=True, array_like=True):
    """Known nodes of a cluster. `number`: of its topology, which changes when the topology is discarded."""

    number: int
    nodes: Mapping[int, HostPort]


class NetworkTerms(msgspec.Struct, frozen=True):
    """State under which a config is in force: the supervisor's ports and topologies, by listener and cluster. `number`:
    the number of earlier configs. `others`: clusters that this config has replaced."""

    number: int
    listeners: Mapping[str, ListenerPlace]
    clusters: Mapping[str, ClusterNodes]
    others: tuple[str, ...] = ()


class Start(Notice, frozen=True):
    """First message to a worker: its settings. `network` are the terms of its config, `rules` the rules in force,
    encoded by kproxy.app.workers."""

    config: bytes
    index: int
    workers: int
    network: NetworkTerms
    rules: bytes = b""
    instance: str = ""
    """Random id of this start of kproxy, the same in all its workers."""
    own: tuple[HostPort, ...] = ()
    """Addresses of the supervisor's listening sockets."""
    generation: int = 0
    """Number of earlier processes in the worker's place."""


class Listens(Notice, frozen=True):
    """Notice that the supervisor listens at this address now, or has stopped."""

    address: HostPort
    now: bool


class CircleFound(Notice, frozen=True):
    """Notice that a question to this cluster has come back to this kproxy."""

    cluster: str


class WorkerReady(Notice, frozen=True):
    """Notice that the worker accepts connections."""


class WorkerFailed(Notice, frozen=True):
    """Notice that the worker cannot start, and ends. `mistakes`: of rules or config; if empty, `message` has the
    reason."""

    message: str
    mistakes: tuple[str, ...] = ()


class Missing(Question[Readiness], frozen=True):
    """Question for the reasons why the worker is not ready."""

    answer: ClassVar[Any] = Readiness


class Load(Notice, frozen=True):
    """Load of a worker: the number of connections that it has taken since it began, and the number of open ones.
    `addresses`: open connections by address, changed ones only, if limited."""

    taken: int
    open: int
    addresses: Mapping[str, int] = {}


class NodesMoved(Notice, frozen=True):
    """Notice of new or moved nodes of a cluster. `topology`: the number of its topology."""

    cluster: str
    topology: int
    nodes: Mapping[int, HostPort]


class FoundAddresses(msgspec.Struct, frozen=True, array_like=True):
    """Addresses of nodes, as clients reach them."""

    addresses: ClientAddresses


class FindAddresses(Question[FoundAddresses], frozen=True):
    """Question of a worker for clients' addresses of these nodes; see `port_service.AddressRequest`. `ports`,
    `topology`: numbers of the listener's ports and of the nodes' topology, in the worker's config."""

    answer: ClassVar[Any] = FoundAddresses
    listener: str
    nodes: Mapping[int, HostPort]
    advertise: bytes
    local_host: str
    ports: int
    topology: int


class Pruned(Notice, frozen=True):
    """Notice of a worker that it has released the ports of this listener in configs before `config`."""

    listener: str
    config: int


class StartDrain(Notice, frozen=True):
    """Notice to end: answer what is in flight."""


class GiveUp(Notice, frozen=True):
    """Notice to end at once."""


def pack(what: Config | Advertise) -> bytes:
    """Pickle a model: it comes from the process that made it, over a private socket."""
    if isinstance(what, Advertise):  # of a rule, what it selects on may not be picklable, and is not asked for
        what = Advertise.model_construct(**{name: getattr(what, name) for name in Advertise.model_fields})
    return pickle.dumps(what)


def unpack_config(packed: bytes) -> Config:
    config = pickle.loads(packed)
    assert isinstance(config, Config)
    return config


def unpack_advertise(packed: bytes) -> Advertise:
    advertise = pickle.loads(packed)
    assert isinstance(advertise, Advertise)
    return advertise


class Operated(msgspec.Struct, frozen=True):
    """Answer of an operation: its JSON; or the status, code, message and mistakes of the refusal."""

    shown: Any = None
    status: int = 200
    code: str = ""
    message: str = ""
    mistakes: list[str | tuple[str, str]] = []


class Operate(Question[Operated], frozen=True):
    """Question to run an operation of the API on a member, by its name, with these arguments."""

    answer: ClassVar[Any] = Operated
    name: str
    arguments: list[Any]


class Measure(Question[list[MetricSamples]], frozen=True):
    """Question for a worker's metrics. `growing`: only counters and histograms, which must not be
    lost when it ends."""

    answer: ClassVar[Any] = list[MetricSamples]
    growing: bool = False


class MeasureLabels(Question[LabelShare], frozen=True):
    """Question for a worker's metrics by label."""

    answer: ClassVar[Any] = LabelShare


class BeginTail(Question[None], frozen=True):
    """Question to start a tail with this filter; `number` is the tail's number."""

    number: int
    filter: str


class Lines(msgspec.Struct, frozen=True):
    """Lines of a tail, with line ends; empty after a while without exchanges. `dropped`: total of exchanges that did
    not fit."""

    text: bytes
    dropped: int = 0


class NextLines(Question[Lines], frozen=True):
    """Question for the lines since the last answer; answered as soon as one exists."""

    answer: ClassVar[Any] = Lines
    number: int


class EndTail(Notice, frozen=True):
    """Notice that the listener is gone."""

    number: int


class BeginView(Question[None], frozen=True):
    """Question to start a view with this filter, at most `rows` rows a second; `number` is the viewer's. `after`:
    position up to which the viewer has all rows; None: it has no rows."""

    number: int
    filter: str
    rows: int
    after: int | None


class NextPart(Question[ViewPart], frozen=True):
    """Question for the next part of a view; answered as soon as it has rows, or after a while."""

    answer: ClassVar[Any] = ViewPart
    number: int


class EndView(Notice, frozen=True):
    """Notice that the viewer is gone."""

    number: int


class TotalView(Question[ViewTotals], frozen=True):
    """Question for the totals that viewers receive each second."""

    answer: ClassVar[Any] = ViewTotals


class JoinCapture(Question[None], frozen=True):
    """Question to write into a capture. `owner`: its place in the shared table. `head`: see `record.captures.policy`.
    `topics`: the first worker records the topics."""

    path: str
    owner: bytes
    filter: str
    payload: Literal["none", "head", "sketch", "full"]
    head: int
    side: Literal["client", "broker", "both"]
    size: int
    seconds: float
    exchanges: int | None
    topics: bool


class HandedRule(msgspec.Struct, frozen=True, array_like=True):
    """Rule in the form that a worker needs. `raw`: as it was written; `content`: a digest, the same for the same rules.
    `born`, `lives`, `resets`, `began`: of a live rule that has been in force (`rules.rule_set`), otherwise 0."""

    content: bytes
    raw: dict[Any, Any]
    position: str
    origin: str
    active: bool
    born: int
    lives: int
    resets: int
    began: float


class RulesState(msgspec.Struct, frozen=True):
    """State of all rules, complete. `number`: of the supervisor's states."""

    number: int
    seed: int
    rules: list[HandedRule]


class Obstacle(msgspec.Struct, frozen=True):
    """Valid setting of a config that a worker cannot use. `where`: its path in the config."""

    where: list[Any]
    message: str


class Prepare(Question[Obstacle | None], frozen=True):
    """Question to prepare this state (a `RulesState`, packed) and, unless it is empty, this config (packed), without
    changing anything. Refused if rules cannot be made here. `number`: of the state; each has its own, including those
    that are never committed."""

    answer: ClassVar[Any] = Obstacle | None
    number: int
    state: bytes
    config: bytes = b""


class Forget(Notice, frozen=True):
    """Notice that the state of this number is discarded."""

    number: int


class Commit(Question[None], frozen=True):
    """Question to commit the last prepared state. `network`: the terms of its config, if included."""

    number: int
    network: NetworkTerms | None = None


class RuleCount(msgspec.Struct, frozen=True, array_like=True):
    """Counters of a rule in a worker; `held`: requests held now."""

    born: int
    resets: int
    matched: int
    fired: int
    applied: int
    held: int
    problems: int
    problem: str
    throttles: int = 0
    throttle_seconds: float = 0.0


class CountRules(Question[list[RuleCount]], frozen=True):
    """Question for the counters of live rules."""

    answer: ClassVar[Any] = list[RuleCount]


class ReleaseRule(Question[int], frozen=True):
    """Question to release the requests that a rule holds. The answer: the number of requests."""

    answer: ClassVar[Any] = int
    born: int


class RuleNews(Notice, frozen=True):
    """Notice to record in the audit: a method of its `RuleEvents`, and the arguments."""

    method: str
    given: list[Any]
