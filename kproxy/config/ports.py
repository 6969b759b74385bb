"""Checks of a config document for ports that two listeners want, and for names that both have on a shared port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kproxy.rules.document.address import Address, PortRange
from kproxy.rules.document.model import Wrong

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

    def overlaps(self, other: PortClaim) -> bool:
        """Return True if there is a port that both want on an address that both have."""
        wild = {self.host, other.host} & {"0.0.0.0", "::"}
        if wild == {"0.0.0.0"} and ":" in self.host + other.host:
            wild = set()  # 0.0.0.0 takes IPv4 only, and the other address is IPv6
        same = self.host == other.host or bool(wild)
        return same and self.first <= other.last and other.first <= self.last


class PlannedListener:
    """Listener of a config document with all that its port checks look at, read once: `claims`, its own port first,
    and `names`, by which it is told apart on a port that it shares."""

    def __init__(self, index: int, mapping: dict[Any, Any]) -> None:
        self.index, self.mapping = index, mapping
        self.bind = _address(mapping.get("bind"))
        self.claims = list(_claims(index, mapping))
        self.names = {name for name, _ in _names(mapping)} if mapping.get("hosts") else set()

    def shares(self, other: PlannedListener) -> bool:
        """Return True if two listeners are meant to share a port: their bind is the same, and both have hosts."""
        same = self.bind is not None and self.bind.port != 0 and self.bind == other.bind
        return same and bool(self.mapping.get("hosts")) and bool(other.mapping.get("hosts"))


class ClaimedPorts:
    """Listeners by the ports that they claim, so that only those with a port in common are compared."""

    def __init__(self) -> None:
        self.single: dict[int, list[PlannedListener]] = {}
        self.ranged: list[PlannedListener] = []

    def add(self, listener: PlannedListener) -> None:
        """Remember the ports of a listener."""
        for claim in listener.claims:
            if claim.first == claim.last:
                self.single.setdefault(claim.first, []).append(listener)
            elif not self.ranged or self.ranged[-1] is not listener:
                self.ranged.append(listener)

    def near(self, claims: Sequence[PortClaim]) -> list[PlannedListener]:
        """Return the listeners that may have a port in common with these claims, in the order of the document."""
        found: dict[int, PlannedListener] = {}
        for claim in claims:
            ports: Iterable[int] = range(claim.first, claim.last + 1)
            if len(self.single) <= claim.last - claim.first:
                ports = [port for port in self.single if claim.first <= port <= claim.last]
            for port in ports:
                found |= {one.index: one for one in self.single.get(port, ())}
        if claims:
            found |= {one.index: one for one in self.ranged}
        return [found[index] for index in sorted(found)]


def overlaps(entries: Iterable[ListenerEntry], admin: Any) -> Iterator[Wrong]:
    """Yield a mistake for each port that is wanted twice, at the place that comes later in the document."""
    earlier = ClaimedPorts()
    for index, mapping in entries:
        one = PlannedListener(index, mapping)
        for two in earlier.near(one.claims):
            claims, taken = one.claims, two.claims
            if one.shares(two):
                yield from _sharing(one, two)
                claims, taken = claims[1:], taken[1:]
            for claim in claims:
                yield from _taken(claim, taken, called(two.index, two.mapping))
        earlier.add(one)
    if isinstance(admin, dict) and (bind := _address(admin.get("bind"))) is not None:
        claim = PortClaim(("admin", "bind"), bind.host, bind.port, bind.port)
        for two in earlier.near([claim]):
            yield from _taken(claim, two.claims, called(two.index, two.mapping))


def circles(entries: Iterable[ListenerEntry], clusters: Any) -> Iterator[Wrong]:
    """Yield a mistake for each cluster's server that is a listener of this config: kproxy would connect to itself."""
    claims = [(called(index, one), claim) for index, one in entries for claim in _claims(index, one)]
    for name, cluster in clusters.items() if isinstance(clusters, dict) else ():
        if not isinstance(cluster, dict):
            continue
        for where, text in _servers(cluster):
            address = _address(text)
            for whose, claim in claims:
                if address is None or not claim.first <= address.port <= claim.last:
                    continue
                if _same_machine(claim.host, address.host):
                    problem = f"{address} is {whose} itself, connections would go round in a circle"
                    yield ("clusters", name, *where), problem
                    break


def _servers(cluster: dict[Any, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each address at which a cluster is reached, behind its place in the cluster's mapping."""
    bootstrap, dial = cluster.get("bootstrap"), cluster.get("dial")
    for number, text in enumerate(bootstrap if isinstance(bootstrap, list) else ()):
        yield ("bootstrap", number), text
    for old, new in dial.items() if isinstance(dial, dict) else ():
        yield ("dial", old), new


def _same_machine(bound: str, target: str) -> bool:
    """Return True if a connection to `target` reaches a listener that is bound to `bound`, judging by the names."""
    bound, target = bound.lower().rstrip("."), target.lower().rstrip(".")
    if bound == target:
        return True
    if target == "localhost":
        return bound in ("127.0.0.1", "0.0.0.0", "::1", "::")
    if target.startswith("127."):
        return bound in ("0.0.0.0", "::")
    return target == "::1" and bound == "::"


def _taken(claim: PortClaim, taken: list[PortClaim], whose: str) -> Iterator[Wrong]:
    for other in taken:
        if not claim.overlaps(other):
            continue
        if (claim.host, str(claim)) == (other.host, str(other)):
            yield claim.where, f"{claim} of {claim.host} is taken by {whose}"
        else:
            yield claim.where, f"{claim} of {claim.host} overlaps with {other} of {other.host}, taken by {whose}"
        return


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


# ---- listeners on one port, told apart by names


def _sharing(one: PlannedListener, two: PlannedListener) -> Iterator[Wrong]:
    """Yield what two listeners on one port have in common and may not, or not in common and must."""
    at, whose = ("listeners", one.index), called(two.index, two.mapping)
    for name, where in _names(one.mapping):
        if name in two.names:
            yield (*at, *where), f'"{name}" is served by {whose} on the same port'
    if one.mapping.get("proxy_protocol") != two.mapping.get("proxy_protocol"):
        text = f"proxy_protocol is read before the name is known, and differs from that of {whose}"
        yield (*at, "proxy_protocol") if "proxy_protocol" in one.mapping else (*at, "bind"), f"{text}, on the same port"


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
