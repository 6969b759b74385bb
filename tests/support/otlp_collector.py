"""A collector for OTLP over HTTP: reads what comes by the proto's own classes, keeps it, and answers as it is told."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToJson, Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

IDS = ("traceId", "spanId", "parentSpanId")
MESSAGES: dict[str, tuple[Any, Any]] = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


@dataclass
class Reply:
    """Answer to one request; None: as a collector does. `before` is called first, and may wait."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    before: Callable[[], None] = lambda: None


class QuietServer(ThreadingHTTPServer):
    """Server that says nothing of connections that end in the middle."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


class TakenTelemetry(ABC):
    """What a collector has taken, by what it is."""

    @abstractmethod
    def messages(self) -> Sequence[Any]:
        """Return the messages of OTLP, those of each signal in order."""

    def of(self, kind: type[Any]) -> list[Any]:
        """All messages of a class that were taken."""
        return [one for one in self.messages() if isinstance(one, kind)]

    def log_lines(self) -> list[dict[str, Any]]:
        """The events in the log records that were taken."""
        return [json.loads(record.body.string_value) for record in self.log_records()]

    def log_records(self) -> list[Any]:
        return [record for one in self.of(ExportLogsServiceRequest) for resource in one.resource_logs
                for scope in resource.scope_logs for record in scope.log_records]  # fmt: skip

    def metrics(self) -> dict[str, Any]:
        """The metrics that came last, by name; those of one snapshot may be in several requests."""
        return {metric.name: metric for one in self.of(ExportMetricsServiceRequest) for resource in one.resource_metrics
                for scope in resource.scope_metrics for metric in scope.metrics}  # fmt: skip

    def spans(self) -> list[Any]:
        return [span for one in self.of(ExportTraceServiceRequest) for resource in one.resource_spans
                for scope in resource.scope_spans for span in scope.spans]  # fmt: skip


class Collector(TakenTelemetry):
    """Collector at a port of its own. `replies` are given to the next requests; afterwards all are taken."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.replies: list[Reply] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.taken: list[Any] = []
        self.raw: list[bytes] = []
        self.wrong: list[str] = []
        """Requests that the proto does not allow."""
        self.port = 0
        self.up()

    def up(self) -> None:
        """Listen, at the same port as before."""
        self._server = QuietServer(("127.0.0.1", self.port), self._handler())
        if self.context is not None:
            self._server.socket = self.context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_port
        self._live: set[Any] = set()
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Stop listening, and close what is open."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._live):
            with suppress(OSError):
                connection.connection.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it

    def messages(self) -> Sequence[Any]:
        return self.taken

    @property
    def endpoint(self) -> str:
        return f"{'http' if self.context is None else 'https'}://127.0.0.1:{self.port}"

    def _take(self, path: str, kind: str, body: bytes) -> bytes:
        """Read a request strictly: fields that the proto does not have are mistakes. Returns the answer."""
        request, response = MESSAGES[path]
        if kind == "application/x-protobuf":
            self.taken.append(request.FromString(body))
            return bytes(response().SerializeToString())
        assert kind == "application/json", kind
        self.taken.append(message_of(request, body))
        return MessageToJson(response()).encode()

    def _handler(outer) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                outer._live.add(self)

            def finish(self) -> None:
                outer._live.discard(self)
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.paths.append(self.path)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                reply = outer.replies.pop(0) if outer.replies else Reply()
                reply.before()
                answer = reply.body
                if 200 <= reply.status < 300:
                    outer.raw.append(body)
                    try:
                        made = outer._take(self.path, self.headers["Content-Type"], body)
                    except Exception as error:  # noqa: BLE001
                        outer.wrong.append(repr(error))
                        made = b""
                    answer = made if answer is None else answer
                try:
                    self.send_response(reply.status)
                    for name, value in {"Content-Length": str(len(answer or b"")), **reply.headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(answer or b"")
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        return Handler


def samples_of(metric: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """A metric's samples as Prometheus has them: names with underscores, and by labels in the order of their names."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    name, kind = metric.name.replace(".", "_"), metric.WhichOneof("data")
    for point in getattr(metric, kind).data_points:
        labels = {one.key: one.value.string_value for one in point.attributes}

        def add(ending: str, value: float, labels: dict[str, str] = labels, **more: str) -> None:
            found[name + ending, tuple(sorted((labels | more).items()))] = value

        if kind in ("sum", "gauge"):
            add("_total" if kind == "sum" else "", point.as_double)
            continue
        add("_count", point.count)
        add("_sum", point.sum)
        total = 0
        if kind == "histogram":
            for bound, number in zip((*point.explicit_bounds, None), point.bucket_counts, strict=True):
                total += number
                add("_bucket", total, le="+Inf" if bound is None else repr(bound))
    return found


def message_of(kind: type[Any], text: bytes) -> Any:
    """Return a message of OTLP from its JSON. Raises ParseError where the proto has no such field."""
    return Parse(json.dumps(_base64_ids(json.loads(text))), kind())


def _base64_ids(value: Any) -> Any:
    """OTLP's JSON has ids as hex digits, protobuf's as base64."""
    if isinstance(value, list):
        return [_base64_ids(one) for one in value]
    if isinstance(value, dict):
        return {name: b64encode(bytes.fromhex(one)).decode() if name in IDS else _base64_ids(one)
                for name, one in value.items()}  # fmt: skip
    return value
