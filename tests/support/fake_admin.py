"""An admin API for tests of its clients: answers and streams that the test writes down, and what was asked."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]
"""Status and JSON."""


@dataclass
class Asked:
    """Request that came: method, path without its query, query, body as JSON or text, headers in lower case."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass
class FakeAdmin:
    """Admin API at `url`. `answers`: by (method, path); `streams`: one queue of chunks for each listener, in their
    order, of which None ends the connection."""

    url: str = ""
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    streams: list[queue.SimpleQueue[bytes | None]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    listened: list[Asked] = field(default_factory=list)
    refusal: Answer | None = None

    def problem(self, status: int, code: str, message: str) -> Answer:
        return status, {"error": {"code": code, "message": message, "mistakes": []}}

    def stream(self) -> queue.SimpleQueue[bytes | None]:
        """Return the chunks of the next listener."""
        chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.streams.append(chunks)
        return chunks

    def of(self, method: str, path: str) -> list[Any]:
        """Return the bodies of the requests of this method and path."""
        return [one.body for one in self.asked if (one.method, one.path) == (method, path)]


class QuietServer(ThreadingHTTPServer):
    """Server that says nothing of clients which go as they like."""

    def handle_error(self, *arguments: Any) -> None: ...


def event(name: str, data: Any, ident: str = "") -> bytes:
    """Return a server-sent event."""
    begin = f"id: {ident}\n" if ident else ""
    return f"{begin}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@contextmanager
def fake_admin() -> Iterator[FakeAdmin]:
    """Serve a fake admin API until the context ends."""
    admin = FakeAdmin()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

        def do_GET(self) -> None:
            self.answer("GET")

        def do_POST(self) -> None:
            self.answer("POST")

        def do_DELETE(self) -> None:
            self.answer("DELETE")

        def answer(self, method: str) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            try:
                body = json.loads(data) if data else None
            except ValueError:
                body = data
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked = Asked(method, parts.path, query, body, {name.lower(): text for name, text in self.headers.items()})
            if parts.path == "/api/view" and admin.refusal is None:
                self.give_stream(asked)
                return
            admin.asked.append(asked)
            nothing = admin.problem(404, "not_found", "there is no such page")
            status, said = admin.answers.get((method, parts.path), nothing)
            if admin.refusal is not None:
                status, said = admin.refusal
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def give_stream(self, asked: Asked) -> None:
            number = len(admin.listened)
            admin.listened.append(asked)
            while len(admin.streams) <= number:
                admin.stream()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while not stopped.is_set():
                try:
                    chunk = admin.streams[number].get(timeout=0.05)
                except queue.Empty:
                    continue
                if chunk is None:
                    return
                self.wfile.write(chunk)
                self.wfile.flush()

    stopped = threading.Event()
    with QuietServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        admin.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield admin
        finally:
            stopped.set()
            server.shutdown()
            thread.join()
