"""Settings of how connections come in and go out: PROXY headers, names that share a port, transparent listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kproxy.rules.document.address import check_host
from kproxy.rules.document.model import Model, Wrong
from kproxy.rules.select.match import Networks

ProxyVersion = Literal["v1", "v2"]
"""Version of the PROXY header that kproxy sends: v1 is text, v2 is binary."""


class ProxyProtocol(Model):
    """Load balancers that may say, in a PROXY header of version 1 or 2, whose connection they pass on."""

    from_: Networks = Field(
        alias="from",
        description="addresses or networks of load balancers, 10.0.0.0/8: each connection from there begins with a "
        "header. Those from elsewhere are clients themselves, and must not send one",
    )


def plain_name(name: str) -> str:
    """Return a host name in the form in which names are compared (RFC 6066 §3): lower case, no dot at the end."""
    return name.lower().rstrip(".")


def _host_pattern(text: str) -> str:
    """Check a host name, or a `*.` before one, which stands for each name with one more label. Raises ValueError."""
    host = check_host(text.removeprefix("*."))
    if ":" in host or host.replace(".", "").isdigit():
        raise ValueError(f'"{text}" is an IP address, and TLS clients send names only')
    return plain_name(text)


HostPattern = Annotated[str, AfterValidator(_host_pattern)]


def closeness(pattern: str, name: str) -> int:
    """Return how closely a pattern matches a plain name: 2 if they are equal, 1 by a wildcard, 0 if not at all."""
    if pattern == name:
        return 2
    return int(pattern.startswith("*.") and name.partition(".")[2] == pattern[2:])


MARK = 27504
"""Default firewall mark of kproxy's own connections to brokers; no other software is known to use this number."""
Mark = Annotated[int, Field(ge=0, lt=2**32)]


class Transparent(Model):
    """Transparent listener: connections that the kernel diverts to it go on to where their clients wanted to go."""

    by: Literal["redirect", "tproxy"] = Field(
        default="redirect", description="how the firewall diverts: NAT (REDIRECT), or without (TPROXY)"
    )
    keep_source: bool = Field(
        default=False,
        description="connect to brokers from the client's own address; by tproxy, and where the way back leads through "
        "this machine",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that the client's address is kept only without NAT, which would replace it on the other side."""
        if raw.get("keep_source") is True and raw.get("by") != "tproxy":
            yield ("keep_source",), "keep_source needs by: tproxy"


def _as_settings(value: Any) -> Any:
    return {} if value is True else None if value is False else value


MaybeTransparent = Annotated[
    Transparent | None, BeforeValidator(_as_settings, json_schema_input_type=bool | Transparent | None)
]
"""Settings of a transparent listener: `true` stands for all defaults, `false` for none."""
