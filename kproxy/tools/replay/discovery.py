"""Discovery of the target's versions, leaders and coordinators, and the requests that the replay sends for itself.

A topic or a coordinator's internal topic that was just created is not available at once. Its lookup is repeated until
it succeeds or the player's patience ends. Other missing topics are not waited for.

Recorded credentials are redacted, so the replay authenticates with its own: SASL/PLAIN in Kafka's frames (KIP-152),
with SaslHandshake 1 and SaslAuthenticate 1.

    steps = plain("user", "password")
    frame = next(steps)                 # send it with its length, then pass in the response, until it stops
    frame = steps.send(answer)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from uuid import UUID

from kproxy.base.errors import DecodeError, InputError
from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, FIND_COORDINATOR, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.tools.replay.target import GROUP, CoordinatorKey, TargetCluster

from .target import SCOUT, ReplayLinks

CLIENT_ID = "kproxy-replay"
METADATA_VERSION, COORDINATOR_VERSION = 12, 3
"""The newest versions in use: topic ids are in Metadata 10, and FindCoordinator 4 asks for many at once."""
SASL_VERSION = 1


def own(key: int, version: int, body: dict[str, object]) -> Message:
    """Return a request with this body; its correlation id is set when it is sent."""
    header = {"request_api_key": key, "request_api_version": version, "correlation_id": 0, "client_id": CLIENT_ID}
    return Message(schema.load(key), version, header, body)


def ask_versions() -> Message:
    """Return a request for the target's versions, in version 0, which every broker has."""
    return own(API_VERSIONS, 0, {})


def ask_topics(target: TargetCluster, topics: Iterable[str]) -> Message:
    """Return a request for the ids of topics and the leaders of their partitions.

    It creates no topic if the version has a field for that (v4+).
    """
    version = target.newest(schema.load(METADATA), METADATA_VERSION)
    body: dict[str, object] = {"topics": [{"name": name, "topic_id": UUID(int=0)} for name in sorted(topics)]}
    if version < 10:
        body["topics"] = [{"name": name} for name in sorted(topics)]
    if version >= 4:
        body["allow_auto_topic_creation"] = False
    return own(METADATA, version, body)


def ask_coordinator(target: TargetCluster, wanted: CoordinatorKey) -> Message:
    """Return a request for the coordinator of a group or transactional id."""
    version = target.newest(schema.load(FIND_COORDINATOR), COORDINATOR_VERSION)
    kind, key = wanted
    body: dict[str, object] = {"key": key}
    if version >= 1:
        body["key_type"] = kind
    elif kind != GROUP:
        return ask_versions()  # no transactions if FindCoordinator cannot distinguish them from groups
    return own(FIND_COORDINATOR, version, body)


class CredentialsRefused(InputError):
    """Error for credentials that the target rejects."""


def plain(user: str, password: str) -> Generator[bytes, bytes, None]:
    """Yield frames without their lengths, and take the responses.

    Raises CredentialsRefused, and DecodeError for responses that cannot be read.
    """
    answer = yield encode(own(SASL_HANDSHAKE, SASL_VERSION, {"mechanism": "PLAIN"}))
    shook = read(answer, SASL_HANDSHAKE)
    if shook.body["error_code"]:
        offered = ", ".join(one for one in shook.body["mechanisms"] or () if one)
        raise CredentialsRefused(f"the target offers {offered or 'no mechanism'}, not PLAIN")
    token = b"\0" + user.encode() + b"\0" + password.encode()
    answer = yield encode(own(SASL_AUTHENTICATE, SASL_VERSION, {"auth_bytes": token}))
    authenticated = read(answer, SASL_AUTHENTICATE)
    if authenticated.body["error_code"]:
        raise CredentialsRefused(
            f"the target refuses user {user}: {authenticated.body['error_message'] or authenticated.body['error_code']}"
        )


def read(frame: bytes, key: int) -> Message:
    return decode_response(frame, key, SASL_VERSION)


AGAIN_AFTER = 0.1
"""Seconds: Java clients' retry.backoff.ms."""


class TargetDiscovery:
    """Discovery of one target. `ready`: the versions are known. `failed`: why they cannot be."""

    def __init__(self, target: TargetCluster, links: ReplayLinks, patience: float) -> None:
        self.target, self.links, self.patience = target, links, patience
        self.ready, self.failed = False, ""
        self.asking: set[str | CoordinatorKey] = set()
        self.since: dict[str | CoordinatorKey, float] = {}
        self.again: list[tuple[float, str | CoordinatorKey]] = []

    def begin(self) -> None:
        """Send the request for the versions, unless the target is the recorded cluster."""
        if self.target.recorded:
            self.ready = True
            return
        self.ask(ask_versions(), self.have_versions)

    def want(self, missing: Iterable[str | CoordinatorKey], now: float) -> None:
        """Send requests for the subjects without a pending request."""
        new = [item for item in missing if item not in self.asking]
        for item in new:
            self.asking.add(item)
            self.since.setdefault(item, now)
        if topics := [item for item in new if isinstance(item, str)]:
            self.ask(ask_topics(self.target, topics), partial(self.have, topics))
        for item in new:
            if not isinstance(item, str):
                self.ask(ask_coordinator(self.target, item), partial(self.have, [item]))

    def tick(self, now: float) -> float | None:
        """Send requests again that are due; returns when the next is, None if none waits."""
        due = [one for when, one in self.again if when <= now]
        self.again = [(when, one) for when, one in self.again if when > now]
        self.asking.difference_update(due)
        self.want(due, now)
        return min((when for when, _ in self.again), default=None)

    # ---- inside

    def ask(self, request: Message, then: Callable[[float], None]) -> None:
        link = self.links.to(SCOUT, self.target.bootstrap)

        def answered(frame: bytes | None, now: float) -> None:
            if frame is not None:
                try:
                    response = decode_response(frame, request.api.key, request.version, trailing=True)
                    self.target.learn(request, response)
                except DecodeError as error:
                    self.failed = self.failed or f"the target's answer cannot be read: {error}"
            elif not self.ready:
                reason = self.links.unreachable.get(self.target.bootstrap, "it closed the connection")
                self.failed = f"the target {address_text(self.target.bootstrap)} does not answer: {reason}"
            then(now)

        self.links.send(link, encode(request), answered)

    def have_versions(self, now: float) -> None:
        self.ready = not self.failed

    def have(self, wanted: Iterable[str | CoordinatorKey], now: float) -> None:
        for item in wanted:
            self.asking.discard(item)
            if item in self.target.looked_up:
                self.since.pop(item, None)
            elif self.may_appear_later(item) and now - self.since[item] < self.patience:
                self.asking.add(item)
                self.again.append((now + AGAIN_AFTER, item))
            else:
                self.target.give_up([item] if isinstance(item, str) else ())
                self.target.looked_up.add(item)
                self.since.pop(item, None)

    def may_appear_later(self, item: str | CoordinatorKey) -> bool:
        """Return True if a topic or coordinator may be there later."""
        return not isinstance(item, str) or item in self.target.created


def address_text(address: tuple[str, int]) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
