"""A stand-in for the API of toxiproxy, as far as Sarama's tests call it.

Strategy: brokers, or kproxy, have the ports at which Sarama looks for toxiproxy's proxies, so there is nothing to
relay; each call is answered as if it had been done. Tests that wait for a toxic to act fail, with or without kproxy.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ToxiproxyCalls(BaseHTTPRequestHandler):
    """Handler that says yes to what Sarama's tests ask of toxiproxy."""

    def do_GET(self) -> None:
        """Describe any proxy as there and enabled."""
        name = self.path.rpartition("/")[2]
        self.answer(200, {"name": name, "listen": "", "upstream": "", "enabled": True})

    def do_POST(self) -> None:
        """Take a proxy, a toxic or a reset."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/reset":
            self.answer(204, None)
        else:
            self.answer(200, json.loads(body or b"{}"))

    def answer(self, status: int, body: object) -> None:
        """Send the status, and the body as JSON where there is one."""
        self.send_response(status)
        content = b"" if body is None else json.dumps(body).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is http.server's
        """Say nothing: results stand on the same terminal."""


@contextmanager
def toxiproxy() -> Iterator[dict[str, str]]:
    """Serve the calls on a free port. Give the environment that says where."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ToxiproxyCalls)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"TOXIPROXY_ADDR": f"http://127.0.0.1:{server.server_address[1]}"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
