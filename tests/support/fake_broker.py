"""A broker that does as a test says: it dies in the middle of a frame, never answers, or lists any nodes.

Strategy: a thread for each connection. ApiVersions and Metadata are answered, in the versions that `RawClient` asks
for; everything else, and these too if so wished, by a function of the test.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from kproxy.protocol import Message, decode_request, encode
from kproxy.protocol.table.api_keys import API_VERSIONS, METADATA
from kproxy.testing.process import free_port

Answer = Callable[["FakeBroker", socket.socket, Message], None]
"""Function of a test that is called with a whole request and sends what it likes. When it closes the socket, the
connection is over."""


class FakeBroker:
    """A broker that listens on `host:port` (0: any free one), or on the Unix socket `path`, until closed; a context
    manager.

    `nodes` are those that it lists in Metadata, itself as node 0 if not given. `answers` are functions by API key.
    `requests` are all that it has received, `peers` the addresses that have connected, `accepted` counts connections.
    With `tls` it begins each with a TLS handshake.
    """

    def __init__(
        self,
        *,
        nodes: Mapping[int, tuple[str, int]] | None = None,
        answers: Mapping[int, Answer] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        path: str = "",
    ) -> None:
        self.host, self.port, self.tls, self.path = host, port or free_port(host), tls, path
        self.nodes = dict(nodes) if nodes is not None else {0: (host, self.port)}
        self.answers: dict[int, Answer] = {API_VERSIONS: answer_versions, METADATA: answer_metadata, **(answers or {})}
        self.requests: list[Message] = []
        self.peers: set[str] = set()
        self.accepted = 0
        self.connections: set[socket.socket] = set()
        self._closed = threading.Event()
        self._listening = self._listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _listen(self) -> socket.socket:
        if self.path:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(self.path)
            listening.listen(1000)
            return listening
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, self.port), family=family, backlog=1000)

    @property
    def address(self) -> str:
        """Return `host:port`, or `unix:/path` for a Unix socket."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def respond(self, stream: socket.socket, request: Message, body: dict[str, Any]) -> None:
        """Send a response with this body to a request."""
        header = {"correlation_id": request.header["correlation_id"]}
        frame = encode(Message(request.api, request.version, header, body))
        stream.sendall(len(frame).to_bytes(4, "big") + frame)

    def close(self) -> None:
        """Listen no more and close every connection."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        for stream in list(self.connections):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                stream, peer = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            self.peers.add(peer[0] if peer else "")
            self.connections.add(stream)
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        with suppress(OSError):
            if self.tls is not None:
                self.connections.discard(stream)
                stream = self.tls.wrap_socket(stream, server_side=True)
                self.connections.add(stream)
        with suppress(OSError), stream:  # OSError: it was closed by an answer, or from the other end
            while frame := _exactly(stream, int.from_bytes(_exactly(stream, 4), "big")):
                request = decode_request(frame)
                self.requests.append(request)
                self.answers[request.api.key](self, stream, request)
        self.connections.discard(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _exactly(stream: socket.socket, size: int) -> bytes:
    """Read so many bytes; none when the connection ends before."""
    data = bytearray()
    while len(data) < size and (more := stream.recv(size - len(data))):
        data += more
    return bytes(data) if len(data) == size else b""


def reset(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Close the connection with RST in place of a response."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def answer_versions(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Answer ApiVersions with the APIs that the broker has a function for, in versions 0 to 4."""
    keys = [{"api_key": key, "min_version": 0, "max_version": 4} for key in sorted(broker.answers)]
    body: dict[str, Any] = {"error_code": 0, "api_keys": keys}
    if request.version:
        body["throttle_time_ms"] = 0
    broker.respond(stream, request, body)


def answer_metadata(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    brokers = [
        {"node_id": node, "host": host, "port": port, "rack": None} for node, (host, port) in broker.nodes.items()
    ]
    body = {"throttle_time_ms": 0, "brokers": brokers, "cluster_id": "fake", "controller_id": -1, "topics": []}
    broker.respond(stream, request, body)


def silence(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Send no response at all; the connection stays open."""
