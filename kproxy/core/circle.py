"""A mark on a question of kproxy's own, by which it knows the question when it comes back in as a client's.

Where brokers' addresses lead to kproxy again, by way of other proxies or balancers, each connection makes another one
until there are no descriptors. No address shows that. So kproxy asks each cluster for ApiVersions with a client id that
no other process has; every proxy on the way passes it on, and who gets it back closes the circle.

Brokers see that id, and so does who reads their logs. It is one for each cluster, made with a secret: who has one can
have connections to that cluster refused, which it could do itself, and tells nothing of the id for another.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from secrets import token_hex

from kproxy.wire.table.api_keys import API_VERSIONS

PREFIX = b"kproxy-circle-"
AT = 10
"""Offset of the client id in a request without its size, header version 1."""
SECRET_BYTES = 16
PROOF = 16
"""Characters that tell the questions of one kproxy, with all its workers, to one cluster from others."""


class CircleMark:
    """Mark of one kproxy. `on_return(cluster)` is called when a question to that cluster has come back."""

    def __init__(self, instance: str = "") -> None:
        self.instance = instance or token_hex(SECRET_BYTES)
        self.on_return: Callable[[str], object] = lambda cluster: None

    def client_id(self, cluster: bytes) -> bytes:
        """Return the client id of questions to that cluster."""
        proof = hmac.digest(self.instance.encode(), cluster, "sha256").hex()[:PROOF]
        return PREFIX + proof.encode() + b"-" + cluster

    def question(self, cluster: str) -> bytes:
        """Return an ApiVersions request of version 0, with its size, which asks if that cluster leads back here."""
        name = self.client_id(cluster.encode())
        body = API_VERSIONS.to_bytes(2, "big") + bytes(6) + len(name).to_bytes(2, "big") + name
        return len(body).to_bytes(4, "big") + body

    def cluster_of(self, frame: bytes) -> str:
        """Return the cluster that this kproxy sent the client's ApiVersions request to; empty: it did not send it."""
        if not frame.startswith(PREFIX, AT):
            return ""
        name = frame[AT : AT + int.from_bytes(frame[AT - 2 : AT], "big")]
        cluster = name[len(PREFIX) + PROOF + 1 :]
        if not hmac.compare_digest(name, self.client_id(cluster)):
            return ""
        return cluster.decode(errors="replace")
