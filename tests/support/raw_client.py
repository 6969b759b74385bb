"""A Kafka client of the simplest kind: one socket, frames out, frames in, and all the wrong things a client can do."""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from traceback import walk_tb
from types import TracebackType
from typing import Any, Self

from kproxy.protocol import Message, apis, decode_response, encode

_APIS = {api.key: api for api in apis()}
METADATA = {"topics": [], "allow_auto_topic_creation": False}
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds


class EndOfStream(ConnectionError):
    """End of a connection by the peer's FIN; `.args[0]` has the bytes of the frame that came before it."""


class RawClient:
    """A connection to `host:port`, with TLS if a context is given; a context manager that closes it.

    `source` is the address to come from, `client_id` the one in its requests, `first` the bytes that it sends before
    all else, TLS included. Every wait is limited by `timeout` seconds; then it raises TimeoutError.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        source: str = "",
        timeout: float = 60,
        client_id: str | None = "raw",
        first: bytes = b"",
    ) -> None:
        host, _, port = address.rpartition(":")
        near = (source, 0) if source else None
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout, near)
        try:
            self.socket.sendall(first)
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=server_name or host.strip("[]"))
        except BaseException as error:  # the peer may have reset it already
            self.socket.close()
            for frame, _ in walk_tb(error.__traceback__):  # where ssl leaves its own open
                half = frame.f_locals.get("self")
                if isinstance(half, ssl.SSLSocket):
                    half.close()
            raise
        self._ids, self._client_id = itertools.count(1), client_id

    def request(self, key: int, version: int, body: dict[str, Any], correlation: int | None = None) -> bytes:
        """Return a request as it goes out, with its size in front."""
        header = {
            "request_api_key": key,
            "request_api_version": version,
            "correlation_id": next(self._ids) if correlation is None else correlation,
            "client_id": self._client_id,
        }
        frame = encode(Message(_APIS[key], version, header, body))
        return len(frame).to_bytes(4, "big") + frame

    def send(self, data: bytes) -> None:
        """Send all of these bytes as they are."""
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """Read the next frame, without its size. Raises EndOfStream when the connection ends before it is whole."""
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def exactly(self, size: int) -> bytes:
        """Read so many bytes. Raises EndOfStream with those that came when there are fewer."""
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EndOfStream(bytes(data))
            data += more
        return bytes(data)

    def call(self, key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the body of its response."""
        self.send(self.request(key, version, body))
        return decode_response(self.frame(), key, version).body

    def brokers(self) -> dict[int, str]:
        """Ask for the brokers by Metadata. Return {node id: "host:port"}."""
        return {
            broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in self.call(3, 4, METADATA)["brokers"]
        }

    def rest(self) -> bytes:
        """Read and return everything that comes until the other end's FIN."""
        data = bytearray()
        while more := self.socket.recv(65536):
            data += more
        return bytes(data)

    def shut(self) -> None:
        """Send FIN, and go on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close the connection with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
