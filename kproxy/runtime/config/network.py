"""Settings of clusters and listeners: brokers, ports, PROXY protocol, host names on a shared port, transparent mode."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from kproxy.rules.document.check import why_tls
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.select.match import Networks
from kproxy.rules.values.address import UNIX, Address, ServerAddress, TargetAddress, check_host
from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import Seconds
from kproxy.rules.values.tls import ListenerTls, UpstreamTls

from .limits import Jitter
from .sasl import ListenerSasl, UpstreamSasl

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


_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'"{text}" is no name here: a-z A-Z 0-9 . _ -, at most 100 characters')
    return text


Name = Annotated[str, AfterValidator(_name)]
"""Name of a cluster or listener, of 1 to 100 characters: selectors and metrics use it unchanged."""


class ClusterConfig(Model):
    """Kafka cluster behind kproxy: its brokers, and how kproxy connects to them."""

    bootstrap: list[ServerAddress] = Field(
        min_length=1,
        description="brokers to begin with, host:port, or unix:/path for a socket of this machine; tried in parallel",
    )
    tls: UpstreamTls | None = Field(
        default=None, description="TLS towards the brokers; {} for the defaults, left out for none"
    )
    sasl: UpstreamSasl | None = Field(
        default=None, description="kproxy logs in to the brokers itself; left out: clients do, and kproxy lets it pass"
    )
    dial: dict[TargetAddress, ServerAddress] = Field(
        default_factory=dict, description="where to go instead of an address that the brokers advertise, old: new"
    )
    mark: Mark | None = Field(
        default=None,
        description="mark of connections to these brokers, for the firewall (SO_MARK); 0: none. By default "
        f"{MARK} where a listener of this cluster is transparent, else none",
    )
    proxy_protocol: ProxyVersion | None = Field(
        default=None, description="version of the PROXY header that tells these brokers whose connection it is"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that certificates have a name to be checked against: a Unix socket has no host name."""
        servers, dial, tls = raw.get("bootstrap"), raw.get("dial"), raw.get("tls")
        reached = [*(servers if isinstance(servers, list) else ()), *(dial.values() if isinstance(dial, dict) else ())]
        local = [one for one in reached if isinstance(one, str) and one.startswith(UNIX)]
        if local and isinstance(tls, dict) and tls.get("server_name") is None:
            yield ("tls",), f"{local[0]} has no host name to check a certificate against, server_name is needed"


def _advertise_tag(value: Any) -> str:
    return "off" if value is False else "on"


class ListenerConfig(Model):
    """Listener: a port for clients, and the cluster that they reach there."""

    name: Name = Field(description="unique; rules select by it")
    bind: Address = Field(description="host:port to listen on; port 0 takes any free one")
    cluster: Name = Field(description="name of the cluster that clients of this port reach")
    advertise: Annotated[
        Annotated[Advertise, Tag("on")] | Annotated[Literal[False], Tag("off")], Discriminator(_advertise_tag)
    ] = Field(
        default_factory=Advertise,
        description="how brokers appear to clients; false: they see the brokers' own addresses, and go past kproxy",
    )
    tls: ListenerTls | None = Field(default=None, description="TLS towards clients; left out for none")
    sasl: ListenerSasl | None = Field(
        default=None, description="clients log in to kproxy; left out: to the brokers, if they want it"
    )
    proxy_protocol: ProxyProtocol | None = Field(
        default=None, description="load balancers that say in a PROXY header who the client is; left out for none"
    )
    hosts: list[HostPattern] = Field(
        default_factory=list,
        description="names that TLS clients ask for, kafka.example.com or *.example.com; with them the listener serves "
        "these and the names of its brokers only, and may share its port with others that have hosts",
    )
    transparent: MaybeTransparent = Field(
        default=None,
        description="take what the kernel diverts, and go on to where it was to go; true for the defaults. Brokers "
        "keep their own addresses, so advertise is false",
    )
    max_connection_age: Seconds | None = Field(
        default=None, description="age at which its connections are closed in order; by default that of the limits"
    )
    max_connection_age_jitter: Jitter | None = Field(
        default=None, description="by how much these ages differ; by default that of the limits"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_advertising(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and raw.get("transparent") not in (None, False):
            return {"advertise": False, **raw}
        return raw

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that nodes and listeners that only a host name tells apart have TLS, which carries that name."""
        if raw.get("hosts") and raw.get("tls") is None:
            yield ("hosts",), "hosts are asked for in TLS handshakes, and this listener has no tls"
        if raw.get("transparent") not in (None, False):
            for other in ("advertise", "hosts", "proxy_protocol"):
                if raw.get(other) not in (None, False, []):
                    yield (other,), f"{other} has no meaning where connections go to where their clients want"
        if isinstance(raw.get("advertise"), dict) and raw.get("tls") is None:
            try:
                advertise = Advertise.model_validate(raw["advertise"])
            except ValidationError:
                return
            if advertise.needs_tls:
                field = "sni" if advertise.sni is not None else "nodes"
                yield ("advertise", field), f"{why_tls(advertise)}, and this listener has none"


def is_reached_alike(one: ClusterConfig, other: ClusterConfig) -> bool:
    """Return True if two configs lead to the same cluster. A server name can select the cluster behind a TLS router,
    and the user can select the one behind shared servers."""
    return (
        one.bootstrap == other.bootstrap
        and one.dial == other.dial
        and server_name(one) == server_name(other)
        and _user(one) == _user(other)
    )


def server_name(cluster: ClusterConfig) -> str | None:
    return None if cluster.tls is None else cluster.tls.server_name


def _user(cluster: ClusterConfig) -> object:
    """Return the parts of a login that can select a cluster. A changed password does not."""
    return None if cluster.sasl is None else (cluster.sasl.username, cluster.sasl.extensions)
