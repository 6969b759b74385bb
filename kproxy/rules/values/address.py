"""Addresses and port ranges as a user writes them: `b1:9092`, `[::1]:9092`, `9193-9292`. Tests of networks and regular
expressions."""

from __future__ import annotations

import ipaddress
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

LAST_PORT = 65535
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?")
UNIX = "unix:"
MAX_PATH = 107
"""Bytes of a Unix socket's path (unix(7): sun_path has 108, and ends with a zero)."""
MAX_HOST = 253
"""Characters in a DNS name (RFC 1035 §3.1, without length bytes)."""
NETWORK_BITS = 64  # of an IPv6 address: a host usually has the whole /64


class Address(NamedTuple):
    """Host (without brackets) and port; `str()` gives `host:port`, with brackets around IPv6. The "host" of a Unix
    socket is its absolute path."""

    host: str
    port: int

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return f"{UNIX}{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: object) -> Address:
        """Parse `host:port` or `[IPv6]:port`; port 0 is allowed. Raises ValueError."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise ValueError(f"expected an address such as b1:9092, got {text}")
        if "://" in text:
            raise ValueError(f'"{text}" begins with a protocol, write only host:port')
        host, colon, port = text.rpartition(":")
        if not colon:
            raise ValueError(f'"{text}" has no port, write host:port')
        if host.startswith("[") and host.endswith("]"):
            return cls(_ipv6(host[1:-1]), parse_port(port, 0))
        if ":" in host:
            raise ValueError(f'expected an IPv6 address in brackets such as [::1]:9092, got "{text}"')
        return cls(check_host(host), parse_port(port, 0))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            json_schema_input_schema=core_schema.str_schema(
                pattern=r"^(\[[0-9a-fA-F:.%a-z]+\]|[^:\[\]\s]+):[0-9]{1,5}$"
            ),
            serialization=core_schema.to_string_ser_schema(),
        )


def _reachable(address: Address) -> Address:
    if address.port == 0 and not address.host.startswith("/"):
        raise ValueError(f'expected a port from 1 to {LAST_PORT}, got "{address}"')
    return address


def parse_target(text: str) -> Address:
    """Return an address to connect to. Raises ValueError."""
    return _reachable(Address.parse(text))


def parse_server(text: str) -> Address:
    """Return a target, or a Unix socket `unix:/path`. Raises ValueError."""
    return _reachable(Address.parse(_unix(text)))


def _unix(text: Any) -> Any:
    if not isinstance(text, str) or not text.startswith(UNIX):
        return text
    path = text.removeprefix(UNIX)
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f'expected an absolute path such as unix:/run/kafka.sock, got "{text}"')
    if len(os.fsencode(path)) > MAX_PATH:
        raise ValueError(f'"{text}" has {len(os.fsencode(path))} bytes of path, expected at most {MAX_PATH}')
    return Address(path, 0)


TargetAddress = Annotated[Address, AfterValidator(_reachable)]
"""Address to connect to. A plain Address may have port 0, and the kernel chooses one."""
ServerAddress = Annotated[Address, BeforeValidator(_unix, json_schema_input_type=str), AfterValidator(_reachable)]
"""An address that kproxy connects to: a target, or a Unix socket."""


class PortRange(NamedTuple):
    """Range of ports from first to last, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: object) -> PortRange:
        """Parse `9193-9292`, or one port. Raises ValueError."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str | int) or isinstance(text, bool):
            raise ValueError(f"expected a range of ports such as 9193-9292, got {text}")
        first, dash, last = str(text).partition("-")
        ports = cls(parse_port(first, 1), parse_port(last if dash else first, 1))
        if ports.first > ports.last:
            raise ValueError(f"the range of ports ends at {ports.last}, before it begins at {ports.first}")
        return ports

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            json_schema_input_schema=core_schema.union_schema(
                [core_schema.str_schema(pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$"), core_schema.int_schema(ge=1)]
            ),
            serialization=core_schema.to_string_ser_schema(),
        )


def parse_port(text: str, lowest: int) -> int:
    """Return a port number from `lowest` to 65535; raises ValueError."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(LAST_PORT))):
        raise ValueError(f'expected a port from {lowest} to {LAST_PORT}, got "{text}"')
    if not lowest <= int(text) <= LAST_PORT:
        raise ValueError(f"expected a port from {lowest} to {LAST_PORT}, got {text}")
    return int(text)


def check_host(host: str) -> str:
    """Return a host name or an IP address, IPv6 without its brackets. Raises ValueError."""
    if ":" in host:
        return _ipv6(host.removeprefix("[").removesuffix("]"))
    if not host:
        raise ValueError("the host is missing; to listen on all addresses write 0.0.0.0 or [::]")
    if len(host) > MAX_HOST or not _HOST.fullmatch(host):
        raise ValueError(f'expected a host name or IP address, got "{host}"')
    if host.replace(".", "").isdigit():
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(f'expected an IP address, got "{host}"') from None
    return host


def _ipv6(text: str) -> str:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f'expected an IPv6 address or a host name without colons, got "{text}"') from None
    return text


@lru_cache(1024)
def network_of(host: str) -> str:
    """Return the client network that limits count an address under: the /64 of an IPv6 address, any other host as it
    is."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    first = int(address) >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS)
    return str(ipaddress.IPv6Network((first, NETWORK_BITS)))


Test = Callable[[str], bool]

MAPPED = 96
"""Bits before the IPv4 address in an IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2)."""
MAX_EXPRESSION_MEMORY = 1 << 20
"""Bytes that RE2 may take for one compiled expression; a larger one is refused when it loads."""


def compiled(pattern: str) -> Any:
    """Return the expression as RE2 has it, within bounds of memory. Raises ValueError for a bad one."""
    import re2  # 10 ms, and most rule sets have no pattern

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_EXPRESSION_MEMORY
    options.dot_nl = True
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not RE2"
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f'the regular expression "{pattern}" cannot be used: {reason}') from None


def address_test(networks: list[str]) -> Test:
    """Return a test for an IP in any of these networks; IPv4 in IPv6 (`::ffff:10.0.0.1`) counts as IPv4, in both."""
    parsed = [_plain_network(network) for network in networks]
    spans = {4: _spans(one for one in parsed if one.version == 4), 6: _spans(one for one in parsed if one.version == 6)}

    def test(text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        firsts, lasts = spans[address.version]
        number = int(address)
        at = bisect_right(firsts, number) - 1
        return at >= 0 and number <= lasts[at]

    return test


def _plain_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return the network that the text means; one of IPv4 in IPv6 as plain IPv4."""
    network = ipaddress.ip_network(text, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= MAPPED:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - MAPPED))
    return network


def _spans(networks: Iterable[Any]) -> tuple[list[int], list[int]]:
    """Return first and last addresses of networks of one version, as numbers in order, without overlaps."""
    merged = list(ipaddress.collapse_addresses(networks))
    return [int(one.network_address) for one in merged], [int(one.broadcast_address) for one in merged]
