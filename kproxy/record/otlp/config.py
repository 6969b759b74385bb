"""The `otlp` section of the config: metrics, the audit's events and traces for an OpenTelemetry collector.

otlp:
  endpoint: http://collector:4318
  headers: {authorization: "${TOKEN}"}
  metrics: 30s
  logs: audit
  traces: {topics: ["orders*"]}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from kproxy.rules.select.match import Texts
from kproxy.rules.values.model import Model, Wrong
from kproxy.rules.values.quantities import Seconds
from kproxy.rules.values.tls import HeaderSecret, UpstreamTls

from .payload import Semconv

SIGNALS = ("metrics", "logs", "traces")
OWN_HEADERS = frozenset(
    ("connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding", "user-agent")
)
"""Headers that the request has anyway."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110 §5.6.2


class CollectorAddress(NamedTuple):
    """Base address of an HTTP server. `prefix`: the first part of each path, without a slash at its end."""

    tls: bool
    host: str
    port: int
    prefix: str


def parse_url(text: str, wanted: str, credentials: str) -> CollectorAddress:
    """Return the parts of `http://HOST:PORT/PREFIX`. `wanted`, `credentials`: for messages, the form of the URL and the
    settings that hold credentials. Raises ValueError with the problem."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f'expected {wanted}, got "{text}" ({error})') from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isascii() or not text.isprintable():
        raise ValueError(f'expected {wanted}, got "{text}"')
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"expected a URL without user and password (use {credentials})")
    if parts.query or parts.fragment or " " in text:
        raise ValueError(f'expected only a host, a port and a path, got "{text}"')
    if port == 0:
        raise ValueError(f'expected a port from 1 to 65535, got "{text}"')
    tls = parts.scheme == "https"
    return CollectorAddress(tls, parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/"))


def parse_endpoint(text: str) -> CollectorAddress:
    """Return the parts of a collector's `http://HOST:PORT/PREFIX`. Raises ValueError with the problem."""
    found = parse_url(text, "http://HOST:PORT or https://HOST:PORT (default port of collectors: 4318)", "`headers`")
    if found.prefix.endswith(tuple(f"/v1/{signal}" for signal in SIGNALS)):
        raise ValueError(f'expected an endpoint without path of a signal, got "{text}"; kproxy appends /v1/metrics')
    return found


def _endpoint(text: str) -> str:
    parse_endpoint(text)
    return text


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"expected a name of an HTTP header, got {name!r}")
    if name.lower() in OWN_HEADERS:
        raise ValueError(f'kproxy sets "{name}" itself')
    return name.lower()


def _quoted(value: Any) -> Any:
    if isinstance(value, float):
        hint = "YAML reads 1.30 as 1.3"
        raise ValueError(f'expected text in quotes, "1.30" or "1.44", got the number {value:g} ({hint})')
    return value


HeaderName = Annotated[str, AfterValidator(_header_name)]


class TracesConfig(Model):
    """Settings of the spans of exchanges with a trace context in the headers of their records."""

    topics: Texts = Field(description="topics of traced records: exact, with *, or a /regular expression/")
    sample: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="fraction of recorded traces that get spans, selected by trace id"
    )
    links: Annotated[int, Field(ge=0, le=128)] = Field(
        default=8, description="maximum linked traces of a span whose exchange has records of several traces"
    )


class OtlpConfig(Model):
    """Settings of the exports to an OpenTelemetry collector, over HTTP."""

    endpoint: Annotated[str, AfterValidator(_endpoint)] = Field(
        description="http:// or https://HOST:PORT of the collector; /v1/metrics and the like are appended"
    )
    headers: dict[HeaderName, HeaderSecret] = Field(
        default_factory=dict,
        description="HTTP headers of requests, such as authorization; secret values as ${VARIABLE} or file:NAME",
    )
    tls: UpstreamTls | None = Field(
        default=None,
        description="for https: CA certificates and client certificate (default: the system's CA certificates)",
    )
    encoding: Literal["json", "protobuf"] = Field(
        default="json", description="encoding of requests; protobuf needs the extra `otlp`"
    )
    semconv: Annotated[Semconv, BeforeValidator(_quoted)] = Field(
        default="1.30", description="version of OpenTelemetry's semantic conventions, in quotes"
    )
    timeout: Annotated[Seconds, Field(gt=0, le=60)] = Field(
        default=10.0, description="timeout of one request, from connecting to the end of its response"
    )
    metrics: Annotated[Seconds, Field(ge=1, le=3600)] | None = Field(
        default=None, description="interval of exports of all metrics (default: never)"
    )
    logs: Literal["audit"] | None = Field(
        default=None, description="audit: export audit events as log records, with `queue` and `when_full` of the audit"
    )

    traces: TracesConfig | None = Field(
        default=None, description="spans of exchanges whose records carry a trace context (default: none)"
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Check that something is sent, that TLS is asked for where there is some, and that headers differ."""
        if all(raw.get(signal) is None for signal in SIGNALS):
            yield (), f"nothing is sent: set at least one of {', '.join(SIGNALS)}"
        endpoint, headers = raw.get("endpoint"), raw.get("headers")
        if isinstance(endpoint, str) and endpoint.startswith("http://") and raw.get("tls") is not None:
            yield ("tls",), "the endpoint begins with http://, which has no TLS"
        if isinstance(headers, dict):
            names = [str(name).lower() for name in headers]
            for index, name in enumerate(headers):
                if names[index] in names[:index]:
                    yield ("headers", name), f'the header "{name}" stands here twice'
