"""advertise: the combinations that make sense, and the names that TLS clients ask for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.values.address import Address, PortRange
from kproxy.rules.values.model import validate
from kproxy.rules.values.source import Source, to_value


def make(**fields: Any) -> Advertise:
    """From plain values."""
    return Advertise.model_validate(fields)


def test_each_way_is_read() -> None:
    """Nothing at all; host and ports; fixed nodes; SNI."""
    assert make() == Advertise()
    assert make(host="h", ports="9193-9292") == Advertise(host="h", ports=PortRange(9193, 9292))
    assert make(nodes={1: "b1:9093"}).nodes == {1: Address("b1", 9093)}
    assert make(sni="b{node}.example.com:443").sni_address(3) == Address("b3.example.com", 443)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("{nodes: {1: 'a:1'}, host: h}", ['1:21: "host" cannot be used with "nodes", which gives whole addresses']),
        ("{sni: 'b{node}.c:1', ports: 1-2, nodes: {1: 'a:1'}}", ['1:2: "sni" cannot', '1:22: "ports" cannot']),
        ("{nodes: {1: 'a:1', 2: 'a:1'}}", ['1:23: nodes 1 and 2 have the same address "a:1"']),
        ("{nodes: {}}", ["1:9: expected at least 1 entry, got 0"]),
        ("{nodes: {-1: 'a:1'}}", ["1:10: expected at least 0, got -1"]),
        ("{nodes: {a: 'a:1'}}", ['1:10: expected a whole number, got text "a"']),
        ("{nodes: {1: 'a:0'}}", ['1:13: expected a port from 1 to 65535, got "a:0"']),
        ("{host: 'h:1'}", ['1:8: expected an IPv6 address or a host name without colons, got "h:1"']),
        ("{ports: 0-5}", ["1:9: expected a port from 1 to 65535, got 0"]),
        ("{sni: 'b.example.com:443'}", ['1:7: "b.example.com:443" has 0 times {node}']),
        ("{sni: 'b{node}-{node}.c:443'}", ['1:7: "b{node}-{node}.c:443" has 2 times {node}']),
        ("{sni: 'b{node}.example.com'}", ['1:7: "b{node}.example.com" has no port']),
        ("{sni: 'b.c:{node}'}", ['1:7: "b.c:{node}" has no port']),
        ("{sni: 'b{id}{node}.c:443'}", ['1:7: expected a host name or IP address, got "b{id}1.c"']),
        ("{sni: '10.0.0.{node}:443'}", ['1:7: "10.0.0.{node}:443" gives IP addresses']),
        ("{hosts: h}", ['1:2: unknown key "hosts", did you mean "host"? allowed: host, ports, nodes, sni']),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, mistakes: list[str]) -> None:
    """With the reason, at the field that is too much or wrong."""
    source = Source("f", text)

    assert validate(Advertise, to_value(source), source) is None
    for line, words in zip(source.lines(), mistakes, strict=True):
        assert line.startswith(f"f:{words}")


def test_shared_ports_and_sni_need_tls() -> None:
    """Only a host name can tell apart what comes to one port."""
    assert make(nodes={1: "a:1", 2: "b:1", 3: "c:2"}).shared_ports == [1]
    assert make(nodes={1: "a:1", 2: "b:1"}).needs_tls
    assert make(sni="b{node}.c:1").needs_tls
    assert not make(nodes={1: "a:1", 2: "a:2"}).needs_tls


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("b3.example.com", 3),
        ("B12.Example.COM.", 12),
        ("b0.example.com", 0),
        ("b03.example.com", None),
        ("b.example.com", None),
        ("bx.example.com", None),
        ("b3.example.com.evil.org", None),
        ("b3xexample.com", None),
        ("b99999999999.example.com", None),
        ("bootstrap.example.com", None),
    ],
)
def test_a_name_leads_to_its_node(name: str, node: int | None) -> None:
    """Exactly the names that the template gives, in any case; all else is bootstrap."""
    assert make(sni="b{node}.example.com:443").sni_node(name) == node


def test_fixed_nodes_are_found_by_their_hosts() -> None:
    advertise = make(nodes={1: "a.org:1", 2: "b.org:1", 3: "c.org:1", 4: "c.org:2"})

    assert advertise.sni_node("b.org") == 2
    assert advertise.sni_node("c.org") is None
    assert advertise.sni_node("d.org") is None


def test_it_cannot_be_changed() -> None:
    """Rules are shared by all connections."""
    with pytest.raises(ValidationError, match="frozen"):
        make().host = "h"
