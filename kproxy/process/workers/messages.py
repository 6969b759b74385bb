"""Messages between the supervisor and a worker about processes, connections and nodes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from kproxy.config.document import Config
from kproxy.net.accept.listener_ports import ClientAddresses
from kproxy.net.driven import HostPort
from kproxy.net.readiness import Readiness
from kproxy.rules.kinds.advertise import Advertise

from .channel import Notice, Question


class Start(Notice, frozen=True):
    """First message to a worker: what it is. `ports` are the listeners' bootstrap ports, `nodes` of each cluster those
    that are known, `rules` what kproxy.process.workers makes of the rules in force."""

    config: bytes
    index: int
    workers: int
    ports: Mapping[str, int]
    nodes: Mapping[str, Mapping[int, HostPort]]
    rules: bytes = b""
    instance: str = ""
    """Random id of this start of kproxy, the same in all its workers."""
    own: tuple[HostPort, ...] = ()
    """Addresses at which the supervisor listens."""


class Listens(Notice, frozen=True):
    """Notice that the supervisor listens at this address now, or no more."""

    address: HostPort
    now: bool


class CircleFound(Notice, frozen=True):
    """Notice that a question to this cluster has come back to this kproxy."""

    cluster: str


class WorkerReady(Notice, frozen=True):
    """Notice that the worker takes connections from now on."""


class WorkerFailed(Notice, frozen=True):
    """Notice that the worker cannot start, and ends. `mistakes`: of rules or config, else there is a message."""

    message: str
    mistakes: tuple[str, ...] = ()


class Missing(Question[Readiness], frozen=True):
    """Question why the worker is not ready."""

    answer: ClassVar[Any] = Readiness


class Load(Notice, frozen=True):
    """Load of a worker: how many connections it has been handed since it began, and how many of all are open now.
    `addresses`: how many of them from these, as far as that has changed, where it is limited."""

    taken: int
    open: int
    addresses: Mapping[str, int] = {}


class NodesMoved(Notice, frozen=True):
    """Notice of nodes of a cluster that are new, or elsewhere than before."""

    cluster: str
    nodes: Mapping[int, HostPort]


class FoundAddresses(msgspec.Struct, frozen=True, array_like=True):
    """Addresses at which clients reach nodes."""

    addresses: ClientAddresses


class FindAddresses(Question[FoundAddresses], frozen=True):
    """Question of a worker for clients' addresses of these nodes; see `port_service.AddressRequest`."""

    answer: ClassVar[Any] = FoundAddresses
    listener: str
    nodes: Mapping[int, HostPort]
    advertise: bytes
    local_host: str


class StartDrain(Notice, frozen=True):
    """Notice to end: answer what is in flight."""


class GiveUp(Notice, frozen=True):
    """Notice to end at once."""


def pack(what: Config | Advertise) -> bytes:
    """Pickle a model: it comes from the process that made it, over a socket that no other has."""
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
