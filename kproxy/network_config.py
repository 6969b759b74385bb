"""Settings of how connections come in and go out: PROXY headers, names that share a port, what the kernel diverts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kproxy.rules.address import check_host
from kproxy.rules.explain import Model, Wrong
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


MARK = 27504
"""Of kproxy's own connections where nothing else is said; no other software is known to use it."""
Mark = Annotated[int, Field(ge=0, lt=2**32)]


class Transparent(Model):
    """What the kernel diverts to a listener goes on to where its client wanted to go."""

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
        """NAT on one side and none on the other would not fit together."""
        if raw.get("keep_source") is True and raw.get("by") != "tproxy":
            yield ("keep_source",), "keep_source needs by: tproxy"


def _as_settings(value: Any) -> Any:
    return {} if value is True else None if value is False else value


MaybeTransparent = Annotated[
    Transparent | None, BeforeValidator(_as_settings, json_schema_input_type=bool | Transparent | None)
]
"""`true` stands for all defaults."""
