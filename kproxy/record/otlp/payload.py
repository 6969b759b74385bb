"""Requests of OTLP, as the trees of their JSON form, and as bytes.

The JSON form is protobuf's with two differences (opentelemetry-proto, docs/specification.md): ids of traces and spans
are hex digits, and enumerations are numbers. Whole numbers of 64 bits are texts. The protobuf form is made of the same
tree, by the messages of the extra `otlp`, so what is sent is put together once.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Literal

import msgspec

from kproxy.base.distribution import how_to_install, own_version
from kproxy.base.errors import InternalError

Signal = Literal["metrics", "logs", "traces"]
Encoding = Literal["json", "protobuf"]
Semconv = Literal["1.30", "1.44"]
"""Version of OpenTelemetry's semantic conventions that names of attributes follow."""
Tree = dict[str, Any]

SCOPE = {"name": "kproxy"}
NANO = 1_000_000_000
CONTENT_TYPES: Mapping[Encoding, str] = {"json": "application/json", "protobuf": "application/x-protobuf"}
IDS = ("traceId", "spanId", "parentSpanId")
SCHEMAS = "https://opentelemetry.io/schemas"  # published telemetry schemas, by version of the conventions

_encode = msgspec.json.Encoder().encode


class MissingOtlp(InternalError):
    """Error for opentelemetry-proto, which has OTLP's messages, not being installed."""


def resource(instance: str) -> Tree:
    return {
        "attributes": attributes({
            "service.name": "kproxy", "service.instance.id": instance, "service.version": own_version()
        })
    }  # fmt: skip


def attributes(values: Mapping[str, str | int | float | bool | list[str] | None]) -> list[Tree]:
    """Return attributes by their names; those that are None are left out."""
    return [{"key": key, "value": any_value(value)} for key, value in values.items() if value is not None]


def any_value(value: str | float | bool | list[str]) -> Tree:
    if isinstance(value, str):
        return {"stringValue": sendable(value)}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    return {"doubleValue": number(value)}


def sendable(text: str) -> str:
    """Return a text as it can be sent: bytes of a name that were not UTF-8 become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def number(value: float) -> float | str:
    """Return a number in JSON's form; NaN and infinity are words."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def nanoseconds(seconds: float) -> str:
    """Return seconds since 1970 as whole nanoseconds, to the microsecond, as text; never below zero."""
    return str(max(0, round(seconds * 1_000_000) * 1000))


ROOTS: Mapping[Signal, tuple[str, str, str]] = {
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
    "traces": ("resourceSpans", "scopeSpans", "spans"),
}


class RequestEncoder:
    """Encoder of the requests of one signal and process. Raises MissingOtlp when made without what it needs."""

    def __init__(self, signal: Signal, instance: str, encoding: Encoding, semconv: Semconv = "1.30") -> None:
        self.signal, self.encoding, self.resource = signal, encoding, resource(instance)
        self.content_type = CONTENT_TYPES[encoding]
        self.request: Any = None
        self.response: Any = None
        if encoding == "protobuf":
            self.request, self.response = messages(signal)
        root, scopes, items = ROOTS[signal]
        self.schema = {"schemaUrl": f"{SCHEMAS}/{semconv}.0"}
        scope = _encode({"scope": SCOPE, **self.schema})[:-1] + b',"' + items.encode() + b'":['
        self.head = b'{"' + root.encode() + b'":[' + _encode({"resource": self.resource, **self.schema})[:-1]
        self.head += b',"' + scopes.encode() + b'":[' + scope
        self.path = f"/v1/{signal}"

    def encode(self, trees: Iterable[Tree]) -> bytes:
        """Return the request with these metrics, log records or spans."""
        if self.encoding == "json":
            return self.head + b",".join([_encode(tree) for tree in trees]) + b"]}]}]}"
        from google.protobuf.json_format import ParseDict

        root, scopes, items = ROOTS[self.signal]
        ready = [with_byte_ids(tree) for tree in trees] if self.signal == "traces" else list(trees)
        scope = {"scope": SCOPE, items: ready, **self.schema}
        tree = {root: [{"resource": self.resource, scopes: [scope], **self.schema}]}
        encoded: bytes = ParseDict(tree, self.request()).SerializeToString()
        return encoded

    def rejected(self, body: bytes) -> tuple[int, str]:
        """Return the number of rejected items in a response of success, and the reason.

        Raises ValueError if it is not a response of OTLP, so that a web server at a wrong port is detected.
        """
        if not body:
            return 0, ""
        answer = self._decoded(body)
        partial = answer.get("partialSuccess") or {} if isinstance(answer, dict) else None
        if not isinstance(partial, dict):
            raise ValueError("expected an object with a partialSuccess object, got other JSON")
        name = {"metrics": "rejectedDataPoints", "logs": "rejectedLogRecords", "traces": "rejectedSpans"}
        count = partial.get(name[self.signal]) or 0  # a text, as JSON has whole numbers of 64 bits
        if not isinstance(count, int | str):
            raise ValueError(f"expected a number of rejected items, got {type(count).__name__}")
        return max(0, int(count)), str(partial.get("errorMessage") or "")

    def _decoded(self, body: bytes) -> Any:
        """Return a response in the form of its JSON. Raises ValueError."""
        if self.encoding == "json":
            try:
                return msgspec.json.decode(body)
            except RecursionError:
                raise ValueError("expected an OTLP response, got JSON that is nested too deep") from None
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError

        try:
            return MessageToDict(self.response.FromString(body))
        except DecodeError as error:
            raise ValueError(str(error)) from None


def with_byte_ids(span: Tree) -> Tree:
    """Return a span with ids in the form of protobuf's own JSON, base64."""
    made = span | {name: b64encode(bytes.fromhex(span[name])).decode() for name in IDS if name in span}
    if span.get("links"):
        made["links"] = [with_byte_ids(link) for link in span["links"]]
    return made


def messages(signal: Signal) -> tuple[Any, Any]:
    """Return the classes of a signal's request and response. Raises MissingOtlp."""
    name = "trace" if signal == "traces" else signal
    try:
        module = import_module(f"opentelemetry.proto.collector.{name}.v1.{name}_service_pb2")
    except ImportError as error:
        raise MissingOtlp(f"opentelemetry-proto is not installed: {how_to_install('otlp')}") from error
    service = f"Export{name.capitalize()}Service"
    return getattr(module, f"{service}Request"), getattr(module, f"{service}Response")
