"""Every limit by name, with its default and the reason for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from kproxy.base.named_file import PathGuard, read_named, reason
from kproxy.protocol.sasl.mechanisms import is_extension
from kproxy.protocol.sasl.scram import LARGEST, Users, read_users
from kproxy.rules.document.check import why_tls
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.select.match import Networks
from kproxy.rules.values.address import UNIX, Address, ServerAddress, TargetAddress, check_host
from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import ByteCount, Seconds, parse_size
from kproxy.rules.values.tls import ExistingFile, ListenerTls, Secret, UpstreamTls, files_of
from kproxy.session.held_memory import SMALL_AREA

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]
Jitter = Annotated[float, Field(ge=0, lt=1)]

SMALLEST_FRAME_LIMIT = 16 * 1024
"""Bytes that `max_frame_bytes` has at least: no cluster's Metadata response fits in less, so less is a mistake."""


ContentSize = Annotated[ByteCount, Field(ge=SMALLEST_FRAME_LIMIT, lt=2**31)]


class ContentSettings(Model):
    """Limits of rules about [record content](record-content.md#limits-of-a-frame)."""

    max_decompressed_bytes: ContentSize = Field(
        default=67_108_864,
        description="maximum decompressed bytes that a rule reads of one frame; batches beyond it are unreadable",
    )
    max_fetch_bytes: ContentSize = Field(
        default=8_388_608,
        description="maximum max_bytes of Fetch requests that a rule about record content applies to. A broker returns "
        "one whole batch even if it is larger",
    )


class Limits(Model):
    """Limits of a proxy's memory, time and connections. Well-behaved clients of an ordinary cluster reach none."""

    max_frame_bytes: Annotated[ByteCount, Field(ge=SMALLEST_FRAME_LIMIT, lt=2**31)] = Field(
        default=104_857_600,
        description="maximum size of a request, like socket.request.max.bytes of brokers; a longer one closes its "
        "connection before memory is allocated. Responses have no such limit",
    )
    buffer_threshold: ByteCount = Field(
        default=65_536,
        description="Fetch and ShareFetch responses up to this size are buffered completely before a rewrite. Larger "
        "ones stream and keep their length, unless names in them change. Other frames to rewrite are buffered "
        "completely",
    )
    max_buffered_bytes: ByteCount = Field(
        default=268_435_456,
        description="memory for buffered frames, per cluster, direction and worker process. A frame reserves its "
        "complete length; a frame of more than seven eighths closes its connection. The other eighth is for frames "
        "below 1 MiB. Client networks take turns. While others wait, frames without progress are evicted and their "
        "connections reset",
    )
    max_in_flight: Positive = Field(
        default=1000,
        description="unanswered requests per connection; at the limit, reading pauses. by default, Java clients "
        "send up to 5, librdkafka up to 1000000",
    )
    max_nodes: Positive = Field(
        default=1000,
        description="maximum nodes in one response and in the known topology of a cluster; a response with more "
        "nodes closes its connection",
    )
    session_partitions: Positive = Field(
        default=250_000,
        description="partitions in all fetch and share sessions per worker process, if rules match fetches. Further "
        "sessions are not opened, as at a full broker. A client network, and each of several clusters, may use three "
        "times as many as are free",
    )
    header_timeout: PositiveSeconds = Field(
        default=10.0,
        description="time from the first byte of a client's frame to its complete header",
    )
    buffer_timeout: PositiveSeconds = Field(
        default=60.0,
        description="time for a buffered frame to arrive after its memory is reserved. While others wait for memory, a "
        "frame must progress by a sixtieth of its length per second, measured over 0.4 s (5 s for a broker)",
    )
    idle_timeout: Seconds = Field(
        default=660.0,
        description="time without traffic until a connection is closed; 0: never. It stays open while kproxy does "
        "not read the client, or a response is due and no request is incomplete. By default, brokers close after "
        "600 s, Java clients after 540 s",
    )
    connect_timeout: PositiveSeconds = Field(
        default=10.0,
        description="time to reach a broker: DNS, TCP and TLS, over all its addresses; by default, Java clients wait "
        "10 s for TCP (socket.connection.setup.timeout.ms)",
    )
    handshake_timeout: PositiveSeconds = Field(
        default=10.0,
        description="time for a TLS handshake on either side, for a PROXY header, for a client to authenticate to "
        "kproxy, and for kproxy's login at a broker",
    )
    write_timeout: PositiveSeconds = Field(
        default=300.0,
        description="time without progress of pending output until a connection is reset; the default equals "
        "max.poll.interval.ms: a consumer then loses its partitions",
    )
    drain_timeout: Seconds = Field(
        default=30.0,
        description="time for requests in flight after SIGTERM, at most 5 s if another proxy can repeat them; "
        "Kubernetes kills after 30 s by default",
    )
    shutdown_delay: Seconds = Field(
        default=0.0,
        description="time from SIGTERM to the drain: /readyz returns 503, and clients are still accepted; set it to "
        "some seconds more than the load balancer's probes need",
    )
    max_connection_age: Seconds = Field(
        default=0.0,
        description="maximum age of a connection, which is then closed between exchanges, so its client reconnects; "
        "0: unlimited. At most fifty connections per second start to close",
    )
    max_connection_age_jitter: Jitter = Field(
        default=0.1,
        description="maximum random difference from max_connection_age, as a fraction, so connections that opened "
        "together do not close together",
    )
    max_connections: Positive = Field(
        default=20_000,
        description="maximum client connections; each takes two file descriptors. A process with a lower "
        "limit of open files allows fewer and reserves some for its other ports. At the limit, a network with at least "
        "two connections fewer takes a place of the network with the most",
    )
    max_connections_per_address: Count = Field(
        default=0,
        description="client connections from one IP address; 0: no limit, because many clients may share one address",
    )
    unknown_apis: Literal["hide", "pass"] = Field(
        default="hide",
        description="unknown API keys: hide them in ApiVersions and reject their requests, or pass them. An unknown "
        "response may contain broker addresses. Without advertising, unknown APIs pass unless a rule rejects them",
    )
    rule_labels: Count = Field(
        default=1000,
        description="maximum rules with own series in the metrics; further rules are summed by kind as rule other, "
        "because Prometheus keeps all labels",
    )
    content: ContentSettings = Field(
        default_factory=ContentSettings, description="limits of rules about record content"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that every frame of `buffer_threshold` bytes fits into the memory for held frames."""
        try:
            names = ("buffer_threshold", "max_buffered_bytes")
            hold, held = (parse_size(raw.get(name, cls.model_fields[name].default)) for name in names)
        except ValueError:
            return
        if isinstance(hold, int) and isinstance(held, int) and hold > (longest := held - held // SMALL_AREA):
            limit = f"at most seven eighths of max_buffered_bytes ({longest})"
            yield (names["buffer_threshold" not in raw],), f"expected buffer_threshold of {limit}, got {hold}"


Scram = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTH = "OAUTHBEARER"


class UpstreamSasl(Model):
    """kproxy's own login at the brokers, in place of the clients'."""

    mechanism: Mechanism = Field(description="SASL mechanism that the brokers accept")
    username: str | None = Field(default=None, min_length=1, description="user name of kproxy at the brokers")
    password: Secret | None = Field(default=None, description="password, as ${VARIABLE} or file:NAME")
    token_file: ExistingFile | None = Field(
        default=None,
        description="for OAUTHBEARER: file with a token, read at each login; surrounding blanks are removed",
    )
    extensions: dict[str, str] = Field(
        default_factory=dict, description="for OAUTHBEARER: extensions (KIP-342), such as logicalCluster"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that each setting that the mechanism needs is given, and no other."""
        mechanism = raw.get("mechanism")
        if not isinstance(mechanism, str):
            return
        bearer = mechanism == OAUTH
        wanted, foreign = (("token_file",), ("username", "password")) if bearer else (("username", "password"), ())
        for name in wanted:
            if raw.get(name) is None:
                yield ("mechanism",), f'{mechanism} needs "{name}"'
        for name in (*foreign, *(() if bearer else ("token_file", "extensions"))):
            if raw.get(name):
                yield (name,), f'"{name}" is never used with {mechanism}'
        for name, value in (raw.get("extensions") or {}).items() if isinstance(raw.get("extensions"), dict) else ():
            if bearer and not is_extension(str(name), str(value)):
                yield ("extensions", name), f'"{name}" is no extension: its name has letters only and is not auth'


def users_in(path: Path, guard: PathGuard | None = None) -> Users:
    """Return the users of a file. Raises ValueError with the numbers of its wrong lines, and without their text."""
    try:
        return read_users(read_named(path, LARGEST, guard).decode())
    except OSError as error:
        raise ValueError(f'the file of users "{path}" cannot be read: {reason(error)}') from None
    except UnicodeDecodeError:
        raise ValueError(f'the file of users "{path}" is not UTF-8 text') from None
    except ValueError as error:
        raise ValueError(f'the file of users "{path}": {error}') from None


def _with_users(path: str, info: ValidationInfo) -> str:
    users_in(Path(path), files_of(info).guard)
    return path


class ListenerSasl(Model):
    """Login of clients to kproxy, of which the brokers see nothing."""

    users: Annotated[ExistingFile, AfterValidator(_with_users)] = Field(
        description="file of users, written by `kproxy user`; reloaded at the next login after a change"
    )
    mechanisms: list[Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]] = Field(
        default=["SCRAM-SHA-256", "SCRAM-SHA-512"],
        min_length=1,
        description="mechanisms of clients; PLAIN discloses the password to kproxy and, without TLS, to the network",
    )
    max_session: Seconds = Field(
        default=0.0,
        description="time until a client must reauthenticate on its connection (KIP-368); 0: never",
    )
    failure_delay: Annotated[Seconds, Field(le=30)] = Field(
        default=0.1,
        description="delay of the response to a failed login, against guessing (default as in Kafka)",
    )


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
        default="redirect", description="method of the firewall: redirect (NAT) or tproxy"
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
        raise ValueError(f'expected a name of at most 100 characters (a-z A-Z 0-9 . _ -), got "{text}"')
    return text


Name = Annotated[str, AfterValidator(_name)]
"""Name of a cluster or listener, of 1 to 100 characters: selectors and metrics use it unchanged."""


class ClusterConfig(Model):
    """Kafka cluster behind kproxy: its brokers, and how kproxy connects to them."""

    bootstrap: list[ServerAddress] = Field(
        min_length=1,
        description="bootstrap brokers, host:port or unix:/path of a local socket; the next is tried after a failure "
        "or 0.25 s, and the first to connect is used",
    )
    tls: UpstreamTls | None = Field(
        default=None, description="TLS towards the brokers; {}: default settings (default: none)"
    )
    sasl: UpstreamSasl | None = Field(
        default=None, description="kproxy's login at the brokers (default: clients log in through kproxy)"
    )
    dial: dict[TargetAddress, ServerAddress] = Field(
        default_factory=dict, description="addresses to connect to instead of advertised ones, old: new"
    )
    mark: Mark | None = Field(
        default=None,
        description="mark of connections to these brokers, for the firewall (SO_MARK); 0: none (default: "
        f"{MARK} for clusters with a transparent listener, otherwise none)",
    )
    proxy_protocol: ProxyVersion | None = Field(
        default=None, description="version of the PROXY header with the client's address that these brokers receive"
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

    name: Name = Field(description="unique name; rules select by it")
    bind: Address = Field(description="host:port to listen on; port 0: any free port")
    cluster: Name = Field(description="name of the cluster that clients of this port reach")
    advertise: Annotated[
        Annotated[Advertise, Tag("on")] | Annotated[Literal[False], Tag("off")], Discriminator(_advertise_tag)
    ] = Field(
        default_factory=Advertise,
        description="advertised addresses of brokers; false: the brokers' own addresses, so clients bypass kproxy",
    )
    tls: ListenerTls | None = Field(default=None, description="TLS towards clients (default: none)")
    sasl: ListenerSasl | None = Field(
        default=None, description="clients log in to kproxy (default: to the brokers, if required)"
    )
    proxy_protocol: ProxyProtocol | None = Field(
        default=None, description="load balancers that send the client's address in a PROXY header (default: none)"
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
        default=None, description="maximum age of its connections (default: max_connection_age of the limits)"
    )
    max_connection_age_jitter: Jitter | None = Field(
        default=None, description="jitter of these ages (default: max_connection_age_jitter of the limits)"
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
