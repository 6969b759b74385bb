"""A mark on a question of kproxy's own, by which it knows the question when it comes back in as a client's.

Where brokers' addresses lead to kproxy again, by way of other proxies or balancers, each connection makes another one
until there are no descriptors. No address shows that. So kproxy asks each cluster for ApiVersions with a client id that
no other process has; every proxy on the way passes it on, and who gets it back closes the circle.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex

API_VERSIONS = 18
PREFIX = b"kproxy-circle-"
AT = 10
"""Where the client id begins in a request without its size, header version 1."""
INSTANCE = 16
"""Characters that tell one kproxy, with all its workers, from others."""


class CircleMark:
    """The mark of one kproxy. `found(cluster)` is called when a question to that cluster has come back."""

    def __init__(self, instance: str = "") -> None:
        self.instance = instance or token_hex(INSTANCE // 2)
        self.own = PREFIX + self.instance.encode() + b"-"
        self.found: Callable[[str], object] = lambda cluster: None

    def question(self, cluster: str) -> bytes:
        """An ApiVersions request of version 0, with its size, which asks whether that cluster leads back here."""
        name = self.own + cluster.encode()
        body = API_VERSIONS.to_bytes(2, "big") + bytes(6) + len(name).to_bytes(2, "big") + name
        return len(body).to_bytes(4, "big") + body

    def recognise(self, frame: bytes) -> str:
        """The cluster that this ApiVersions request of a client was sent to by this kproxy; empty: it was not."""
        if not frame.startswith(self.own, AT):
            return ""
        length = int.from_bytes(frame[AT - 2 : AT], "big")
        return frame[AT + len(self.own) : AT + length].decode(errors="replace")
