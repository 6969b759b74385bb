"""Client library, as the client names it in ApiVersions from version 3 on (KIP-511).

Identity of a connection's client, learned from its messages and the broker's: principal and client library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request, decode_response
from kproxy.protocol.table.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.session.counters import Counters

from .principal import LOST, MALFORMED, LoginOutcome, PrincipalWatch

if TYPE_CHECKING:
    from kproxy.session.plan import Step

LONGEST: Final = 250
"""Characters of a name or a version; Kafka has no limit, and these become text in logs."""
_LEGAL = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Names that brokers accept; all others they answer with INVALID_REQUEST."""


@dataclass(frozen=True, slots=True)
class Software:
    """Name and version of a client's library. Selectors compare its `str`: `apache-kafka-java/3.9.1`."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


def software(body: Mapping[str, Any]) -> Software | None:
    """Return the library that an ApiVersions request names; None for versions without it, and for names that no broker
    accepts."""
    name, version = body.get("client_software_name"), body.get("client_software_version")
    if not isinstance(name, str) or not isinstance(version, str) or max(len(name), len(version)) > LONGEST:
        return None
    return Software(name, version) if _LEGAL.fullmatch(name) and _LEGAL.fullmatch(version) else None


def is_valid(body: Mapping[str, Any]) -> bool:
    """Return True if brokers accept an ApiVersions request's name of the library, or if it has none."""
    names = body.get("client_software_name"), body.get("client_software_version")
    return all(one is None or _LEGAL.fullmatch(one) is not None for one in names)


ASKED = frozenset((SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE))
"""APIs with requests that are inspected."""
ANSWERED = frozenset((SASL_HANDSHAKE, SASL_AUTHENTICATE))
"""APIs with responses that are also inspected."""
NAMED_SINCE = 3
"""First version of ApiVersions with the name of the client library (KIP-511)."""
# Bytes of an ApiVersions request that is kept for as long as its connection, to be decoded when a rule or an event
# needs the library; clients send less than 100. Longer ones are decoded at once.
MAX_KEPT_REQUEST = 1024
ID_LENGTH = slice(8, 10)  # the length of the client id in a request's header


class Identity:
    """Identity of one connection's client. It receives complete frames of the APIs in `ASKED` and `ANSWERED` and bare
    tokens, in order, and decodes as little as it can.

    `on_change` is called before each change, so that cached results that depend on the identity can be dropped.
    """

    __slots__ = ("_client_id", "_library", "_watch", "certificate", "counters", "on_change")

    def __init__(self, certificate: str | None, counters: Counters) -> None:
        self.certificate, self.counters = certificate, counters
        self._watch: PrincipalWatch | None = None
        self._library: bytes | Software | None = None
        self._client_id: bytes | None = None
        self.on_change: Callable[[], None] | None = None

    @property
    def principal(self) -> str | None:
        """Return the principal that the broker has authenticated, or the subject of the client's certificate, if
        any."""
        if self._watch is None:
            return self.certificate
        return None if self._watch.principal is None else self._watch.principal.name

    @property
    def awaits(self) -> bool:
        """Return True while the client's authentication is pending at the broker."""
        return self._watch is not None and bool(self._watch.pending)

    @property
    def lost(self) -> bool:
        """Return True if messages of SASL could not be followed, so that the client's principal is not known. A broker
        may have read a name in a token that is malformed to kproxy."""
        return self._watch is not None and self._watch.absent in (LOST, MALFORMED)

    @property
    def is_anyone(self) -> bool:
        """Return True if the client has logged in with a delegation token: it may be any principal of the broker."""
        return self._watch is not None and self._watch.is_anyone

    @property
    def outcome(self) -> LoginOutcome | None:
        """Return how the last authentication ended; None: no authentication has ended yet."""
        return None if self._watch is None else self._watch.outcome

    @property
    def software(self) -> str | None:
        """Return `name/version` of the client's library; None: the client has not sent it."""
        if isinstance(self._library, bytes):
            self._library = library_of(self._library)
        return None if self._library is None else str(self._library)

    @property
    def client_id(self) -> str | None:
        """Return the client id of the last ApiVersions request, cut to LONGEST bytes; None before one, and for null."""
        return None if self._client_id is None else self._client_id.decode("utf-8", "replace")

    @property
    def names_library(self) -> bool:
        """Return True if the client has named its library; a faster test than `software`."""
        return type(self._library) is Software or self.software is not None

    @property
    def watch(self) -> PrincipalWatch:
        """Return the PrincipalWatch, made with the first message of SASL. The caller is about to pass it a message, so
        `on_change` is called first."""
        self.notify()
        if self._watch is None:
            self._watch = PrincipalWatch(self.certificate, self.counters)
        return self._watch

    def notify(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def request(self, step: Step, frame: bytes) -> None:
        """Process a request of the client, given without its size."""
        if step.key == API_VERSIONS:
            length = int.from_bytes(frame[ID_LENGTH], "big", signed=True)
            start = ID_LENGTH.stop
            self._client_id = None if length < 0 else bytes(frame[start : start + min(length, LONGEST)])
            if step.version >= NAMED_SINCE:  # a client that falls back to 0 has sent its library before
                self.notify()
                self._library = frame if len(frame) <= MAX_KEPT_REQUEST else library_of(frame)
            return
        try:
            self.watch.request(step.key, step.version, decode_request(frame).body)
        except DecodeError:
            self.watch.give_up()

    def response(self, step: Step, frame: bytes) -> None:
        """Process the broker's answer to one of these requests, given without its size."""
        try:
            self.watch.response(step.key, step.version, decode_response(frame, step.key, step.version).body)
        except DecodeError:
            self.watch.give_up()


def library_of(frame: bytes) -> Software | None:
    """Return the library that an ApiVersions request names, None if it names none or is malformed."""
    try:
        return software(decode_request(frame).body)
    except DecodeError:
        return None
