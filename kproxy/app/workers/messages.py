"""Remote methods of the supervisor and of a worker about processes, connections and nodes, and values in arguments and
results of remote calls."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from kproxy.app.config.document import Config
from kproxy.rules.kinds.advertise import Advertise
from kproxy.runtime.io.channel import remote
from kproxy.runtime.listeners.listener_ports import ClientAddresses
from kproxy.runtime.protocols import HostPort
from kproxy.runtime.readiness import Readiness

READY_PATIENCE = 0.8
"""Timeout in seconds of a call for the readiness; a Kubernetes probe waits one second by default."""


class ListenerPlace(msgspec.Struct, frozen=True, array_like=True):
    """Place of a listener: the number of its ports, which changes when it moves, and its bootstrap port."""

    number: int
    port: int


class ClusterNodes(msgspec.Struct, frozen=True, array_like=True):
    """Known nodes of a cluster. `number`: of its topology, which changes when the topology is discarded."""

    number: int
    nodes: Mapping[int, HostPort]


class NetworkSettings(msgspec.Struct, frozen=True):
    """State under which a config is in force: the supervisor's ports and topologies, by listener and cluster. `number`:
    the number of earlier configs. `others`: clusters that this config has replaced."""

    number: int
    listeners: Mapping[str, ListenerPlace]
    clusters: Mapping[str, ClusterNodes]
    others: tuple[str, ...] = ()


class Start(msgspec.Struct, frozen=True, array_like=True):
    """First message to a worker: its settings. `network` are the terms of its config, `rules` the rules in force,
    encoded by kproxy.app.workers."""

    config: bytes
    index: int
    workers: int
    network: NetworkSettings
    rules: bytes = b""
    instance: str = ""
    """Random id of this start of kproxy, the same in all its workers."""
    own: tuple[HostPort, ...] = ()
    """Addresses of the supervisor's listening sockets."""
    generation: int = 0
    """Number of earlier processes in the worker's place."""


class WorkerCalls:
    """Methods of a worker that the supervisor calls, besides those of `WorkerRules`, `WorkerMetrics`, captures and
    `Member`."""

    @remote()
    def start(self, start: Start) -> None:
        """First message, before a channel exists."""

    @remote()
    def drain(self) -> None:
        """End when the requests in flight are answered."""

    @remote()
    def give_up(self) -> None:
        """End at once."""

    @remote(READY_PATIENCE)
    async def find_readiness(self) -> Readiness:
        raise NotImplementedError

    @remote()
    def listens(self, address: HostPort, now: bool) -> None:
        """Note that the supervisor listens at this address now, or has stopped."""

    @remote()
    def learn(self, cluster: str, topology: int, nodes: Mapping[int, HostPort]) -> None:
        """Learn new or moved nodes of a cluster. `topology`: the number of its topology."""

    @remote()
    def leads_back(self, cluster: str) -> None:
        """Note that a request to this cluster has come back to this kproxy."""

    @remote()
    def record(self, method: str, arguments: list[Any]) -> None:
        """Record an event of rules in the audit: a method of its `RuleEvents`, and the arguments."""


class SupervisorCalls:
    """Methods of the supervisor that a worker calls."""

    @remote()
    def ready(self) -> None:
        """Note that the worker accepts connections."""

    @remote()
    def failed(self, message: str, mistakes: list[str]) -> None:
        """Note that the worker cannot start, and ends. `mistakes`: of rules or config; if empty, `message` has the
        reason."""

    @remote()
    def load(self, taken: int, still_open: int, addresses: Mapping[str, int]) -> None:
        """Note the number of connections that the worker has taken since it began, and of open ones. `addresses`: open
        connections by address, changed ones only, if limited."""

    @remote()
    async def find_addresses(
        self, listener: str, nodes: Mapping[int, HostPort], advertise: bytes, local_host: str, ports: int, topology: int
    ) -> ClientAddresses:
        """Return the clients' addresses of these nodes; see `port_service.AddressRequest`. `ports`, `topology`: numbers
        of the listener's ports and of the nodes' topology, in the worker's config."""
        raise NotImplementedError

    @remote()
    def pruned(self, listener: str, config: int) -> None:
        """Note that the worker has released the ports of this listener in configs before `config`."""

    @remote()
    def leads_back(self, cluster: str) -> None:
        """Note that a request to this cluster has come back to this kproxy."""


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


class JoinCapture(msgspec.Struct, frozen=True):
    """Capture that all workers write into. `owner`: its place in the shared table. `head`: see
    `record.captures.policy`. `topics`: the first worker records the topics."""

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


class RuleCount(msgspec.Struct, frozen=True, array_like=True):
    """Counters of a rule in a worker; `held`: requests held now; `records`: the fields of `RecordCounts`."""

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
    records: tuple[int, ...] = (0,) * 6
