"""A stand-in for kproxy's admin address, for tests of the live view's page alone: it says what a test tells it to.

    with FakeView() as fake:
        fake.rows([fake.row(1, api="Produce", client="etl-3", latency=2.5)])
        page.goto(fake.page)

Files of the page come with the headers that kproxy gives them; filters are read by kproxy's own language.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from time import time
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit

from kproxy.admin.api import all_assets
from kproxy.admin.guard import SAFE
from kproxy.base.errors import FilterError
from kproxy.protocol.table import errors, schema
from kproxy.record.filters import Filter
from kproxy.record.observer.summary_rows import STEP, bucket_of
from kproxy.rules.filter.exchange_fields import FIELDS

COLUMNS = (
    "id", "time", "connection", "client", "api", "version", "about", "records", "request", "response", "latency",
    "broker_ms", "rule_ms", "kproxy_ms", "throttle", "outcome", "errors", "responder", "rules", "kept", "max_wait",
    "listener", "address", "principal", "software", "node", "group", "member", "transactional_id", "producer_id",
    "codec", "topic", "partition", "depth", "correlation", "changed", "again_of",
)  # fmt: skip
USUAL: dict[str, Any] = {
    "connection": 17, "client": "etl-3", "api": "Produce", "version": 9, "about": "orders[3]", "records": 2,
    "request": 210, "response": 64, "latency": 2.5, "broker_ms": 2.3, "rule_ms": 0.0, "kproxy_ms": 0.2, "throttle": 0,
    "outcome": "answered", "errors": [], "responder": "broker", "rules": [], "kept": True, "listener": "main",
    "address": "10.1.4.22:50122", "node": 2, "topic": "orders", "partition": 3, "depth": "full",
}  # fmt: skip
SILENCE = 5.0


class FakeView:
    """Server of one page. `rows_kept`, newest last, and `details` by id are what it has; `changes` is what pages have
    sent, `names` who sent it, and `refused` what they get by path in place of `answers`; `filters` are those of the
    streams that were opened. `token`: needed for everything but the files."""

    def __init__(self) -> None:
        self.rows_kept: list[list[Any]] = []
        self.details: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, Any] = {}
        self.refused: dict[str, tuple[int, Any]] = {}
        self.changes: list[tuple[str, str, Any]] = []
        self.names: list[str] = []
        self.filters: list[str] = []
        self.seen: list[str] = []
        self.streams: list[Queue[bytes | None]] = []
        self.stream = "3f9c"
        self.may_write = True
        self.token: str | None = None
        self.server = QuietServer(("127.0.0.1", 0), handler_of(self))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.page = f"{self.url}/view/"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self.server.shutdown()
        self.server.server_close()

    def row(self, number: int, **columns: Any) -> list[Any]:
        """Return the row of exchange `0-NUMBER`."""
        values = {**USUAL, "id": f"0-{number}", "time": time(), **columns}
        return [values.get(name) for name in COLUMNS]

    def rows(self, rows: Sequence[list[Any]], kept: bool = True) -> None:
        """Keep rows, and tell them to all pages."""
        if kept:
            self.rows_kept += rows
        self.tell("rows", {"rows": list(rows)})

    def tell(self, name: str, data: Any, place: str = "") -> None:
        """Tell an event to all pages."""
        text = f"{f'id: {place}' + chr(10) if place else ''}event: {name}\ndata: {json.dumps(data)}\n\n".encode()
        for stream in self.streams:
            stream.put(text)

    def tick(self, **counts: Any) -> None:
        """Tell what passed in a second; without `counts` some exchanges of usual APIs."""
        times = {0.6: 40, 0.9: 300, 2.1: 600, 4.0: 200, 9.0: 80, 41.0: 12, 120.0: 8}
        latency = {"buckets": [[bucket_of(ms), count] for ms, count in times.items()],
                   "rule_ms": 1000.0, "broker_ms": 3200.0, "kproxy_ms": 150.0}  # fmt: skip
        usual = {
            "seconds": 1.0, "passed": 1842, "looked_at": 1842, "matched": 13, "connections": 38, "throttle_ms": 200,
            "apis": {"Produce": [1240, 2, 260_000, 80_000, latency], "Heartbeat": [96, 0, 7000, 1500, latency],
                     "Metadata": [41, 0, 3000, 9000, latency]},
            "errors": {"NOT_LEADER_OR_FOLLOWER": 1}, "rules": {"slow sometimes": [33, 6, 6, 0]},
            "audit": {"written": 1_204_881, "waiting": 12, "lost": 0},
        }  # fmt: skip
        self.tell("tick", {**usual, **counts})

    def cut(self) -> None:
        for stream in self.streams:
            stream.put(None)
        self.streams.clear()

    def hello(self, wanted: str) -> bytes:
        data = {"stream": self.stream, "filter": wanted, "workers": 1, "rows": 400, "may_write": self.may_write,
                "records": True, "columns": COLUMNS, "latency_step": STEP}  # fmt: skip
        return f"id: {self.stream}.0-1\nevent: hello\ndata: {json.dumps(data)}\n\n".encode()

    def given(self, command: str, path: str) -> Any:
        """Return what a test answers to a change, by command and path, or by path, or by how both begin, with * behind;
        a refusal if it expects none."""
        asked = f"{command} {path}"
        for known in (asked, path, *(one for one in self.answers if one[-1] == "*" and asked.startswith(one[:-1]))):
            if known in self.answers:
                return self.answers[known]
        return 404, problem("not_found", f"there is no {asked} here")

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Return status and JSON of a GET."""
        if path in self.answers:
            return answered(self.answers[path], query)
        match path.split("/")[2:]:
            case ["filter"]:
                return 200, read_filter(query.get("text", ""))
            case ["exchanges"]:
                return 200, {
                    "columns": COLUMNS,
                    "rows": self.rows_kept[::-1],
                    "next": None,
                    "searched": 1,
                    "unknown": 0,
                }
            case ["exchanges", name]:
                found = self.details.get(unquote(name))
                if found is not None:
                    return 200, found
                return 410, problem("exchange_gone", "it is gone")
            case ["names"]:
                return 200, names()
            case ["version"]:
                return 200, {"kproxy": "0.1.0", "rules": "5f2c9a01b7e4"}
            case ["connections"]:
                return 200, {"connections": [connection(number) for number in (5, 17, 31)]}
            case ["connections", "ended"]:
                return 200, {"ended": [ended(number) for number in (30, 4)]}
            case ["sources"]:
                return 200, {"sources": [], "most": 4, "live": True, "may_open": self.may_write}
            case ["captures"]:
                return 200, {"folder": None, "captures": []}
            case ["topology"]:
                return 200, TOPOLOGY
            case ["rules"] | ["faults"]:  # one answer has the fields of both
                return 200, {"version": "5f2c9a01b7e4", "faults_disabled": False, "rules": [], "scenarios": [],
                             "seed": 1, "loaded": {}, "rejected": {}, "last_rejection": None,
                             "disabled": False}  # fmt: skip
        return 404, problem("not_found", f"there is no {path} here")


class QuietServer(ThreadingHTTPServer):
    """Server that says nothing of browsers that are gone in the middle of an answer."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def handler_of(fake: FakeView) -> type[BaseHTTPRequestHandler]:  # noqa: C901  # a class of short methods
    """Return the handler of requests to this stand-in."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        served: ClassVar[FakeView] = fake

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the base class names it so
            """Keep quiet."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            fake.seen.append(self.path)
            if url.path.startswith("/view/"):
                self.file(url.path.removeprefix("/view/") or "index.html")
            elif fake.token is not None and self.headers["Authorization"] != f"Bearer {fake.token}":
                self.send(401, json.dumps(problem("unauthorized", "a bearer token is needed")).encode())
            elif url.path == "/api/view":
                self.stream(query.get("filter", ""))
            else:
                status, answer = fake.answer(url.path, query)
                self.send(status, json.dumps(answer).encode())

        def change(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            media = self.headers["Content-Type"] or ""
            sent = body if "octet-stream" in media else body.decode() if "yaml" in media else body and json.loads(body)
            fake.names.append(unquote(self.headers["Kproxy-Who"] or ""))
            fake.changes.append((self.command, unquote(self.path), sent or None))
            path = unquote(urlsplit(self.path).path)
            status, answer = fake.refused.get(path) or answered(fake.given(self.command, path), sent)
            self.send(status, json.dumps(answer).encode())

        do_POST = do_PUT = do_DELETE = change  # noqa: N815  # names that the base class looks for

        def file(self, name: str) -> None:
            asset = all_assets().get(name)
            if asset is None:
                self.send(404, b"{}")
            else:
                self.send(200, asset.data, asset.media, SAFE)

        def send(
            self, status: int, data: bytes, media: str = "application/json", headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Type": media, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def stream(self, wanted: str) -> None:
            found = read_filter(wanted)
            if found["message"]:
                self.send(422, json.dumps(problem("invalid_query", found["message"])).encode())
                return
            events: Queue[bytes | None] = Queue()
            events.put(fake.hello(wanted))
            fake.filters.append(wanted)
            fake.streams.append(events)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for text in told(events):
                try:
                    self.wfile.write(text)
                except OSError:
                    break

    return Handler


def told(events: Queue[bytes | None]) -> Iterator[bytes]:
    """Yield what a page is told until its stream is cut."""
    while True:
        try:
            text = events.get(timeout=SILENCE)
        except Empty:
            text = b": all is well\n\n"
        if text is None:
            return
        yield text


def answered(given: Any, asked: Any) -> tuple[int, Any]:
    """Return status and JSON of an answer that a test gives, or that its function makes of what was asked."""
    found = given(asked) if callable(given) else given
    return found if isinstance(found, tuple) else (200, found)


def problem(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "mistakes": []}}


def read_filter(text: str) -> dict[str, Any]:
    """Return what `GET /api/filter` says of a filter."""
    try:
        wanted = Filter(text)
    except FilterError as error:
        return {"filter": None, "column": error.at + 1, "message": error.problem, "needs_records": False}
    return {"filter": str(wanted) if text else "", "column": None, "message": None, "needs_records": False}


def names() -> dict[str, Any]:
    fields = [{"name": one.name, "short": one.short, "group": one.group, "meaning": one.meaning, "example": one.example}
              for one in FIELDS]  # fmt: skip
    kept = {"topics": ["orders", "clicks"], "groups": ["billing"], "client_ids": ["etl-3"], "principals": []}
    return {"fields": fields, "apis": sorted(api.name for api in schema.apis()), "errors": sorted(errors.names()),
            "kept": {**kept, "transactional_ids": []}}  # fmt: skip


def connection(number: int) -> dict[str, Any]:
    """Return a connection as `GET /api/connections` lists it."""
    return {
        "id": number, "listener": "main", "cluster": "main", "client": f"10.1.4.{number}:50122", "sni": None,
        "client_id": f"etl-{number}",
        "certificate": None, "principal": "etl", "software": "librdkafka/2.10.0", "node": 2,
        "broker": "broker-2.internal:9092", "since": "2026-11-21T14:02:51.000+00:00", "client_bytes": 41_200_000,
        "broker_bytes": 400_000, "in_flight": 1, "rules": ["orders lives elsewhere"], "version": "5f2c9a01b7e4",
        "outdated": number == 17, "leaving": False,
    }  # fmt: skip


def ended(number: int) -> dict[str, Any]:
    """Return a connection that has ended as `GET /api/connections/ended` lists it."""
    return {
        "id": number, "listener": "main", "client": f"10.1.4.{number}:50122", "client_id": None, "node": 2,
        "broker": "broker-2.internal:9092", "since": "2026-11-21T14:02:51.000+00:00",
        "ended": "2026-11-21T14:03:01.500+00:00", "client_bytes": 512, "broker_bytes": 0, "cause": "client_reset",
        "reason": "client: Connection reset by peer, with requests in flight", "blame": "client",
    }  # fmt: skip


TOPOLOGY = {
    "clusters": {"main": {"bootstrap": ["broker-1.internal:9092"], "nodes": [
        {"id": number, "host": f"broker-{number}.internal", "port": 9092, "role": "broker",
         "addresses": {"main": f"kafka.edge.example:1909{number}"}} for number in (1, 2, 3)]}},
    "listeners": {"main": {"address": "0.0.0.0:19092", "cluster": "main", "tls": True, "connections": 3}},
}  # fmt: skip
