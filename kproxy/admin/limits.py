"""Limits shared by all clients of an HTTP server: connections, TLS handshakes, bytes of bodies and of responses.

Only totals are limited. A limit per address would be wrong: many clients share the address of a gateway, and a lone
client may use everything. A client network that uses less than its part of a full limit is served at the expense of the
network that uses most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from time import monotonic
from typing import TypeVar

import trio
from starlette.requests import ClientDisconnect, Request

from kproxy.rules.values.address import network_of
from kproxy.runtime.protocols import host_port

from .problem import Problem

LONGEST_BODY = 4 << 20  # bytes; some ten thousand rules
LONGEST_READ = 10.0  # seconds; a slow line sends 4 MiB in that time
CLOSE = {"Connection": "close"}  # headers of a refusal that leaves the rest of the body unread


class LimitedEntry:
    """Connection or handshake that counts towards a limit. `network`: its origin."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.quiet_since = monotonic()  # monotonic time of the last activity

    def abort(self) -> None:
        raise NotImplementedError


AnyEntry = TypeVar("AnyEntry", bound=LimitedEntry)


def admit(entries: set[AnyEntry], entry: AnyEntry, most: int, late: float = float("-inf")) -> bool:
    """Add an entry. At the limit, evict another entry first; return False if none may be evicted."""
    if len(entries) >= most:
        evicted = entry_to_evict(entries, entry.network, late)
        if evicted is None:
            return False
        entries.discard(evicted)
        evicted.abort()
    entries.add(entry)
    return True


def entry_to_evict(entries: Collection[AnyEntry], network: str, late: float) -> AnyEntry | None:
    """Return the entry to evict for one of this network; None: evict nothing.

    It is the quietest entry of the network with the most entries. Afterwards that network still has at least as many as
    this one, or the entry was quiet since `late`.
    """
    counts = Counter(one.network for one in entries)
    largest = max(counts, key=counts.__getitem__, default=network)
    quiet = min((one for one in entries if one.network == largest), key=lambda one: one.quiet_since, default=None)
    if quiet is None or (counts[largest] - 1 < counts[network] + 1 and quiet.quiet_since >= late):
        return None
    return quiet


def network_of_peer(request: Request) -> str:
    return "" if request.client is None else network_of(host_port(request.client)[0])


class ByteLimit:
    """Bytes in memory, by network. `most`: their limit; `what`, `code`, `headers`: of the refusal."""

    def __init__(self, most: int, what: str, code: str, headers: Mapping[str, str]) -> None:
        self.most, self.what, self.code, self.headers = most, what, code, headers
        self.total = 0
        self.by_network: Counter[str] = Counter()

    def add(self, network: str, size: int) -> None:
        """Add `size` bytes; a negative size removes them."""
        self.total += size
        self.by_network[network] += size
        if not self.by_network[network]:
            del self.by_network[network]

    def check(self, network: str) -> None:
        """Raise Problem if the limit is exceeded, and this network has more than its part of it.

        So the networks that have less than their parts exceed the limit by at most as much again.
        """
        if self.total > self.most and self.by_network[network] * len(self.by_network) > self.most:
            message = f"expected at most {self.most} bytes of {self.what} in memory, got {self.total}"
            raise Problem(429, self.code, message, headers=self.headers)


BODIES = ByteLimit(32 << 20, "bodies", "too_many_bodies", CLOSE)
"""Bodies until their operations finish: eight of the longest. Parsed documents are about ten times larger."""
RESPONSES = ByteLimit(64 << 20, "long responses", "too_many_answers", {"Retry-After": "1"})
"""Long responses until they are sent: a dozen lists of ten thousand rules."""


@asynccontextmanager
async def body_of(request: Request) -> AsyncIterator[bytes]:
    """Read the body, which counts towards BODIES until the context ends. Raises Problem if it is too long or too
    slow."""
    check_length(request, LONGEST_BODY)
    data, network = bytearray(), network_of_peer(request)
    try:
        try:
            with trio.move_on_after(LONGEST_READ) as limit:
                async with aclosing(request.stream()) as stream:
                    async for piece in stream:
                        data += piece
                        BODIES.add(network, len(piece))
                        if len(data) > LONGEST_BODY:
                            raise too_large(len(data), LONGEST_BODY)
                        BODIES.check(network)
        except ClientDisconnect:
            raise Problem(408, "too_slow", f"the connection ended after {len(data)} bytes of the body") from None
        if limit.cancelled_caught:
            message = f"expected the end of the body within {LONGEST_READ:g} s, got {len(data)} bytes"
            raise Problem(408, "too_slow", message, headers=CLOSE)
        yield bytes(data)
    finally:
        BODIES.add(network, -len(data))


def check_length(request: Request, most: int) -> None:
    """Check the announced length of a body. Raises Problem."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise too_large(int(length), most)


def too_large(length: int, most: int) -> Problem:
    """Refusal of a body with at least this many bytes."""
    return Problem(413, "too_large", f"expected a body of at most {most} bytes, got {length} or more", headers=CLOSE)
