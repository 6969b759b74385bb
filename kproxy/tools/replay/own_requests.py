"""Requests that the replay sends of its own: for versions, topics and coordinators, and to authenticate.

Recorded credentials are withheld, so the replay needs some: SASL/PLAIN in Kafka's frames (KIP-152), that is
SaslHandshake 1, then SaslAuthenticate 1.

    steps = plain("user", "password")
    frame = next(steps)                 # send it with its length, then hand in the response, until it stops
    frame = steps.send(answer)
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from uuid import UUID

from kproxy.base.errors import InputError
from kproxy.protocol import Message, decode_response, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import API_VERSIONS, FIND_COORDINATOR, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE

from .target import GROUP, CoordinatorKey, TargetCluster

CLIENT_ID = "kproxy-replay"
METADATA_VERSION, COORDINATOR_VERSION = 12, 3
"""The newest that are asked for: topic ids are in Metadata 10, and FindCoordinator 4 asks for many at once."""
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

    It creates no topic where that can be said (v4+).
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
        return ask_versions()  # there are no transactions where FindCoordinator cannot tell them from groups
    return own(FIND_COORDINATOR, version, body)


class CredentialsRefused(InputError):
    """Error for credentials that the target does not take."""


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
