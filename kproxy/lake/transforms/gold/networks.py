"""Networks of addresses, as an expression of Spark's: gold runs no Python on the workers.

An address is read as Python's `ipaddress` reads it, and what that refuses has no network. Every pattern has a bound on
how often it repeats, so that a text of any length is judged at once.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

IPV4_BITS, IPV6_BITS = 24, 64
"""Bits of an address that are its network's, on an octet's and a group's border.

Subnets of one zone are mostly larger than a /24 and those of IPv6 are a /64, while a /16 and a /48 are what a whole
virtual network has, in all its zones. A network that is too small can be added up; one that is too large says nothing.
"""

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"\A({_OCTET}\.{_OCTET}\.{_OCTET})\.{_OCTET}\z"
_TAIL = rf":({_OCTET})\.({_OCTET})\.({_OCTET})\.({_OCTET})\z"
_GROUP = "[0-9a-f]{1,4}"
_SOME = f"{_GROUP}(?::{_GROUP}){{0,6}}"
_WHOLE = rf"\A{_GROUP}(?::{_GROUP}){{7}}\z"
_SHORT = rf"\A(?:{_SOME})?::(?:{_SOME})?\z"
_ZONE = r"%[^%]+\z"
_LONGEST = 100
"""Characters of a text that is looked at: an IPv6 address has 45 at most, the rest is for the name of a zone."""
GROUPS = 8


def network_of(address: Column) -> Column:
    """Return the network of an address as text, `10.1.2.0/24` or `2001:db8::/64`; null if it is no address.

    IPv4 within IPv6 (`::ffff:10.1.2.3`) is IPv4. The zone of an IPv6 address (`%eth0`) counts for nothing.
    """
    short = F.when(F.length(address) <= _LONGEST, address)
    front = F.regexp_extract(short, _IPV4, 1)
    ipv4 = F.when(front != "", F.concat(front, F.lit(".0/24")))
    return F.when(short.contains(":"), _ipv6_network(short)).otherwise(ipv4)


def _ipv6_network(address: Column) -> Column:
    text = F.lower(F.regexp_replace(address, _ZONE, ""))
    return _let(_without_dots(text), lambda plain: _let(_groups(plain), _network_of_groups))


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return `use` of a value that is evaluated once, however often it is used."""
    return F.get(F.transform(F.array(value), use), 0)


def _without_dots(text: Column) -> Column:
    """Return the text with an IPv4 address at its end as the two groups that it stands for."""

    def octet(number: int) -> Column:
        return F.regexp_extract(text, _TAIL, number).try_cast("int")

    def pair(number: int) -> Column:
        return F.lower(F.hex(octet(number) * 256 + octet(number + 1)))

    front = F.regexp_replace(text, _TAIL, ":")
    return F.when(text.contains("."), F.concat(front, pair(1), F.lit(":"), pair(3))).otherwise(text)


def _groups(text: Column) -> Column:
    """Return the eight groups of an IPv6 address without leading zeros; null if it is none."""
    halves = F.split(text, "::")
    left, right = _parts(F.get(halves, 0)), _parts(F.get(halves, 1))
    missing = F.lit(GROUPS) - F.size(left) - F.size(right)
    filled = F.concat(left, F.array_repeat(F.lit("0"), F.greatest(missing, F.lit(0))), right)
    written = F.when(text.rlike(_WHOLE), F.split(text, ":")).when(text.rlike(_SHORT) & (missing > 0), filled)
    return F.transform(written, lambda group: F.regexp_replace(group, r"\A0{1,3}(?=.)", ""))


def _parts(half: Column) -> Column:
    return F.when(half == "", F.array().cast("array<string>")).otherwise(F.split(half, ":"))


def _network_of_groups(groups: Column) -> Column:
    front = F.regexp_replace(F.array_join(F.slice(groups, 1, IPV6_BITS // 16), ":"), r"(?::0){1,3}\z", "")
    ipv6 = F.concat(F.when(front == "0", "").otherwise(front), F.lit("::/64"))
    high, low = _number(F.get(groups, 6)), _number(F.get(groups, 7))
    octets = (F.shiftright(high, 8), high % 256, F.shiftright(low, 8))
    ipv4 = F.concat(F.concat_ws(".", *[octet.cast("string") for octet in octets]), F.lit(".0/24"))
    mapped = F.array_join(F.slice(groups, 1, 6), ":") == "0:0:0:0:0:ffff"
    return F.when(mapped, ipv4).otherwise(ipv6)


def _number(group: Column) -> Column:
    return F.conv(group, 16, 10).try_cast("int")
