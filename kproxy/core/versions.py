"""What the client is told of the broker's versions: ApiVersions answers, capped to what the bound rules understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproxy.errors import DecodeError
from kproxy.wire import decode_response, encode, schema

from .counters import Counters

API_VERSIONS = 18
PRODUCE = 0
HIDDEN = -1
UNSUPPORTED_VERSION = 35
TRANSACTION_VERSION = "transaction.version"
PRODUCE_FOR_TRANSACTIONS_V2 = 12

CORRELATION = 4  # bytes of the response header, which is version 0 for every version of ApiVersions (KIP-511)
MOST_ANSWERS = 64
"""Different answers kept: brokers of a cluster in the middle of an upgrade give a few, a hostile one any number."""

Newest = Callable[[int], int | None]
"""API key → the newest version a client may use; None: whatever the broker has; HIDDEN: none at all."""


def cap(body: dict[str, Any], newest: Newest) -> bool:
    """Cut the answer down in place; returns whether anything changed.

    Minimum versions stay as the broker gives them: brokers from 4.0 on advertise Produce 0 on purpose (KAFKA-18659).
    """
    listed = body["api_keys"] or []  # no broker sends null, but its bytes would be good
    kept = []
    for entry in listed:
        top = newest(entry["api_key"])
        if top is None or entry["max_version"] <= top:
            kept.append(entry)
            continue
        if top >= entry["min_version"]:
            kept.append(entry | {"max_version": top})
        if entry["api_key"] == PRODUCE and top < PRODUCE_FOR_TRANSACTIONS_V2 <= entry["max_version"]:
            take_back_transactions_v2(body)
    body["api_keys"] = kept
    return kept != listed


def take_back_transactions_v2(body: dict[str, Any]) -> None:
    """With transaction.version 2 clients use Produce 12 without looking whether there is one (KIP-890)."""
    for feature in body.get("finalized_features") or ():
        if feature["name"] == TRANSACTION_VERSION and feature["max_version_level"] > 1:
            feature["max_version_level"] = 1
            feature["min_version_level"] = min(feature["min_version_level"], 1)


def unsupported(correlation: int) -> bytes:
    """The answer to an ApiVersions version that kproxy does not know, as a broker gives it (KIP-511).

    Error 35 in the v0 layout, with the one entry from which the client takes the version for its next try.
    """
    newest = schema.load(API_VERSIONS).versions.last
    body = UNSUPPORTED_VERSION.to_bytes(2, "big") + (1).to_bytes(4, "big")
    body += API_VERSIONS.to_bytes(2, "big") + (0).to_bytes(2, "big") + newest.to_bytes(2, "big")
    frame = correlation.to_bytes(4, "big", signed=True) + body
    return len(frame).to_bytes(4, "big") + frame


class VersionsAnswers:
    """Cuts ApiVersions answers down. A broker says the same to every connection, so what became of one is kept."""

    def __init__(self, newest: Newest) -> None:
        self.newest = newest
        self.known: dict[tuple[int, bytes], bytes | None] = {}

    def cap(self, version: int, frame: bytes, counters: Counters) -> list[bytes] | None:
        """The frame with what `newest` leaves of the answer, as size and frame; None when it passes as it is.

        An answer that cannot be read passes, counted: librdkafka's mock gives one that is neither v0 nor v3.
        """
        asked = version, frame[CORRELATION:]
        if asked not in self.known:
            if len(self.known) >= MOST_ANSWERS:
                self.known.clear()
            self.known[asked] = self.capped(version, frame)
        body = self.known[asked]
        if body is None:
            return None
        if not body:
            counters.count("api_versions_unreadable")
            return None
        counters.rewritten["api_versions"] += 1
        return [(CORRELATION + len(body)).to_bytes(4, "big"), frame[:CORRELATION], body]

    def capped(self, version: int, frame: bytes) -> bytes | None:
        """What comes after the correlation id; None: nothing is to be cut; empty: it cannot be read."""
        try:
            message = decode_response(frame, API_VERSIONS, version)
        except DecodeError:
            return b""
        return encode(message)[CORRELATION:] if cap(message.body, self.newest) else None
