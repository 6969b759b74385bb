"""Clients' own metrics, taken in the broker's place (KIP-714): GetTelemetrySubscriptions and PushTelemetry.

Strategy. A broker without a receiver plugin does not list these APIs, and then clients push nothing. If kproxy lists
them, clients ask on one of their connections, and push at the interval of the subscription. Both requests are answered
here, at once and in order. A payload goes to an inbox, which decodes it in the background. Decode errors are known only
then, so the next push receives the error.

The payloads of a connection are limited: one that is not decoded yet, and two in half an interval (the second if it has
asked for its subscription in between). The inbox bounds all of them together.

    GetTelemetrySubscriptions   sooner than half an interval after the last one ─▶ THROTTLING_QUOTA_EXCEEDED
                                unless a push got an error that requires asking,
                                or the subscription has changed
    PushTelemetry               no id, or after a terminating push              ─▶ INVALID_REQUEST
                                too soon, or no room                            ─▶ THROTTLING_QUOTA_EXCEEDED
                                of another subscription                         ─▶ UNKNOWN_SUBSCRIPTION_ID
                                in another codec than offered                   ─▶ UNSUPPORTED_COMPRESSION_TYPE
                                longer than offered                             ─▶ TELEMETRY_TOO_LARGE
                                the previous one was malformed                  ─▶ INVALID_RECORD
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
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
"""Bytes of a request whose payload may be at its limit: a client id and unknown tags also need some."""
RESERVED: Final = (UUID(int=0), UUID(int=1))
"""Reserved ids, never assigned to a client (Uuid.RESERVED)."""
ASK_AGAIN: Final = ("UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE")
"""Errors that make clients ask for their subscription at once."""
WORDS: Final = {
    "THROTTLING_QUOTA_EXCEEDED": "telemetry_throttled",
    "UNKNOWN_SUBSCRIPTION_ID": "telemetry_unknown_subscriptions",
    "TELEMETRY_TOO_LARGE": "telemetry_too_large",
}
"""Names of the counters by error; all others are counted as `telemetry_invalid`."""


@dataclass(eq=False, slots=True)
class TelemetryPush:
    """Payload that a client has pushed, with who it is. `names`: the name rules of its connection. `owner`: the driver.

    The decoder sets `done` and `unreadable`.
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


@dataclass(eq=False)
class TelemetrySettings:
    """Settings of a listener for its clients' metrics. `interval`: seconds between two pushes. `metrics`: prefixes of
    the names that are asked for, ("",) for all, none for nothing. `new_id` makes the id of a client that has none.

    They may change while clients are connected, which receive the change when they push or ask next.
    """

    serve: ServeTelemetry
    interval: float
    metrics: Sequence[str]
    inbox: Callable[[TelemetryPush], bool]  # takes a payload for decoding; False: it is full
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
    """Handler of one connection's telemetry (see the module). `broker_serves`: its broker lists both APIs."""

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

    def __init__(self, session: SessionState, terms: TelemetrySettings) -> None:
        self.session, self.terms = session, terms
        self.broker_serves = False
        self.asked_at: float | None = None  # for the last subscription; None: may ask at once
        self.pushed_at: float | None = None
        self.waived_at: float | None = None  # when a push was taken before its time
        self.told: int | None = None  # id of the subscription that it received last; None: it has to ask
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
        """Return the response to a whole request, with its size; None: it is forwarded to the broker. Raises
        DecodeError."""
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
        """Return the subscription of the client, unless it has asked a moment ago."""
        half, asked, others = self.terms.interval / 2, self.asked_at, self.told != self.terms.subscription_id
        if asked is not None and frame.now - asked < half and not others:
            error = "THROTTLING_QUOTA_EXCEEDED"
            self.count(error)
            return answer_to(step.key, step.version, frame.correlation, error_code=code_of(error))
        if others:  # its earlier pushes were of another subscription
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
        """Take a payload; return the name of the error in the response, empty: no error."""
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
        if not payload or not self.terms.metrics:  # not needed any more
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
        """Put a payload into the inbox; False: the previous one is not decoded yet, or the inbox is full."""
        if self.last is not None and not self.last.done:
            return False
        session, identity = self.session, self.session.identity
        push = TelemetryPush(
            payload, body["compression_type"], body["client_instance_id"], bool(body["terminating"]),
            frame.client_id or "", identity.principal or "", identity.software or "", session.facts.listener,
            session.facts.client_address, session.plan.bound.names, session.owner,
        )  # fmt: skip
        if not self.terms.inbox(push):
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
