"""Checks of a config document for ports that two listeners claim, for names on shared ports, and for proxy loops."""

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
    """Return a listener's name for messages; its number if it has no valid name."""
    name = one.get("name")
    return f'listener "{name}"' if isinstance(name, str) and name else f"listener {index + 1}"


@dataclass(frozen=True)
class PortClaim:
    """Range of ports that a listener opens on one host. `where`: its path in the document."""

    where: tuple[Any, ...]
    host: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"port {self.first}" if self.first == self.last else f"ports {self.first}-{self.last}"

    def ranges(self, but: int) -> list[tuple[int, int]]:
        """Return the claim without one port."""
        ranges = ((self.first, but - 1), (but + 1, self.last)) if self.first <= but <= self.last else self.all
        return [(first, last) for first, last in ranges if first <= last]

    @property
    def all(self) -> tuple[tuple[int, int], ...]:
        return ((self.first, self.last),)


class PlannedListener:
    """Listener of a config document, parsed for the port checks.

    `own`: its claim of the bound port. `shared`: bound address, if the listener is selected by SNI host names.
    """

    def __init__(self, index: int, mapping: dict[Any, Any]) -> None:
        self.index, self.mapping = index, mapping
        self.bind = _address(mapping.get("bind"))
        self.claims = list(_claims(index, mapping))
        self.own = self.claims[0] if self.bind is not None and self.bind.port else None
        shares = self.bind is not None and self.bind.port != 0 and bool(mapping.get("hosts"))
        self.shared = self.bind if shares else None


PortHolder = tuple[PlannedListener, PortClaim]
"""Listener that has a port, and its claim."""


class HostPorts:
    """Ports of one host with their first claims, as sorted ranges without overlaps."""

    __slots__ = ("lasts", "owners", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.lasts: list[int] = []
        self.owners: list[PortHolder] = []

    def find(self, first: int, last: int) -> PortHolder | None:
        """Return the holder of the lowest claimed port of this range; None if no port is claimed."""
        at = bisect_left(self.lasts, first)
        return self.owners[at] if at < len(self.starts) and self.starts[at] <= last else None

    def add(self, first: int, last: int, owner: PortHolder) -> None:
        """Give the unclaimed ports of this range to the owner."""
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
    """Ports of many hosts together, each with its first claim on any host."""

    __slots__ = ("owners", "taken")

    def __init__(self) -> None:
        self.taken = 0  # bit set of ports: a range is checked in one operation
        self.owners: dict[int, PortHolder] = {}

    def find(self, first: int, last: int) -> PortHolder | None:
        """Return the holder of the lowest claimed port of this range; None if no port is claimed."""
        found = self.taken >> first & ((1 << last - first + 1) - 1)
        return self.owners[first + (found & -found).bit_length() - 1] if found else None

    def add(self, first: int, last: int, owner: PortHolder) -> None:
        """Give the unclaimed ports of this range to the owner."""
        free = ((1 << last - first + 1) - 1) & ~(self.taken >> first)
        self.taken |= free << first
        while free:  # at most one iteration per port over all calls
            lowest = free & -free
            self.owners[first + lowest.bit_length() - 1] = owner
            free ^= lowest


class ClaimedPorts:
    """Ports claimed by earlier listeners. Each new claim is compared with claims of the same port only."""

    def __init__(self) -> None:
        self.by_host: dict[str, HostPorts] = {}
        self.every, self.every_v4 = AnyPorts(), AnyPorts()

    def places(self, host: str) -> list[HostPorts | AnyPorts]:
        """Return the ports that conflict on this host: its own, those of wildcard hosts, and those of each host if this
        host is a wildcard. 0.0.0.0 includes only IPv4."""
        found = [self.by_host[one] for one in dict.fromkeys((host, *_wild(host))) if one in self.by_host]
        if host == "::":
            return [*found, self.every]
        return [*found, self.every_v4] if host == "0.0.0.0" else list[HostPorts | AnyPorts](found)

    def find(self, one: PlannedListener, claim: PortClaim) -> PortHolder | None:
        """Return the holder of a port of this claim. Listeners that are selected by host names may share their port."""
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
    """Port that listeners share, with the listener of each host name. `first`: its `proxy_protocol` applies to all."""

    def __init__(self, first: PlannedListener) -> None:
        self.first = first
        self.names: dict[str, PlannedListener] = {}

    def join(self, one: PlannedListener) -> Iterator[Wrong]:
        """Add a listener; yield an error for each name in use, and for another `proxy_protocol`."""
        names = list(_names(one.mapping))
        for name, where in names:
            if name in self.names:
                served = f'"{name}" is served by {_who(self.names[name])} on the same port'
                yield ("listeners", one.index, *where), served
        if one.mapping.get("proxy_protocol") != self.first.mapping.get("proxy_protocol"):
            text = f"expected the proxy_protocol of {_who(self.first)}, since it is read before the host name"
            place = "proxy_protocol" if "proxy_protocol" in one.mapping else "bind"
            yield ("listeners", one.index, place), f"{text}; got another one on the same port"
        for name, _ in names:
            self.names.setdefault(name, one)


def overlaps(entries: Iterable[ListenerEntry], admin: Any) -> Iterator[Wrong]:
    """Yield an error for each claim of a port that an earlier listener has."""
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
    """Yield an error for each server of a cluster that is a listener of this config: a proxy loop."""
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
                problem = f"expected the address of a broker, got {address} of {whose}: connections would loop"
                yield ("clusters", name, *where), problem


def _who(listener: PlannedListener) -> str:
    return called(listener.index, listener.mapping)


def _servers(cluster: dict[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the addresses of a cluster's servers with their paths in the cluster's mapping."""
    bootstrap, dial = cluster.get("bootstrap"), cluster.get("dial")
    for number, text in enumerate(bootstrap if isinstance(bootstrap, list) else ()):
        yield ("bootstrap", number), text
    for old, new in dial.items() if isinstance(dial, dict) else ():
        yield ("dial", old), new


def _plain_host(host: str) -> str:
    return host.lower().rstrip(".")


def _wild(host: str) -> tuple[str, ...]:
    """Return the wildcard hosts that include this host."""
    return ("::",) if ":" in host and host != "::" else ("0.0.0.0", "::")


def _bound_for(target: str) -> Sequence[str]:
    """Return the bound hosts that a connection to `target` reaches, judging by name."""
    target = _plain_host(target)
    if target == "localhost":
        return (target, "127.0.0.1", "0.0.0.0", "::1", "::")
    if target.startswith("127."):
        return (target, "0.0.0.0", "::")
    return (target, "::") if target == "::1" else (target,)


def _taken(claim: PortClaim, owner: PortHolder) -> Wrong:
    two, other = owner
    if (claim.host, str(claim)) == (other.host, str(other)):
        return claim.where, f"{claim} of {claim.host} is taken by {_who(two)}"
    return claim.where, f"{claim} of {claim.host} overlaps with {other} of {other.host}, taken by {_who(two)}"


def _claims(index: int, one: dict[Any, Any]) -> Iterator[PortClaim]:
    """Yield the ports that a listener's config names, its own first. Ports chosen by the system are not included."""
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
