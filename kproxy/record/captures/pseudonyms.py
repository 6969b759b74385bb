"""Pseudonyms for clients, users and addresses: the same one always for the same, in the order in which they come."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

NETWORKS = {4: IPv4Address("10.0.0.0"), 6: IPv6Address("fd00::")}
"""Addresses are numbered from here on: private networks."""
ANYBODY = ("", "*", "ANONYMOUS")
"""Names that mean nobody in particular."""


class Pseudonyms:
    """Pseudonyms of one capture. The names of topics, groups and transactions stay."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], str] = {}
        self.counts: dict[str, int] = {}

    def of(self, kind: str, text: str) -> str:
        """Return the pseudonym for the value of a field of this kind (see `NAMED`)."""
        return NAMED[kind](self, text)

    def client(self, text: str) -> str:
        return self._numbered("client", text)

    def member(self, text: str) -> str:
        """Return the pseudonym of a member id, which begins with a client id."""
        return self._numbered("member", text)

    def principal(self, text: str) -> str:
        """Return the pseudonym of `User:alice`, `alice` or a certificate's subject: the type before the colon stays."""
        kind, colon, name = text.partition(":")
        if not colon:
            return self._numbered("user", text)
        return f"{kind}:{self._numbered('user', name)}"

    def entity(self, text: str) -> str:
        """Return the pseudonym of a quota's entity: a client id, a user or an address."""
        for kind in ("client", "user"):
            if (kind, text) in self.known:
                return self.known[kind, text]
        return self.host(text) if _address(text) else self._numbered("entity", text)

    def host(self, text: str) -> str:
        """Return the pseudonym of a host's name or an address, perhaps with a slash in front, as brokers show it."""
        address = text.removeprefix("/")
        if _address(address) is not None:
            return f"{text[: len(text) - len(address)]}{self.address(address)}"
        return self._numbered("host", text)

    def place(self, text: str) -> str:
        """Return the pseudonym of `host:port`; without a port, such as a Unix socket, it is taken for a host."""
        host, colon, port = text.rpartition(":")
        return f"{self.host(host.strip('[]'))}{colon}{port}" if port.isdecimal() else self.host(text)

    def address(self, text: str) -> str:
        """Return the pseudonym of an IP address; other text is taken for a host's name."""
        parsed = _address(text)
        if parsed is None:
            return self._numbered("host", text)
        key = ("address", str(parsed))
        if key not in self.known:
            self.known[key] = str(NETWORKS[parsed.version] + self._next(f"address{parsed.version}"))
        return self.known[key]

    def _numbered(self, kind: str, text: str) -> str:
        if text in ANYBODY:
            return text
        key = (kind, text)
        if key not in self.known:
            self.known[key] = f"{kind}-{self._next(kind)}"
        return self.known[key]

    def _next(self, kind: str) -> int:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


NAMED: dict[str, Callable[[Pseudonyms, str], str]] = {
    "client_id": Pseudonyms.client,
    "member_id": Pseudonyms.member,
    "principal": Pseudonyms.principal,
    "quota_entity_name": Pseudonyms.entity,
    "client_address": Pseudonyms.host,
    "host": Pseudonyms.host,
    "acl_host": Pseudonyms.host,
    "app_host": Pseudonyms.host,
}
"""Kinds of fields, as the protocol's table has them, with names in them."""
