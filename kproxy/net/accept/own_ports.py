"""Addresses on which this kproxy listens itself, so that it never connects to them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from kproxy.net.driven import HostPort, host_port
from kproxy.net.transparent import is_own

REASON = "this is kproxy itself, connections would go round in a circle"


class OwnPorts:
    """Addresses where kproxy listens, by port. With workers the supervisor listens, and tells workers by `changed`."""

    def __init__(self, addresses: Iterable[HostPort] = ()) -> None:
        self.by_port: dict[int, set[str]] = {}
        self.changed: Callable[[HostPort, bool], object] = lambda address, added: None
        for address in addresses:
            self.add(address)

    def add(self, address: HostPort) -> None:
        """Note that kproxy listens at this address now."""
        self.by_port.setdefault(address[1], set()).add(address[0])
        self.changed(address, True)

    def discard(self, address: HostPort) -> None:
        """Note that kproxy does not listen at this address any more."""
        hosts = self.by_port.get(address[1], set())
        hosts.discard(address[0])
        if not hosts:
            self.by_port.pop(address[1], None)
        self.changed(address, False)

    def addresses(self) -> list[HostPort]:
        return [(host, port) for port, hosts in self.by_port.items() for host in hosts]

    def has(self, sockaddr: Any) -> bool:
        """Return True if a connection to this address, as the socket module has it, would come in at this kproxy."""
        if isinstance(sockaddr, str) or sockaddr[1] not in self.by_port:
            return False
        host, port = host_port(sockaddr)
        hosts = self.by_port[port]
        target = ipaddress.ip_address(host)
        if target.is_unspecified:  # the kernel takes it for loopback
            target = ipaddress.ip_address("127.0.0.1" if target.version == 4 else "::1")
        if str(target) in hosts or host in hosts:
            return True
        return ("::" in hosts or (target.version == 4 and "0.0.0.0" in hosts)) and is_own(str(target))
