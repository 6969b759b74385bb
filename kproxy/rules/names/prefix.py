"""Layers of prefix rules: what clients call x is called prefix + x on the brokers, and nothing else is there for them.

Every client-side name has its own broker-side one, so none is unreachable; broker-side names without the prefix, the
internal topics among them, are hidden. What is no name at all (a topic `a b`, an empty transactional id) passes in both
directions: brokers refuse it, and the answer shows the client its own word.
"""

from __future__ import annotations

from dataclasses import dataclass

from .namespace import Namespace


@dataclass(frozen=True, slots=True)
class PrefixLayer:
    """Layer of one prefix rule, which answers what a rename's `Layer` answers."""

    space: Namespace
    prefix: bytes

    def forward(self, client: bytes) -> bytes:
        return self.prefix + client if self.space.takes_prefix(client) else client

    def backward(self, broker: bytes) -> bytes | None:
        if not self.space.takes_prefix(broker):
            return broker
        if not broker.startswith(self.prefix):
            return None
        client = broker[len(self.prefix) :]
        return client if self.space.takes_prefix(client) else None

    def prefix_forward(self, prefix: bytes) -> bytes:
        """Return the prefix of an ACL, or of a pattern, on the broker side."""
        return self.prefix + prefix

    def prefix_backward(self, prefix: bytes) -> bytes | None:
        """Return the client-side prefix; None when it covers more than this tenant."""
        return prefix[len(self.prefix) :] if prefix.startswith(self.prefix) else None
