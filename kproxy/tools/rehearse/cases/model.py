"""Models of the content of a `*.test.yaml` file.

    rules: orders.yaml
    tests:
      - name: the third write fails
        steps:
          - client: {api: Produce, version: 9, body: {topic_data: [{name: orders, partition_data: [{index: 0}]}]}}
            to_broker: untouched
            broker: {}
            to_client: untouched

Bodies are checked against the protocol's table in `document.py`, since the allowed fields depend on API and version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field

from kproxy.protocol.table import schema
from kproxy.rules.select.selected import topic_id
from kproxy.rules.values.model import KEY, Model, Wrong, found
from kproxy.rules.values.quantities import ByteCount, ByteRate, OneRange, Seconds, parse_duration
from kproxy.rules.values.source import nearest


def _known_api(name: str) -> str:
    if name not in schema.names():
        close = nearest(name, schema.names())
        raise ValueError(
            f'unknown API "{name}"{f", did you mean {close}?" if close else "; kproxy protocol lists them"}'
        )
    return name


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _expectations(value: Any) -> Any:
    """Return a list of expectations for `untouched`, `nothing`, one expectation or a list. Raises ValueError for other
    words."""
    if value == "nothing":
        return []
    for word in (one for one in _as_list(value) if isinstance(one, str) and one != "untouched"):
        close = nearest(word, ("untouched", "nothing"))
        hint = f', did you mean "{close}"?' if close else ""
        raise ValueError(f"expected untouched, nothing or a mapping, got {found(word)}{hint}")
    return [{"untouched": True} if one == "untouched" else one for one in _as_list(value)]


def _span(value: Any) -> Any:
    return [parse_duration(one) for one in _as_list(value)]


KnownApi = Annotated[str, AfterValidator(_known_api)]
FieldValues = dict[str, Any]


class ClientConnection(Model):
    """A client's connection, as described by a test or an explanation."""

    listener: str = Field(default="main", description="name of the listener that the client connected to")
    cluster: str = Field(default="main", description="name of the cluster behind it")
    client_address: str = Field(default="127.0.0.1", description="the client's IP address")
    sni: str | None = Field(default=None, description="host name that the client asked for in its TLS handshake")
    certificate: str | None = Field(default=None, description="subject of its certificate, CN=etl,O=Example")
    node: int | None = Field(default=None, description="id of the broker that it is for; none for a bootstrap one")
    principal: str | None = Field(default=None, description="authenticated principal")
    client_software: str | None = Field(default=None, description="name/version of the client's library")
    advertise: bool | None = Field(
        default=None,
        description="whether kproxy gives its own addresses for brokers; left out: if a rule of kind advertise holds",
    )


class SentRequest(Model):
    """A request that a client sends."""

    api: KnownApi | None = Field(default=None, description="the API's name, such as Produce")
    version: int | None = Field(default=None, description="its version; default: the newest")
    client_id: str | None = Field(default="tester", description="client id in the header")
    body: FieldValues = Field(default={}, description="the fields of the request; those left out have their defaults")
    hex: str | None = Field(default=None, description="instead of all that: a whole frame, as `kproxy decode` takes it")

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Yield an error unless either an existing API version or a frame in hex is given."""
        others = [name for name in ("api", "version", "client_id", "body") if name in raw]
        if raw.get("hex") is not None:
            for name in others:
                yield (name, KEY), f'"{name}" is already set by the frame in "hex"'
            try:
                bytes.fromhex(str(raw["hex"]))
            except ValueError:
                yield ("hex",), "expected hex digits"
        elif "api" not in raw:
            yield (), '"api" is missing: the name of the request\'s API, or "hex" with a whole frame'
        elif isinstance(raw.get("version"), int) and raw["api"] in schema.names():
            versions = schema.load(schema.names()[raw["api"]]).versions
            if raw["version"] not in versions:
                yield ("version",), f"expected versions {versions} of {raw['api']}, got {raw['version']}"

    @property
    def key(self) -> int:
        assert self.api is not None
        return schema.names()[self.api]

    @property
    def number(self) -> int:
        """Return the version, the newest one if it was left out."""
        return schema.load(self.key).versions.last if self.version is None else self.version


class SentAnswer(Model):
    """The broker's answer to the oldest request that it has not answered yet."""

    body: FieldValues = Field(default={}, description="the fields of the response; those left out have their defaults")


class ExpectedFrame(Model):
    """A frame that must come out on one side."""

    untouched: Literal[True] | None = Field(default=None, description="the very bytes that went in on the other side")
    changed: Literal[True] | None = Field(default=None, description="other bytes than went in on the other side")
    body: FieldValues | None = Field(default=None, description="fields that the frame must have, among others")
    exactly: FieldValues | None = Field(
        default=None, description="all its fields; those left out must have their defaults"
    )
    api: KnownApi | None = Field(default=None, description="the API")
    version: int | None = Field(default=None, description="its version")
    client_id: str | None = Field(default=None, description="client id in a request's header")
    correlation_id: int | None = Field(
        default=None, description="correlation id; the first request of a connection has 1, the next one 2"
    )
    bytes_: OneRange | None = Field(default=None, alias="bytes", description="how many bytes, length in front included")
    length: int | None = Field(default=None, description="value of the length field")
    readable: bool | None = Field(default=None, description="false: it cannot be decoded")
    after: (
        Annotated[list[Seconds], BeforeValidator(_span, json_schema_input_type=str | float | list[str | float])] | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=2,
        description="delay, such as 200ms, or [100ms, 300ms] for a range; the clock advances by it",
    )

    @classmethod
    def cross_check(cls, raw: dict[Any, Any]) -> Iterable[Wrong]:
        """Yield an error unless the frame is described in exactly one way."""
        given = [name for name in ("untouched", "changed", "exactly", "body") if raw.get(name) is not None]
        if len(given) > 1 and given != ["changed", "body"]:
            yield (given[1], KEY), f'"{given[1]}" beside "{given[0]}" says no more'
        if raw.get("readable") is False and {"exactly", "body"} & set(given):
            yield ("readable",), "a frame that cannot be read has no body"


class Flow(Model):
    """A limit on how the bytes of the connection flow."""

    rate: ByteRate | None = Field(default=None, description="bytes per second, 100kB/s")
    piece: ByteCount | None = Field(default=None, description="bytes written at once")
    pause: Seconds | None = Field(default=None, description="time between two pieces")
    max_bytes: ByteCount | None = Field(default=None, description="limit of bytes before the connection closes")
    age: Seconds | None = Field(default=None, description="age limit of the connection")
    close_with: Literal["fin", "rst"] | None = Field(default=None, description="closed by FIN or by reset")


class Counts(Model):
    """The counters of a rule, from the beginning of the test."""

    matched: int | None = Field(default=None, description="requests (or connections) that its selectors held for")
    fired: int | None = Field(default=None, description="those of them that its trigger chose")
    applied: int | None = Field(default=None, description="those of them with a sent change")


Expectations = Annotated[
    list[ExpectedFrame],
    BeforeValidator(_expectations, json_schema_input_type=str | ExpectedFrame | list[ExpectedFrame | str]),
]
Requests = Annotated[
    list[SentRequest], BeforeValidator(_as_list, json_schema_input_type=SentRequest | list[SentRequest])
]
Answers = Annotated[list[SentAnswer], BeforeValidator(_as_list, json_schema_input_type=SentAnswer | list[SentAnswer])]


class CaseStep(Model):
    """A step of a test: an event and its expected results. The fields take effect in this order."""

    times: Annotated[int, Field(ge=1)] = Field(default=1, description="number of repetitions of the step")
    wait: Seconds | None = Field(default=None, description="so much time passes first, 1s")
    resume: str | None = Field(default=None, description="name of a rule that resumes its held requests")
    connection: str | None = Field(default=None, description="which connection, by any name; a new one opens it now")
    client: Requests | None = Field(default=None, description="a request that the client sends, or a list of them")
    to_broker: Expectations | None = Field(
        default=None,
        description="expected frames at the broker: untouched, nothing, a frame or a list of frames",
    )
    broker: Answers | None = Field(default=None, description="response of the broker; {} has all defaults")
    to_client: Expectations | None = Field(default=None, description="expected frames at the client, likewise")
    closed: Literal["fin", "rst", "half", False] | None = Field(
        default=None,
        description="how kproxy has closed the connection, false: it has not; it must stay open if left out",
    )
    muted: bool | None = Field(default=None, description="whether kproxy reads nothing from the client at the end")
    held: int | None = Field(default=None, description="number of held requests")
    flow: list[Flow] | None = Field(default=None, description="expected limits of the connection's bytes")
    counts: dict[str, Counts] | None = Field(default=None, description="counters of live rules, by rule name")


class Case(Model):
    """One test: a dialogue of a client and a broker, with kproxy between them."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="name of the test")
    connection: ClientConnection | None = Field(
        default=None, description="the client's connection; replaces the file's"
    )
    connections: dict[str, ClientConnection] | None = Field(
        default=None, description="other connections, by the names that steps use"
    )
    topics: dict[str, Annotated[UUID, BeforeValidator(topic_id, json_schema_input_type=str)]] | None = Field(
        default=None, description="topics of the cluster: broker-side name: topic id"
    )
    seed: int = Field(default=0, description="of the chances of rules that have no seed of their own")
    steps: list[CaseStep] = Field(min_length=1, description="steps in order")


class CaseFile(Model):
    """A file of tests for rules."""

    rules: Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])] | None = Field(
        default=None, description="rule files, seen from this one; NAME.yaml for NAME.test.yaml if left out"
    )
    connection: ClientConnection | None = Field(default=None, description="the client's connection in all tests")
    tests: list[Case] = Field(min_length=1, description="the tests")
