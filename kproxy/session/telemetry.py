"""Clients' own metrics, taken in the broker's place (KIP-714): GetTelemetrySubscriptions and PushTelemetry.

Strategy. A broker without a receiver plugin does not list these APIs, and then clients say nothing. Where kproxy lists
them, clients ask on a connection that they have anyway, and push at the interval that they are told. Both requests are
answered here, at once and in their turn; a payload goes to an inbox, which has it read beside the traffic. That it
cannot be read is known only then, so it is the next push that hears of it.

What a client may push is bounded for its connection: one payload that is not read yet, and two in half an interval (the
second if it has asked for its subscription in between). The inbox bounds all of them together.

    GetTelemetrySubscriptions   sooner than half an interval after the last one ─▶ THROTTLING_QUOTA_EXCEEDED
                                unless an error of a push has told the client to ask,
                                or something else is asked for than before
    PushTelemetry               no id, or behind the last one                   ─▶ INVALID_REQUEST
                                too soon, or no room                            ─▶ THROTTLING_QUOTA_EXCEEDED
                                of a subscription that is another one           ─▶ UNKNOWN_SUBSCRIPTION_ID
                                in a codec that is not offered                  ─▶ UNSUPPORTED_COMPRESSION_TYPE
                                longer than offered                             ─▶ TELEMETRY_TOO_LARGE
                                the one before could not be read                ─▶ INVALID_RECORD
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol
from uuid import UUID, uuid4

from kproxy.base.errors import DecodeError
from kproxy.protocol import decode_request
from kproxy.protocol.table.api_keys import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, TELEMETRY
from kproxy.protocol.table.errors import by_name
from kproxy.rules.names.composed import NameMaps
from kproxy.session.sasl.login import answer_to

from .frame import RequestView
from .plan import Step
from .session_state import SessionState

ServeTelemetry = Literal["auto", "always", "never"]
"""When kproxy answers: where the broker does not, in any case, or in no case."""

ZSTD, LZ4, GZIP, SNAPPY = 4, 3, 1, 2
CODECS: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""Codecs that are offered; clients take the first that they have."""
LONGEST_PAYLOAD: Final = 1 << 20
"""Bytes of a payload, packed as it comes: Kafka's own telemetry.max.bytes."""
LONGEST_FRAME: Final = LONGEST_PAYLOAD + (1 << 17)
"""Bytes of a request whose payload may not be too long: a client id and unknown tags have some of them."""
RESERVED: Final = (UUID(int=0), UUID(int=1))
"""Ids that are nobody's (Uuid.RESERVED)."""
ASK_AGAIN: Final = ("UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE")
"""Errors after which clients ask for their subscription at once."""
WORDS: Final = {
    "THROTTLING_QUOTA_EXCEEDED": "telemetry_throttled",
    "UNKNOWN_SUBSCRIPTION_ID": "telemetry_unknown_subscriptions",
    "TELEMETRY_TOO_LARGE": "telemetry_too_large",
}
"""Words of the counters of errors that are told; all others are counted as `telemetry_invalid`."""


@dataclass(eq=False, slots=True)
class TelemetryPush:
    """Payload that a client has pushed, with who it is. `names`: the name rules of its connection. `owner`: the driver.

    `done` and `unreadable` are set by whoever reads it.
    """

    payload: bytes
    codec: int
    instance: UUID
    terminating: bool
    client_id: str
    principal: str
    software: str
    listener: str
    address: str
    names: NameMaps | None
    owner: Any
    done: bool = False
    unreadable: bool = False


class TelemetryInbox(Protocol):
    """Inbox of the payloads that clients have pushed."""

    def put(self, push: TelemetryPush) -> bool:
        """Take a payload that is to be read; False: there is no room for it now."""


@dataclass(eq=False)
class TelemetryTerms:
    """Terms on which clients of a listener tell their metrics. `interval`: seconds between two pushes. `metrics`:
    prefixes of the names that are asked for, ("",) for all, none for nothing. `new_id` makes the id of a client that
    has none.

    They may change while clients are connected, who are told so when they push or ask next.
    """

    serve: ServeTelemetry
    interval: float
    metrics: Sequence[str]
    inbox: TelemetryInbox
    new_id: Callable[[], UUID] = uuid4

    def use(self, interval: float, metrics: Sequence[str]) -> None:
        self.interval, self.metrics = interval, metrics

    @property
    def interval_ms(self) -> int:
        return max(1, int(self.interval * 1000))

    @property
    def subscription_id(self) -> int:
        """Return the number of these settings, the same in all processes and after a restart."""
        from crc32c import crc32c  # 8 ms, and few listeners have telemetry

        settings = "\0".join((str(self.interval_ms), *self.metrics)).encode()
        return int.from_bytes(crc32c(settings).to_bytes(4, "big"), "big", signed=True)


class TelemetryGateway:
    """Answerer of one connection's telemetry (see the module). `broker_serves`: its broker lists both APIs."""

    __slots__ = (
        "asked_at",
        "broker_serves",
        "fresh",
        "last",
        "pushed_at",
        "session",
        "terminated",
        "terms",
        "told",
        "waived_at",
    )

    def __init__(self, session: SessionState, terms: TelemetryTerms) -> None:
        self.session, self.terms = session, terms
        self.broker_serves = False
        self.asked_at: float | None = None  # for the last subscription; None: may ask at once
        self.pushed_at: float | None = None
        self.waived_at: float | None = None  # when a push was taken before its time
        self.told: int | None = None  # id of the subscription that it was told last; None: it is to ask
        self.fresh = False  # it has asked for its subscription since the last push
        self.terminated = False
        self.last: TelemetryPush | None = None

    @property
    def answers(self) -> bool:
        """Return True if kproxy answers on this connection, where topics may have other names than at the broker."""
        mode = self.session.plan.bound.telemetry
        return mode == "always" or (mode == "auto" and not self.broker_serves)

    def see_versions(self, listed: frozenset[int]) -> None:
        self.broker_serves = listed >= TELEMETRY

    def answer(self, step: Step, frame: RequestView) -> bytes | None:
        """Return the answer to a whole request, with its size; None: it goes to the broker. Raises DecodeError."""
        if not self.answers:
            if step.key == PUSH_TELEMETRY and frame.length <= LONGEST_FRAME:
                self.read_along(frame)
            return None
        if step.key == GET_TELEMETRY_SUBSCRIPTIONS:
            return self.subscription(step, frame)
        error = self.push(frame)
        self.count(error)
        return answer_to(step.key, step.version, frame.correlation, error_code=code_of(error))

    def count(self, error: str) -> None:
        self.session.counters.count(WORDS.get(error, "telemetry_invalid") if error else "telemetry_pushes")

    # ---- GetTelemetrySubscriptions

    def subscription(self, step: Step, frame: RequestView) -> bytes:
        """Return what the client is to push, unless it has asked a moment ago."""
        half, asked, others = self.terms.interval / 2, self.asked_at, self.told != self.terms.subscription_id
        if asked is not None and frame.now - asked < half and not others:
            error = "THROTTLING_QUOTA_EXCEEDED"
            self.count(error)
            return answer_to(step.key, step.version, frame.correlation, error_code=code_of(error))
        if others:  # what it pushed before was for something else
            self.waived_at = None
        self.asked_at, self.fresh, self.told = frame.now, True, self.terms.subscription_id
        self.session.counters.count("telemetry_subscriptions")
        instance: UUID = decode_request(frame.content()).body["client_instance_id"]
        return answer_to(
            step.key, step.version, frame.correlation,
            client_instance_id=self.terms.new_id() if instance in RESERVED else instance,
            subscription_id=self.terms.subscription_id,
            accepted_compression_types=list(CODECS),
            push_interval_ms=self.terms.interval_ms,
            telemetry_max_bytes=LONGEST_PAYLOAD,
            delta_temporality=True,
            requested_metrics=list(self.terms.metrics),
        )  # fmt: skip

    # ---- PushTelemetry

    def push(self, frame: RequestView) -> str:
        """Take a payload; return the name of the error that the client is told, empty for none."""
        if frame.length > LONGEST_FRAME:
            return "TELEMETRY_TOO_LARGE" if self.is_due(frame.now) else "THROTTLING_QUOTA_EXCEEDED"
        body = decode_request(frame.content()).body
        if body["client_instance_id"] in RESERVED or self.terminated:
            return "INVALID_REQUEST"
        self.terminated = bool(body["terminating"])
        if self.told not in (None, self.terms.subscription_id):  # by its old interval it may come too soon
            self.told = None
            if body["subscription_id"] != self.terms.subscription_id:
                self.asked_at = None
                return "UNKNOWN_SUBSCRIPTION_ID"
        if not self.is_due(frame.now) and not self.terminated:
            return "THROTTLING_QUOTA_EXCEEDED"
        error = self.refusal(body)
        if error in ASK_AGAIN:
            self.asked_at = None
        if error:
            return error
        payload = bytes(body["metrics"] or b"")
        if not payload or not self.terms.metrics:  # nobody wants it any more
            return ""
        return "" if self.hand_over(frame, body, payload) else "THROTTLING_QUOTA_EXCEEDED"

    def is_due(self, now: float) -> bool:
        """Return True if a push may come now, and take note of it."""
        half, pushed = self.terms.interval / 2, self.pushed_at
        due = pushed is None or now - pushed >= half
        if not due and self.fresh and (self.waived_at is None or now - self.waived_at >= half):
            self.waived_at, due = now, True
        if due:
            self.pushed_at, self.fresh = now, False
        return due

    def refusal(self, body: dict[str, Any]) -> str:
        """Return the error of a push that comes in time; empty for none."""
        if body["subscription_id"] != self.terms.subscription_id:
            return "UNKNOWN_SUBSCRIPTION_ID"
        if body["compression_type"] not in (0, *CODECS):
            return "UNSUPPORTED_COMPRESSION_TYPE"
        if len(body["metrics"] or b"") > LONGEST_PAYLOAD:
            return "TELEMETRY_TOO_LARGE"
        return "INVALID_RECORD" if self.last is not None and self.last.unreadable else ""

    def hand_over(self, frame: RequestView, body: dict[str, Any], payload: bytes) -> bool:
        """Put a payload into the inbox; False: the one before has not been read yet, or there is no room."""
        if self.last is not None and not self.last.done:
            return False
        session, identity = self.session, self.session.identity
        push = TelemetryPush(
            payload, body["compression_type"], body["client_instance_id"], bool(body["terminating"]),
            frame.client_id or "", identity.principal or "", identity.software or "", session.facts.listener,
            session.facts.client_address, session.plan.bound.names, session.owner,
        )  # fmt: skip
        if not self.terms.inbox.put(push):
            return False
        self.last = push
        return True

    def read_along(self, frame: RequestView) -> None:
        """Read the payload of a push that the broker is to answer, if there is room and it can be read."""
        try:
            body = decode_request(frame.content()).body
        except DecodeError:
            return
        payload = bytes(body["metrics"] or b"")
        if payload and len(payload) <= LONGEST_PAYLOAD and body["compression_type"] in (0, *CODECS):
            self.hand_over(frame, body, payload)


def code_of(error: str) -> int:
    return by_name(error).code if error else 0
