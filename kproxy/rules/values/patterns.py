"""Tests of patterns and networks, which selectors and the filter language share."""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

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
