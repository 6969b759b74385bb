"""A TCP relay that keeps the frames it passes on. Used once, by record.py, to make the golden frames."""

from __future__ import annotations

import socket
import threading
from collections import deque

from kproxy.protocol import decode_request
from tests.protocol.golden.frames import Frame


class Relay:
    """Listens on `listen`, connects to `target` for each connection, and keeps every frame under `client`'s name."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.client = ""
        self.recorded: list[Frame] = []
        self._target = target
        self._server = socket.create_server(listen)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            far = socket.create_connection(self._target)
            waiting: deque[tuple[int, int]] = deque()
            for source, sink, direction in ((near, far, "request"), (far, near, "response")):
                args = (source, sink, direction, waiting, self.client)
                threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, direction: str, waiting: deque[tuple[int, int]], client: str
    ) -> None:
        with source.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(size, "big"))
                if direction == "request":
                    key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                    if not is_fire_and_forget(key, version, frame):
                        waiting.append((key, version))
                else:
                    key, version = waiting.popleft()
                self.recorded.append(Frame(client, direction, key, version, frame))
                try:
                    sink.sendall(size + frame)
                except OSError:  # the other side has gone
                    break
        sink.close()


def is_fire_and_forget(key: int, version: int, frame: bytes) -> bool:
    """A Produce request with acks 0 has no response. Read with the decoder that the frames are to prove."""
    return key == 0 and decode_request(frame).body["acks"] == 0
