"""Clients' own metrics taken in the broker's place: what is listed, what is answered, and each error."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproxy.protocol import decode_response
from kproxy.protocol.sasl.mechanisms import Checker
from kproxy.protocol.sasl.scram import make_line, read_users
from kproxy.protocol.table.errors import error_name
from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.sasl_server import SaslServer, SaslSettings
from kproxy.session.telemetry import (
    CODECS,
    LONGEST_FRAME,
    LONGEST_PAYLOAD,
    TelemetryGateway,
    TelemetryPush,
    TelemetrySettings,
)
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

GET, PUSH, VERSIONS, HEARTBEAT, HANDSHAKE, AUTHENTICATE = 71, 72, 18, 12, 17, 36
USERS = read_users(make_line("alice", "SCRAM-SHA-256", "secret", b"0123456789abcdef", 4096))
NEW, MINE = UUID(int=7), UUID(int=8)
FACTS = Facts("outside", "main", "10.0.0.1")


class Inbox:
    """An inbox that keeps what it gets while it has room."""

    def __init__(self) -> None:
        self.pushes: list[TelemetryPush] = []
        self.full = False

    def put(self, push: TelemetryPush) -> bool:
        if not self.full:
            self.pushes.append(push)
        return not self.full

    def read(self, *, unreadable: bool = False) -> None:
        """All that has come is read."""
        for push in self.pushes:
            push.done, push.unreadable = True, unreadable


class Client:
    """A client on a connection whose broker lists these APIs, with the metrics taken on these terms."""

    def __init__(self, mode: str = "auto", broker: tuple[int, ...] = (), rules: str = "", interval: float = 60) -> None:
        self.inbox = Inbox()
        held = parse_rules(rules).bind(FACTS) if rules else None
        bound = (
            ConnectionSettings(telemetry=mode)
            if held is None
            else ConnectionSettings.of(held, advertise=True, telemetry=mode)
        )
        plan = Plan(bound, () if held is None else held.live)
        self.talk = Dialogue(rules, plan=plan, facts=FACTS)
        terms = TelemetrySettings(mode, interval, ("a.", "b."), self.inbox.put, lambda: NEW)
        self.talk.session.telemetry = TelemetryGateway(self.talk.session, terms)
        self.subscription = terms.subscription_id
        self.correlation = 0
        listed = [{"api_key": key, "min_version": 0, "max_version": 0} for key in (VERSIONS, HEARTBEAT, *broker)]
        hello = {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}
        self.talk.client(request(VERSIONS, 3, 0, **hello)).broker(response(VERSIONS, 3, 0, api_keys=listed))
        body = decode_response(frames(self.talk.to_client)[0], VERSIONS, 3).body
        self.listed = {entry["api_key"] for entry in body["api_keys"]}

    def ask(self, key: int, **values: Any) -> Any:
        """The body of the answer; None if none has come."""
        before = len(self.talk.to_client)
        self.correlation += 1
        self.talk.client(request(key, 0, self.correlation, **values))
        found = frames(self.talk.to_client[before:])
        return decode_response(found[0], key, 0).body if found else None

    def get(self, instance: UUID = MINE) -> Any:
        return self.ask(GET, client_instance_id=instance)

    def push(self, **values: Any) -> str:
        """The name of the error of a push, which is a good one but for these values."""
        values = {"client_instance_id": MINE, "subscription_id": self.subscription, "metrics": b"?"} | values
        return error_name(self.ask(PUSH, **values)["error_code"])

    def counted(self, word: str) -> int:
        return self.talk.shared.counters.events.get(word, 0)


# ---- who answers


@pytest.mark.parametrize(
    ("mode", "broker", "listed", "by_kproxy"),
    [
        ("auto", (), True, True),
        ("auto", (GET, PUSH), True, False),
        ("auto", (GET,), True, True),
        ("always", (), True, True),
        ("always", (GET, PUSH), True, True),
        ("never", (), False, False),
        ("never", (GET, PUSH), True, False),
    ],
)
def test_who_answers(mode: str, broker: tuple[int, ...], listed: bool, by_kproxy: bool) -> None:
    """Where the broker does not, always, or never."""
    client = Client(mode, broker)
    sent = len(client.talk.to_broker)

    assert ({GET, PUSH} <= client.listed) is listed
    assert (client.get() is not None) is by_kproxy
    assert (len(client.talk.to_broker) > sent) is not by_kproxy


RENAME = "rules: [{name: r, kind: rename_topic, topics: {orders: prod.orders}}]"
OLD = "rules: [{name: old, kind: limit_versions, kafka: '3.6'}]"
DENY = "rules: [{name: d, kind: deny, match: {api: PushTelemetry}}]"
FAULT = "rules: [{name: bad, kind: error, match: {api: PushTelemetry}, error: TELEMETRY_TOO_LARGE}]"


def test_where_topics_have_other_names_the_broker_is_not_told_the_clients() -> None:
    """Though it would take them."""
    client = Client("auto", (GET, PUSH), RENAME)
    assert client.get()["error_code"] == 0
    assert client.push() == "NONE"
    assert client.inbox.pushes[0].names is not None


def test_a_rule_that_hides_the_apis_hides_kproxys_own() -> None:
    """Kafka 3.6 has neither."""
    client = Client("auto", (), OLD)
    assert not client.listed & {GET, PUSH}
    assert client.get() is None
    assert client.talk.closed is not None


@pytest.mark.parametrize("rules", [DENY, FAULT])
def test_rules_see_both_apis(rules: str) -> None:
    """As all others."""
    client = Client("auto", (), rules)
    client.get()
    assert client.push() == ("TELEMETRY_TOO_LARGE" if rules == FAULT else "CLUSTER_AUTHORIZATION_FAILED")
    assert not client.inbox.pushes


def test_an_answer_waits_for_its_turn() -> None:
    """Behind what the broker owes."""
    client = Client()
    client.talk.client(request(HEARTBEAT, 0, 50, group_id="g"))
    assert client.get() is None

    client.talk.broker(response(HEARTBEAT, 0, 50))
    assert [int.from_bytes(one[:4]) for one in frames(client.talk.to_client)] == [0, 50, 1]


def test_a_client_that_logs_in_to_kproxy_is_asked_as_well() -> None:
    """By the answer to ApiVersions that it gets before it has; its pushes say who it is."""
    inbox = Inbox()
    bound = ConnectionSettings(ends_sasl=True, telemetry="auto")
    talk = Dialogue(plan=Plan(bound), facts=FACTS)
    terms = TelemetrySettings("auto", 60, ("",), inbox.put, lambda: NEW)
    talk.session.telemetry = TelemetryGateway(talk.session, terms)
    checker = Checker(lambda: USERS, b"key", lambda: "server")
    talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN",), checker)))
    talk.session.begin(talk.now)

    talk.client(request(VERSIONS, 3, 1, client_software_name="c", client_software_version="1"))
    body = decode_response(frames(talk.to_client)[0], VERSIONS, 3).body
    assert {GET, PUSH} <= {entry["api_key"] for entry in body["api_keys"]}
    talk.client(request(HANDSHAKE, 1, 2, mechanism="PLAIN"))
    talk.client(request(AUTHENTICATE, 2, 3, auth_bytes=b"\0alice\0secret"))
    values = {"client_instance_id": MINE, "subscription_id": terms.subscription_id, "metrics": b"?"}
    talk.client(request(PUSH, 0, 4, **values))

    assert decode_response(frames(talk.to_client)[-1], PUSH, 0).body["error_code"] == 0
    assert inbox.pushes[0].principal == "alice"


def test_before_it_has_logged_in_nothing_is_taken() -> None:
    """A push closes the connection, as anything else does that may not come."""
    inbox = Inbox()
    talk = Dialogue(plan=Plan(ConnectionSettings(ends_sasl=True, telemetry="auto")), facts=FACTS)
    talk.session.telemetry = TelemetryGateway(talk.session, TelemetrySettings("auto", 60, ("",), inbox.put))
    checker = Checker(lambda: USERS, b"key", lambda: "server")
    talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN",), checker)))
    talk.session.begin(talk.now)
    talk.client(request(PUSH, 0, 4, client_instance_id=MINE, metrics=b"?"))

    assert talk.closed is not None
    assert talk.closed.cause == "unauthenticated"
    assert not inbox.pushes


# ---- subscriptions


def test_a_subscription() -> None:
    """What the client is to push; one without an id gets one, and any other keeps its own."""
    client = Client()
    body = client.get(UUID(int=0))

    assert body == {
        "throttle_time_ms": 0,
        "error_code": 0,
        "client_instance_id": NEW,
        "subscription_id": client.subscription,
        "accepted_compression_types": list(CODECS),
        "push_interval_ms": 60_000,
        "telemetry_max_bytes": LONGEST_PAYLOAD,
        "delta_temporality": True,
        "requested_metrics": ["a.", "b."],
    }
    assert Client().get(MINE)["client_instance_id"] == MINE


def test_a_subscription_has_another_number_when_settings_change() -> None:
    """And the same in each process."""
    terms = TelemetrySettings("auto", 60, ("a",), Inbox().put)
    assert terms.subscription_id == TelemetrySettings("always", 60, ("a",), Inbox().put).subscription_id
    others = [
        TelemetrySettings("auto", 61, ("a",), Inbox().put),
        TelemetrySettings("auto", 60, ("a", "b"), Inbox().put),
    ]
    assert terms.subscription_id not in {one.subscription_id for one in others}


def test_who_asks_too_often_is_throttled() -> None:
    client = Client()
    assert [error_name(client.get()["error_code"]) for _ in range(2)] == ["NONE", "THROTTLING_QUOTA_EXCEEDED"]
    client.talk.later(30)
    assert client.get()["error_code"] == 0


# ---- pushes


def test_a_push_is_answered_at_once_and_goes_to_the_inbox() -> None:
    client = Client()
    client.get()
    assert client.push(compression_type=4, metrics=b"packed") == "NONE"

    (push,) = client.inbox.pushes
    assert (push.payload, push.codec, push.instance, push.terminating) == (b"packed", 4, MINE, False)
    assert (push.client_id, push.software, push.listener) == ("tester", "apache-kafka-java/4.3.1", "outside")
    assert client.counted("telemetry_pushes") == 1


def test_an_empty_push_is_good() -> None:
    client = Client()
    assert client.push(metrics=b"") == "NONE"
    assert not client.inbox.pushes


@pytest.mark.parametrize(
    ("values", "error", "word"),
    [
        ({"client_instance_id": UUID(int=0)}, "INVALID_REQUEST", "telemetry_invalid"),
        ({"client_instance_id": UUID(int=1)}, "INVALID_REQUEST", "telemetry_invalid"),
        ({"subscription_id": 1}, "UNKNOWN_SUBSCRIPTION_ID", "telemetry_unknown_subscriptions"),
        ({"compression_type": 5}, "UNSUPPORTED_COMPRESSION_TYPE", "telemetry_invalid"),
        ({"compression_type": -1}, "UNSUPPORTED_COMPRESSION_TYPE", "telemetry_invalid"),
        ({"metrics": bytes(LONGEST_PAYLOAD + 1)}, "TELEMETRY_TOO_LARGE", "telemetry_too_large"),
        ({"metrics": bytes(LONGEST_FRAME)}, "TELEMETRY_TOO_LARGE", "telemetry_too_large"),
    ],
)
def test_a_push_that_is_wrong(values: dict[str, Any], error: str, word: str) -> None:
    client = Client()
    client.get()
    assert client.push(**values) == error
    assert not client.inbox.pushes
    assert client.counted(word) == 1


@pytest.mark.parametrize("values", [{"subscription_id": 1}, {"compression_type": 9}])
def test_after_an_error_that_says_so_a_client_may_ask_and_push_at_once(values: dict[str, Any]) -> None:
    """Settings have changed, say: it learns the new ones now and not in a minute."""
    client = Client()
    client.get()
    client.push(**values)
    assert client.get()["error_code"] == 0
    assert client.push() == "NONE"


def test_pushes_come_at_the_interval() -> None:
    """The first may come at any time, the others not sooner than after half of it, for clients spread them."""
    client = Client()
    client.get()
    assert client.push() == "NONE"
    client.inbox.read()
    client.talk.later(29)
    assert client.push() == "THROTTLING_QUOTA_EXCEEDED"
    client.talk.later(1)
    assert client.push() == "NONE"
    assert client.counted("telemetry_throttled") == 1


def test_whoever_asks_again_and_again_pushes_no_more() -> None:
    """Errors that let a client ask at once do not let it push without end."""
    client = Client()
    said = []
    for _ in range(20):
        client.push(subscription_id=1)
        client.get()
        said.append(client.push())
        client.inbox.read()
        client.talk.later(0.1)
    assert said.count("NONE") == 1
    assert len(client.inbox.pushes) == 1


def test_the_last_push_may_come_at_any_time_and_is_the_last() -> None:
    client = Client()
    client.get()
    assert client.push() == "NONE"
    client.inbox.read()
    assert client.push(terminating=True) == "NONE"
    assert client.inbox.pushes[-1].terminating
    client.talk.later(60)
    assert [client.push(), client.push(terminating=True)] == ["INVALID_REQUEST"] * 2


def test_one_payload_of_a_connection_waits_to_be_read() -> None:
    client = Client()
    assert client.push() == "NONE"
    client.talk.later(60)
    assert client.push() == "THROTTLING_QUOTA_EXCEEDED"
    client.inbox.read()
    client.talk.later(60)
    assert client.push() == "NONE"


def test_a_push_for_which_there_is_no_room_may_come_later() -> None:
    client = Client()
    client.inbox.full = True
    assert client.push() == "THROTTLING_QUOTA_EXCEEDED"
    client.inbox.full = False
    client.talk.later(60)
    assert client.push() == "NONE"


def test_a_client_whose_payload_could_not_be_read_hears_of_it_with_the_next() -> None:
    """Java's client pushes no more then."""
    client = Client()
    client.push()
    client.inbox.read(unreadable=True)
    client.talk.later(60)
    assert client.push() == "INVALID_RECORD"


def test_a_request_that_cannot_be_read_closes_the_connection() -> None:
    client = Client()
    good = request(PUSH, 0, 9, client_instance_id=MINE, metrics=b"12345")
    client.talk.client(len(good[4:-3]).to_bytes(4, "big") + good[4:-3])
    assert client.talk.closed is not None
    assert client.talk.closed.cause == "decode"


# ---- pushes that the broker answers


def test_what_the_broker_answers_is_read_on_its_way() -> None:
    """And leaves as it came."""
    client = Client("auto", (GET, PUSH))
    good = request(PUSH, 0, 9, client_instance_id=MINE, subscription_id=5, metrics=b"payload")
    sent = len(client.talk.to_broker)
    client.talk.client(good)
    assert client.talk.to_broker[sent:] == good
    assert client.inbox.pushes[0].payload == b"payload"


@pytest.mark.parametrize("values", [{"compression_type": 9}, {"metrics": bytes(LONGEST_PAYLOAD + 1)}, {"metrics": b""}])
def test_what_would_not_be_read_passes_all_the_same(values: dict[str, Any]) -> None:
    client = Client("never", (GET, PUSH))
    client.talk.client(request(PUSH, 0, 9, **{"client_instance_id": MINE, "metrics": b"1"} | values))
    client.talk.broker(response(PUSH, 0, 9))
    assert not client.inbox.pushes
    assert client.talk.closed is None


def test_a_drain_waits_for_nothing_of_it() -> None:
    """The answer leaves, then the connection ends."""
    client = Client()
    assert client.push() == "NONE"
    client.talk.session.drain(client.talk.now)
    client.talk.obey()
    assert client.talk.closed is not None
    assert client.talk.closed.cause == "drained"
