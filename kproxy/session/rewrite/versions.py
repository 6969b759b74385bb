"""The broker's versions as clients see them: ApiVersions responses, limited to readable and allowed versions.

Features that a broker lists as finalized are cut with them. A client that sees `transaction.version` 2 uses Produce 12,
TxnOffsetCommit 5 and EndTxn 5 without a check of these versions (KIP-890). The features of the other group protocols
imply that their APIs exist (KIP-848, KIP-932, KIP-1071). `metadata.version` and similar features describe the cluster's
storage, not clients' requests, and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kproxy.base.bounded_map import BoundedMap
from kproxy.base.cooperative import yielding
from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_response, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, TELEMETRY
from kproxy.session.counters import Counters

HIDDEN = -1
UNSUPPORTED_VERSION = 35
FLEXIBLE = 3
"""First version of ApiVersions that has compact arrays, and that a client gives up for an older one."""

CORRELATION = 4  # bytes of the response header, which is version 0 for every version of ApiVersions (KIP-511)
NOTHING: Mapping[int, int] = MappingProxyType({})
MOST_ANSWERS = 64
"""Different answers kept: brokers of a cluster in the middle of an upgrade give a few, a hostile one any number."""
# Bytes of an ApiVersions response, which is cut in one piece and cached. Brokers of Kafka 4 send 700.
MAX_VERSIONS_RESPONSE: Final = 65536

AllowedVersions = Callable[[int], tuple[int, int] | None]
"""API key → first and last version a client may use; None: whatever the broker has; first above last: none at all."""


def cap(
    body: dict[str, Any], allowed: AllowedVersions, own: Mapping[int, int] = NOTHING,
    lacking: Mapping[int, int] = NOTHING,
) -> bool:  # fmt: skip
    """Cut the response down in place to the versions allowed of those the broker has; return True if anything changed.

    `own` are APIs that kproxy answers itself, with their newest versions: they are listed whatever the broker has.
    `lacking` are APIs that the proxy answers although the broker does not list them.

    Minimum versions stay as the broker gives them unless a rule asks for more: brokers from 4.0 on advertise Produce 0
    on purpose (KAFKA-18659). Features that need removed versions are lowered.
    """
    listed = body["api_keys"] or []  # no broker sends null, but its bytes would be good
    kept = []
    own_versions = own if own and not body["error_code"] else NOTHING
    if lacking and not body["error_code"]:
        by_broker = {one["api_key"] for one in listed}
        own_versions = {**own_versions, **{key: newest for key, newest in lacking.items() if key not in by_broker}}
    mine = {key: {"api_key": key, "min_version": 0, "max_version": newest} for key, newest in own_versions.items()}
    for entry in yielding(listed):
        if entry["api_key"] in own_versions:
            kept.append(entry | mine.pop(entry["api_key"], {}))
            continue
        span = allowed(entry["api_key"])
        if span is None or (span[0] <= entry["min_version"] and entry["max_version"] <= span[1]):
            kept.append(entry)
            continue
        low, high = max(entry["min_version"], span[0]), min(entry["max_version"], span[1])
        if low <= high:
            kept.append(entry | {"min_version": low, "max_version": high})
    kept += mine.values()
    if kept == listed:
        return False
    body["api_keys"] = kept
    lower_features(body, _newest(listed), _newest(kept))
    return True


def _newest(entries: list[dict[str, Any]]) -> dict[int, int]:
    return {entry["api_key"]: entry["max_version"] for entry in entries}


def unsupported(correlation: int, newest: int | None = None) -> bytes:
    """Return the response to an ApiVersions request of a version that does not exist, as a broker gives it (KIP-511).

    Error 35 in the v0 layout, with the one entry that sets the version of the client's next try: 0 to `newest`, by
    default the newest that kproxy reads.
    """
    newest = schema.load(API_VERSIONS).versions.last if newest is None else newest
    body = UNSUPPORTED_VERSION.to_bytes(2, "big") + (1).to_bytes(4, "big")
    body += API_VERSIONS.to_bytes(2, "big") + (0).to_bytes(2, "big") + newest.to_bytes(2, "big")
    return framed(correlation.to_bytes(4, "big", signed=True) + body)


class CutAnswer(NamedTuple):
    """A broker's answer after the cut. `body`: the bytes after the correlation id; None: nothing was removed; empty: it
    cannot be read. `telemetry`: those of the APIs for clients' metrics that the broker lists."""

    body: bytes | None
    telemetry: frozenset[int]


class VersionsAnswers:
    """Cutter of ApiVersions responses. A broker sends the same to every connection, so the result is cached."""

    def __init__(
        self, allowed: AllowedVersions, own: Mapping[int, int] = NOTHING, lacking: Mapping[int, int] = NOTHING
    ) -> None:
        self.allowed, self.own, self.lacking = allowed, own, lacking
        self.cache: BoundedMap[tuple[int, bytes], CutAnswer] = BoundedMap(MOST_ANSWERS)

    def cap(self, version: int, frame: bytes, counters: Counters) -> list[bytes] | None:
        """Return the frame with the `allowed` part of the response, as size and frame; None if unchanged.

        An unreadable answer is counted: librdkafka's mock cluster sends one to versions from 3 on that does not follow
        any version's layout. Clients would decode wrong values from it, such as a wait of 20 minutes. They receive
        UNSUPPORTED_VERSION, and ask again in an older version. Bytes after an answer that lists something are ignored,
        as clients do.
        """
        body = self.cut_once(version, frame).body
        if body is None:
            return None
        if not body:
            counters.count("api_versions_unreadable")
            if version < FLEXIBLE:
                return None
            told = unsupported(int.from_bytes(frame[:CORRELATION], "big", signed=True), FLEXIBLE - 1)
            return [told[:4], told[4:]]
        counters.rewritten["api_versions"] += 1
        return [(CORRELATION + len(body)).to_bytes(4, "big"), frame[:CORRELATION], body]

    def telemetry(self, version: int, frame: bytes) -> frozenset[int]:
        """Return those of the APIs for clients' metrics that the broker itself lists."""
        return self.cut_once(version, frame).telemetry

    def cut_once(self, version: int, frame: bytes) -> CutAnswer:
        """Return the cached result for an equal answer, or cut it."""
        cache_key = version, frame[CORRELATION:]
        if cache_key not in self.cache:
            self.cache[cache_key] = self.cut(version, frame)
        return self.cache[cache_key]

    def cut(self, version: int, frame: bytes) -> CutAnswer:
        try:
            message = decode_response(frame, API_VERSIONS, version, trailing=True)
        except DecodeError:
            return CutAnswer(b"", frozenset())
        if message.trailing and not message.body["api_keys"]:  # which the mock's seem to have
            return CutAnswer(b"", frozenset())
        telemetry = TELEMETRY.intersection(one["api_key"] for one in message.body["api_keys"] or ())
        changed = cap(message.body, self.allowed, self.own, self.lacking)
        return CutAnswer(encode(message)[CORRELATION:] if changed else None, telemetry)


# ---- features

NEEDED: Final[Mapping[tuple[str, int], Mapping[int, int]]] = {
    ("transaction.version", 2): {0: 12, 26: 5, 28: 5},
    ("group.version", 1): {68: 0},
    ("share.version", 1): {76: 0, 78: 0, 79: 0},
    ("streams.version", 1): {88: 0},
}
"""(feature, level) → API key → the version that the level needs of it."""


def lower_features(body: dict[str, Any], before: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Lower, in place, the levels of features in an ApiVersions response to those that its versions still allow.

    `before` and `after` the cut: API key → newest version. Versions that the broker itself lacks do not count: only a
    version that the cut has removed does. Level 0 means disabled, and brokers do not list disabled features.
    """
    for (name, level), needs in NEEDED.items():
        if any(before.get(key, -1) >= version > after.get(key, -1) for key, version in needs.items()):
            _lower(body, "finalized_features", "max_version_level", "min_version_level", name, level - 1)
            _lower(body, "supported_features", "max_version", "min_version", name, level - 1)


def _lower(body: dict[str, Any], field: str, most: str, least: str, name: str, level: int) -> None:
    listed = body.get(field)
    if not listed:
        return
    kept = []
    for feature in listed:
        if feature["name"] == name and feature[most] > level:
            feature = feature | {most: level, least: min(feature[least], level)}
        if feature["name"] != name or feature[most] > 0:
            kept.append(feature)
    body[field] = kept
