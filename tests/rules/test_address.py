"""Addresses and ranges of ports, as a user writes them."""

from __future__ import annotations

import pytest

from kproxy.rules.values.address import Address, PortRange, check_host, parse_target


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("b1:9092", "b1", 9092),
        ("b1.example.com:1", "b1.example.com", 1),
        ("10.0.0.5:65535", "10.0.0.5", 65535),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("my_host.:9", "my_host.", 9),
    ],
)
def test_an_address_is_read_and_written_back(text: str, host: str, port: int) -> None:
    """Host without brackets, port as a number; str() gives the same text again."""
    address = Address.parse(text)

    assert address == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("b1", '"b1" has no port, write host:port'),
        ("PLAINTEXT://b1:9092", "begins with a protocol"),
        ("::1:9092", "expected an IPv6 address in brackets"),
        ("[10.0.0.1]:9092", 'expected an IPv6 address or a host name without colons, got "10.0.0.1"'),
        ("b1:", 'expected a port from 0 to 65535, got ""'),
        ("b1:65536", "expected a port from 0 to 65535, got 65536"),
        ("b1:-1", 'expected a port from 0 to 65535, got "-1"'),
        ("b1:９", "expected a port from 0 to 65535"),
        (":9092", "the host is missing"),
        ("b 1:9092", 'expected a host name or IP address, got "b 1"'),
        ("-b:1", 'expected a host name or IP address, got "-b"'),
        ("256.0.0.1:1", 'expected an IP address, got "256.0.0.1"'),
        ("a" * 254 + ":1", "expected a host name"),
        (9092, "expected an address such as b1:9092, got 9092"),
    ],
)
def test_a_bad_address_says_what_is_wrong(text: object, words: str) -> None:
    """The message holds what was written and what should have been."""
    with pytest.raises(ValueError) as caught:
        Address.parse(text)

    assert words in str(caught.value)


def test_nobody_connects_to_port_0() -> None:
    with pytest.raises(ValueError, match=r'expected a port from 1 to 65535, got "b1:0"'):
        parse_target("b1:0")


@pytest.mark.parametrize(("text", "ports"), [("9193-9292", (9193, 9292)), ("9193", (9193, 9193)), (9193, (9193, 9193))])
def test_a_range_of_ports_is_read(text: object, ports: tuple[int, int]) -> None:
    assert PortRange.parse(text) == ports


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9292-9193", "ends at 9193, before it begins at 9292"),
        ("0-10", "expected a port from 1 to 65535, got 0"),
        ("1-2-3", 'from 1 to 65535, got "2-3"'),
        ([1], "expected a range of ports such as 9193-9292"),
        (True, "expected a range of ports"),
    ],
)
def test_a_bad_range_says_what_is_wrong(text: object, words: str) -> None:
    """Order, limits and form are checked."""
    with pytest.raises(ValueError) as caught:
        PortRange.parse(text)

    assert words in str(caught.value)


def test_a_host_may_be_ipv6_with_or_without_brackets() -> None:
    """Where no port follows, both are clear."""
    assert check_host("[::1]") == check_host("::1") == "::1"
    with pytest.raises(ValueError, match="a host name without colons"):
        check_host("b1:9092")
