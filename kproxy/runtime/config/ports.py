"""Checks of a config document for ports that two listeners want, and for names that both have on a shared port."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kproxy.rules.values.address import Address, PortRange
from kproxy.rules.values.model import Wrong

from .network import plain_name

ListenerEntry = tuple[int, dict[Any, Any]]
"""Listener of a config document, not yet checked: (position in the list, its mapping)."""


def called(index: int, one: dict[Any, Any]) -> str:
    """Return how a message calls a listener: by its name, or by its number where it has none yet."""
    name = one.get("name")
    return f'listener "{name}"' if isinstance(name, str) and name else f"listener {index + 1}"


@dataclass(frozen=True)
class PortClaim:
    """Range of ports that a listener is to open on one host; `where` is its place in the document."""

    where: tuple[Any, ...]
    host: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"port {self.first}" if self.first == self.last else f"ports {self.first}-{self.last}"

    def ranges(self, but: int) -> list[tuple[int, int]]:
        """Return the claim as ranges, without one port."""
        ranges = ((self.first, but - 1), (but + 1, self.last)) if self.first <= but <= self.last else self.all
        return [(first, last) for first, last in ranges if first <= last]

    @property
    def all(self) -> tuple[tuple[int, int], ...]:
        return ((self.first, self.last),)


class PlannedListener:
    """Listener of a config document with all that its port checks look at, read once: `claims`, its `own` port among
    them, and the `shared` address of one that is told apart from others there by names."""

    def __init__(self, index: int, mapping: dict[Any, Any]) -> None:
        self.index, self.mapping = index, mapping
        self.bind = _address(mapping.get("bind"))
        self.claims = list(_claims(index, mapping))
        self.own = self.claims[0] if self.bind is not None and self.bind.port else None
        shares = self.bind is not None and self.bind.port != 0 and bool(mapping.get("hosts"))
        self.shared = self.bind if shares else None


PortHolder = tuple[PlannedListener, PortClaim]
"""Listener that has a port, and what it has said to have it."""


class HostPorts:
    """Ports of one host, by whoever claims them first. Ranges are kept in order, and none overlaps with another."""

    __slots__ = ("lasts", "owners", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.lasts: list[int] = []
        self.owners: list[PortHolder] = []

    def find(self, first: int, last: int) -> PortHolder | None:
        """Return who has the lowest port of this range that anybody has."""
        at = bisect_left(self.lasts, first)
        return self.owners[at] if at < len(self.starts) and self.starts[at] <= last else None

    def add(self, first: int, last: int, owner: PortHolder) -> None:
        """Give the ports of this range to the owner, save for those that somebody has."""
        at = bisect_left(self.lasts, first)
        while first <= last:
            taken = at < len(self.starts) and self.starts[at] <= last
            end = self.starts[at] - 1 if taken else last
            if first <= end:
                self.starts.insert(at, first)
                self.lasts.insert(at, end)
                self.owners.insert(at, owner)
                at += 1
            if not taken:
                return
            first, at = self.lasts[at] + 1, at + 1


class AnyPorts:
    """Ports of many hosts together, by whoever claims each of them first on any of them."""

    __slots__ = ("owners", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """Set of ports, as the bits of a number: a range of them is looked at in one step."""
        self.owners: dict[int, PortHolder] = {}

    def find(self, first: int, last: int) -> PortHolder | None:
        """Return who has the lowest port of this range that anybody has."""
        found = self.taken >> first & ((1 << last - first + 1) - 1)
        return self.owners[first + (found & -found).bit_length() - 1] if found else None

    def add(self, first: int, last: int, owner: PortHolder) -> None:
        """Give the ports of this range to the owner, save for those that somebody has."""
        free = ((1 << last - first + 1) - 1) & ~(self.taken >> first)
        self.taken |= free << first
        while free:  # each port is met here once
            lowest = free & -free
            self.owners[first + lowest.bit_length() - 1] = owner
            free ^= lowest


class ClaimedPorts:
    """Ports that listeners claim, so that what one more claims is compared with those few that may be the same."""

    def __init__(self) -> None:
        self.by_host: dict[str, HostPorts] = {}
        self.every, self.every_v4 = AnyPorts(), AnyPorts()

    def places(self, host: str) -> list[HostPorts | AnyPorts]:
        """Return where ports stand that are the same on this host: its own, those of all hosts, and of each host for
        one that means them all. 0.0.0.0 takes IPv4 only."""
        found = [self.by_host[one] for one in dict.fromkeys((host, *_wild(host))) if one in self.by_host]
        if host == "::":
            return [*found, self.every]
        return [*found, self.every_v4] if host == "0.0.0.0" else list[HostPorts | AnyPorts](found)

    def find(self, one: PlannedListener, claim: PortClaim) -> PortHolder | None:
        """Return who has a port of this claim; the port of listeners that are told apart by names is free for them."""
        bind, ranges = one.shared, claim.all
        if bind is not None and claim is not one.own:
            ranges = tuple(claim.ranges(but=bind.port))
        places = self.places(claim.host)
        owners = [owner for first, last in ranges for place in places if (owner := place.find(first, last)) is not None]
        owners = [(two, other) for two, other in owners if bind is None or two.shared != bind or other is not two.own]
        return min(owners, key=lambda owner: owner[0].index, default=None)

    def add(self, one: PlannedListener) -> None:
        for claim in one.claims:
            first, last, owner = claim.first, claim.last, (one, claim)
            self.by_host.setdefault(claim.host, HostPorts()).add(first, last, owner)
            self.every.add(first, last, owner)
            if ":" not in claim.host:
                self.every_v4.add(first, last, owner)


class SharedPort:
    """Port that listeners share: who serves each name at it, and how the first of them reads clients' addresses."""

    def __init__(self, first: PlannedListener) -> None:
        self.first = first
        self.names: dict[str, PlannedListener] = {}

    def join(self, one: PlannedListener) -> Iterator[Wrong]:
        """Yield what a listener has in common with others and may not, or not in common and must; it is one of them."""
        names = list(_names(one.mapping))
        for name, where in names:
            if name in self.names:
                served = f'"{name}" is served by {_who(self.names[name])} on the same port'
                yield ("listeners", one.index, *where), served
        if one.mapping.get("proxy_protocol") != self.first.mapping.get("proxy_protocol"):
            text = f"proxy_protocol is read before the name is known, and differs from that of {_who(self.first)}"
            place = "proxy_protocol" if "proxy_protocol" in one.mapping else "bind"
            yield ("listeners", one.index, place), f"{text}, on the same port"
        for name, _ in names:
            self.names.setdefault(name, one)


def overlaps(entries: Iterable[ListenerEntry], admin: Any) -> Iterator[Wrong]:
    """Yield a mistake for each claim of ports that others have, at the place that comes later in the document."""
    earlier, shared = ClaimedPorts(), dict[Address, SharedPort]()
    for index, mapping in entries:
        one = PlannedListener(index, mapping)
        if one.shared is not None:
            port = shared.get(one.shared)
            if port is None:
                port = shared[one.shared] = SharedPort(one)
            yield from port.join(one)
        taken = [(claim, earlier.find(one, claim)) for claim in one.claims]
        yield from (_taken(claim, owner) for claim, owner in taken if owner is not None)
        one.claims = [claim for claim, owner in taken if owner is None]
        earlier.add(one)
    if isinstance(admin, dict) and (bind := _address(admin.get("bind"))) is not None:
        claim = PortClaim(("admin", "bind"), bind.host, bind.port, bind.port)
        if bind.port and (owner := earlier.find(PlannedListener(-1, {}), claim)) is not None:
            yield _taken(claim, owner)


def circles(entries: Iterable[ListenerEntry], clusters: Any) -> Iterator[Wrong]:
    """Yield a mistake for each cluster's server that is a listener of this config: kproxy would connect to itself."""
    by_host: dict[str, HostPorts] = {}
    for index, mapping in entries:
        one = PlannedListener(index, mapping)
        for claim in one.claims:
            ports = by_host.setdefault(_plain_host(claim.host), HostPorts())
            if ports.find(claim.first, claim.last) is None:
                ports.add(claim.first, claim.last, (one, claim))
    for name, cluster in clusters.items() if isinstance(clusters, dict) else ():
        if not isinstance(cluster, dict):
            continue
        for where, text in _servers(cluster):
            address = _address(text)
            if address is None:
                continue
            ports_there = [by_host[host] for host in _bound_for(address.host) if host in by_host]
            owners = [owner for one in ports_there if (owner := one.find(address.port, address.port)) is not None]
            if owners:
                whose = _who(min(owners, key=lambda owner: owner[0].index)[0])
                problem = f"{address} is {whose} itself, connections would go round in a circle"
                yield ("clusters", name, *where), problem


def _who(listener: PlannedListener) -> str:
    return called(listener.index, listener.mapping)


def _servers(cluster: dict[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each address at which a cluster is reached, behind its place in the cluster's mapping."""
    bootstrap, dial = cluster.get("bootstrap"), cluster.get("dial")
    for number, text in enumerate(bootstrap if isinstance(bootstrap, list) else ()):
        yield ("bootstrap", number), text
    for old, new in dial.items() if isinstance(dial, dict) else ():
        yield ("dial", old), new


def _plain_host(host: str) -> str:
    return host.lower().rstrip(".")


def _wild(host: str) -> tuple[str, ...]:
    """Return the hosts that mean all, this one among them."""
    return ("::",) if ":" in host and host != "::" else ("0.0.0.0", "::")


def _bound_for(target: str) -> Sequence[str]:
    """Return the hosts to which a listener may be bound that a connection to `target` reaches, judging by the names."""
    target = _plain_host(target)
    if target == "localhost":
        return (target, "127.0.0.1", "0.0.0.0", "::1", "::")
    if target.startswith("127."):
        return (target, "0.0.0.0", "::")
    return (target, "::") if target == "::1" else (target,)


def _taken(claim: PortClaim, owner: PortHolder) -> Wrong:
    """Return the mistake that a claim is, of which somebody has a port."""
    two, other = owner
    if (claim.host, str(claim)) == (other.host, str(other)):
        return claim.where, f"{claim} of {claim.host} is taken by {_who(two)}"
    return claim.where, f"{claim} of {claim.host} overlaps with {other} of {other.host}, taken by {_who(two)}"


def _claims(index: int, one: dict[Any, Any]) -> Iterator[PortClaim]:
    """Yield the ports that a listener is told to take, its own first. Ports that it may choose freely are no claim."""
    bind = _address(one.get("bind"))
    if bind is None:
        return
    if bind.port:
        yield PortClaim(("listeners", index, "bind"), bind.host, bind.port, bind.port)
    advertise = one.get("advertise")
    if not isinstance(advertise, dict):
        return
    at = ("listeners", index, "advertise")
    try:
        ports = PortRange.parse(advertise["ports"])
    except (KeyError, ValueError):
        pass
    else:
        yield PortClaim((*at, "ports"), bind.host, ports.first, ports.last)
    nodes = advertise.get("nodes")
    for node, text in nodes.items() if isinstance(nodes, dict) else ():
        address = _address(text)
        if address is not None and address.port != bind.port:
            yield PortClaim((*at, "nodes", node), bind.host, address.port, address.port)


def _address(text: Any) -> Address | None:
    try:
        return Address.parse(text)
    except ValueError:
        return None


def _names(one: dict[Any, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    hosts, advertise = one.get("hosts"), one.get("advertise")
    for number, host in enumerate(hosts if isinstance(hosts, list) else ()):
        if isinstance(host, str):
            yield plain_name(host), ("hosts", number)
    if not isinstance(advertise, dict):
        return
    if isinstance(sni := advertise.get("sni"), str):
        yield plain_name(sni.rpartition(":")[0]), ("advertise", "sni")
    nodes = advertise.get("nodes")
    for node, text in nodes.items() if isinstance(nodes, dict) else ():
        if (address := _address(text)) is not None:
            yield plain_name(address.host), ("advertise", "nodes", node)
