"""advertise: which address a client is given for each broker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kproxy.rules.kinds.base.rule import Direction, Rule, VisiblePart
from kproxy.rules.values.address import Address, PortRange, TargetAddress, check_host, parse_port
from kproxy.rules.values.model import KEY, Model, Wrong

LONGEST_ID = 11
"""Digits; ids are 32 bits wide."""
NODE = "{node}"
"""Stands for a broker's id in an SNI template."""


def _template(text: str) -> str:
    """Return an SNI template that has `{node}` once in its host, and a port. Raises ValueError for other texts."""
    if text.count(NODE) != 1:
        raise ValueError(f'"{text}" has {text.count(NODE)} times {NODE}, one is needed: b{NODE}.example.com:443')
    host, colon, port = text.rpartition(":")
    if not colon or NODE not in host:
        raise ValueError(f'"{text}" has no port, write b{NODE}.example.com:443')
    check_host(host.replace(NODE, "1"))
    if host.replace(NODE, "1").replace(".", "").isdigit():
        raise ValueError(f'"{text}" gives IP addresses, and TLS clients send names only')
    parse_port(port, 1)
    return text


def _number(key: Any) -> Any:
    """Return a broker id as a number, since JSON has only text for keys."""
    return int(key) if isinstance(key, str) and key.isdecimal() and len(key) < LONGEST_ID else key


class Advertise(Model):
    """Addresses under which brokers appear to clients. With nothing set, each has a port of kproxy's own on the address
    that the client connected to."""

    host: Annotated[str, AfterValidator(check_host)] | None = Field(
        default=None,
        description="host name or IP for clients (default: the local address of their connection)",
    )
    ports: PortRange | None = Field(
        default=None, description="ports for brokers, such as 9193-9292 (default: 1000 ports after the listener's)"
    )
    nodes: dict[Annotated[int, BeforeValidator(_number), Field(ge=0)], TargetAddress] | None = Field(
        default=None, min_length=1, description="fixed addresses by broker id; other brokers stay hidden"
    )
    sni: Annotated[str, AfterValidator(_template)] | None = Field(
        default=None, description="one TLS port for all brokers, selected by host name (SNI): b{node}.example.com:443"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        given = [name for name in ("nodes", "sni", "host", "ports") if raw.get(name) is not None]
        if given and given[0] in ("nodes", "sni"):
            for other in given[1:]:
                yield (other, KEY), f'"{other}" cannot be used with "{given[0]}", which gives whole addresses'
        nodes = raw.get("nodes")
        if isinstance(nodes, dict):
            first: dict[str, Any] = {}
            for node, address in nodes.items():
                taken = first.setdefault(str(address), node)
                if taken != node:
                    yield ("nodes", node), f'nodes {taken} and {node} have the same address "{address}"'

    @property
    def shared_ports(self) -> list[int]:
        """Return the ports that several fixed nodes share. They need TLS."""
        counts = Counter(address.port for address in (self.nodes or {}).values())
        return [port for port, count in counts.items() if count > 1]

    @property
    def needs_tls(self) -> bool:
        """Return True if nodes are identified by the host name in the TLS handshake."""
        return self.sni is not None or bool(self.shared_ports)

    def sni_address(self, node: int) -> Address | None:
        """Return the advertised address of a node by the `sni` template; None without one."""
        return None if self.sni is None else Address.parse(self.sni.replace(NODE, str(node)))

    def whole_address(self, node: int) -> Address | None:
        """Return the address that `sni` or `nodes` gives a node, None for one that clients do not see."""
        if self.sni is not None:
            return self.sni_address(node) if node >= 0 else None
        return (self.nodes or {}).get(node)

    @property
    def by_range(self) -> bool:
        """Return True if each node has a port of a range, and no whole address."""
        return self.nodes is None and self.sni is None

    def sni_node(self, name: str) -> int | None:
        """Return the node that a TLS client means by a host name, by template or fixed nodes; None: no node's name."""
        name = name.lower().rstrip(".")
        if self.sni is not None:
            before, after = self.sni.rpartition(":")[0].lower().rstrip(".").split(NODE)
            node_in_name = re.fullmatch(f"{re.escape(before)}(0|[1-9][0-9]{{0,9}}){re.escape(after)}", name, re.ASCII)
            return int(node_in_name[1]) if node_in_name else None
        hosts = [node for node, address in (self.nodes or {}).items() if address.host.lower().rstrip(".") == name]
        return hosts[0] if len(hosts) == 1 else None


class AdvertiseRule(Advertise, Rule):
    """Gives clients addresses of kproxy instead of the brokers' addresses.

    Overrides the listener's `advertise:` for matching connections. If several such rules match a connection, the first
    applies. `nodes` that share a port, and `sni`, need a listener with TLS.
    """

    group = "addresses and versions"
    directions: ClassVar[tuple[Direction, ...]] = ("response",)
    needs: ClassVar[tuple[VisiblePart, ...]] = ("broker addresses",)
    example: ClassVar[str] = """\
- name: clients outside reach the brokers through us
  kind: advertise
  host: kafka.example.com
  ports: 9193-9292
"""

    kind: Literal["advertise"] = Field(description="kind of the rule")
