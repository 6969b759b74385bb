"""One name at a time, in one direction, with its counters."""

from __future__ import annotations

from dataclasses import dataclass

from kproxy.core.rewrite import Context
from kproxy.rules.names import ESCAPE, NameMap
from kproxy.wire.primitives import MAX_STRING


@dataclass(frozen=True, slots=True)
class Spelling:
    """How names are written on the other side: towards the broker in requests, towards the client in responses."""

    names: NameMap
    direction: str

    def translate(self, name: bytes, context: Context) -> bytes | None:
        """The name on the other side. None: hidden from clients. A name too long to be written is none, and stays."""
        if self.direction == "response":
            return self.names.to_client(name)
        found = self.names.to_broker(name)
        if found.startswith(ESCAPE):
            context.count("topics_unreachable")
        return found if len(found) <= MAX_STRING else name
