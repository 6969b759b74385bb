"""Settings of how connections come in and go out: the PROXY protocol, and names that share a port."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kproxy.rules.address import check_host
from kproxy.rules.explain import Model
from kproxy.rules.match import Networks

ProxyVersion = Literal["v1", "v2"]
"""Of the header that kproxy sends: text, or binary."""


class ProxyProtocol(Model):
    """Who may say, in a PROXY header of version 1 or 2, whose connection it passes on."""

    from_: Networks = Field(
        alias="from",
        description="addresses or networks of load balancers, 10.0.0.0/8: each connection from there begins with a "
        "header. Those from elsewhere are clients themselves, and must not send one",
    )


def plain_name(name: str) -> str:
    """As names are compared: RFC 6066 §3, without regard to case, and without a dot at the end."""
    return name.lower().rstrip(".")


def _host_pattern(text: str) -> str:
    """A host name, or `*.` and one: any name that has one label before that."""
    host = check_host(text.removeprefix("*."))
    if ":" in host or host.replace(".", "").isdigit():
        raise ValueError(f'"{text}" is an IP address, and TLS clients send names only')
    return plain_name(text)


HostPattern = Annotated[str, AfterValidator(_host_pattern)]


def closeness(pattern: str, name: str) -> int:
    """How closely a pattern describes a name, which is plain: 0, not at all; itself more than any wildcard."""
    if pattern == name:
        return 2
    return int(pattern.startswith("*.") and name.partition(".")[2] == pattern[2:])
