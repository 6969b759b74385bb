"""ApiVersions of clients that have not authenticated: answered as the broker would, which hears nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.protocol.sasl.mechanisms import Checker
from kproxy.protocol.sasl.scram import make_line, read_users
from kproxy.protocol.table import schema
from kproxy.rules.document.read import parse_rules
from kproxy.session.commands import AskVersions, Dial
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.sasl_server import MOST_REQUESTS, SaslServer, SaslSettings
from kproxy.tools.rehearse.dialogue import Dialogue, frames, request, response

HANDSHAKE, VERSIONS, AUTHENTICATE, HEARTBEAT = 17, 18, 36, 12
USERS = read_users(make_line("alice", "SCRAM-SHA-256", "secret", b"0123456789abcdef", 4096))
JAVA = {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}
LISTED = [{"api_key": key, "min_version": 0, "max_version": 99} for key in sorted(schema.paths())]
LISTED.append({"api_key": 9999, "min_version": 0, "max_version": 3})
EVERY = range(schema.load(VERSIONS).versions.first, schema.load(VERSIONS).versions.last + 1)


def hello(version: int, correlation: int = 7, **values: Any) -> bytes:
    """A request of a Java client."""
    return request(VERSIONS, version, correlation, **(JAVA | values if version > 2 else {}))


def broker(asked: AskVersions) -> bytes:
    """How the broker answers."""
    if not asked.valid:
        return response(VERSIONS, asked.version, 0, error_code=42)[8:]
    return response(VERSIONS, asked.version, 0, api_keys=LISTED)[8:]


def talking(rules: str = "", *, advertise: bool = False, guarded: bool = True, patience: float = 0.0) -> Dialogue:
    """A connection that has just opened; `guarded`: the client is to authenticate to kproxy."""
    held = parse_rules(rules).bind(Dialogue().session.facts) if rules else None
    names, versions, live = (held.names, held.versions, held.live) if held else (None, None, ())
    talk = Dialogue(rules, plan=Plan(ConnectionSettings(names, advertise, True, versions, ends_sasl=True), live))
    talk.versions = broker
    if guarded:
        checker = Checker(lambda: USERS, b"key", lambda: "server")
        talk.session.logins.serve(SaslServer(talk.session, SaslSettings(("PLAIN",), checker, patience=patience)))
        talk.session.begin(talk.now)
        talk.obey()
    return talk


def log_in(talk: Dialogue) -> Dialogue:
    """As alice."""
    talk.client(request(HANDSHAKE, 1, 100, mechanism="PLAIN"))
    return talk.client(request(AUTHENTICATE, 2, 101, auth_bytes=b"\0alice\0secret"))


RULES = {
    "none": "",
    "error": "rules: [{name: r, kind: error, match: {api: ApiVersions}, error: INVALID_REQUEST}]",
    "error in the response": "rules: [{name: r, kind: error, match: {api: ApiVersions}, error: 42, at: response}]",
    "delay": "rules: [{name: r, kind: delay, match: {api: ApiVersions}, delay: 1s}]",
    "late answer": "rules: [{name: r, kind: delay, match: {api: ApiVersions}, delay: 1s, at: response}]",
    "set": 'rules: [{name: r, kind: set, match: {api: ApiVersions}, fields: {"api_keys[].max_version": 1}}]',
    "limit": "rules: [{name: r, kind: limit_versions, kafka: '2.8'}]",
    "throttle": "rules: [{name: r, kind: throttle_time, match: {api: ApiVersions}, delay: 1s}]",
    "read_only": "rules: [{name: r, kind: read_only}]",
    "deny": "rules: [{name: r, kind: deny, match: {topic: x}}]",
    "prefix": "rules: [{name: r, kind: prefix, prefix: t.}]",
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("advertise", [False, True])
@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("name", ["apache-kafka-java", "not legal!"])
def test_the_answer_is_the_brokers(rules: str, advertise: bool, version: int, name: str) -> None:
    """The very bytes that a client gets who is connected to it, whatever rules do, at the same time."""
    asked = hello(version, client_software_name=name) if version > 2 else hello(version)
    valid = version < 3 or name != "not legal!"
    straight = talking(RULES[rules], advertise=advertise, guarded=False)
    straight.client(asked)
    answered = frames(straight.to_broker)
    through = talking(RULES[rules], advertise=advertise).client(asked)

    def send() -> None:
        if frames(straight.to_broker) and not send.done:  # type: ignore[attr-defined]
            send.done = True  # type: ignore[attr-defined]
            body = asked[8:12] + broker(AskVersions(version, valid))
            straight.broker(len(body).to_bytes(4, "big") + body)

    send.done = False  # type: ignore[attr-defined]
    for _ in range(4):
        send()
        assert through.to_client == straight.to_client
        straight.later(0.6)
        through.later(0.6)
    assert through.to_client == straight.to_client != b""
    assert through.to_broker == b"" and not any(isinstance(one, Dial) for one in through.log)
    assert len(answered) <= 1
    assert through.session.inflight.fifo == straight.session.inflight.fifo
    assert through.session.idle and through.closed is None
    counted = [
        [(one.matched, one.fired, one.applied) for one in talk.session.rules.live] for talk in (through, straight)
    ]
    assert counted[0] == counted[1]


def counted(talk: Dialogue) -> list[tuple[int, int, int]]:
    """Of its rules."""
    return [(one.matched, one.fired, one.applied) for one in talk.session.rules.live]


RESPONSE_FAULTS = {
    "wrong_correlation_id": "", "duplicate_response": "", "short_body": "", "trailing_bytes": "", "truncate": "",
    "bad_length": "length: -1", "corrupt": "", "unknown_tag": "", "drop": "what: response",
    "disconnect": "at: response",
}  # fmt: skip


@pytest.mark.parametrize("kind", RESPONSE_FAULTS)
def test_faults_of_the_response(kind: str) -> None:
    """What is wrong with the answer is wrong in the same way, and so is what becomes of the connection."""
    more = RESPONSE_FAULTS[kind] and f", {RESPONSE_FAULTS[kind]}"
    rules = f"rules: [{{name: r, kind: {kind}, match: {{api: ApiVersions}}{more}}}]"
    straight, through = talking(rules, guarded=False), talking(rules).client(hello(3))
    body = hello(3)[8:12] + broker(AskVersions(3, valid=True))
    straight.client(hello(3)).broker(len(body).to_bytes(4, "big") + body)
    assert through.to_client == straight.to_client
    assert (through.closed, through.shut) == (straight.closed, straight.shut)
    assert counted(through) == counted(straight)
    assert through.session.requests.is_new


@pytest.mark.parametrize("kind", ["drop", "disconnect", "blackhole", "refuse"])
def test_faults_of_the_request(kind: str) -> None:
    """What a rule takes away or ends is gone, and no broker is dialled for it."""
    match = "" if kind == "refuse" else ", match: {api: ApiVersions}"
    talk = talking(f"rules: [{{name: r, kind: {kind}{match}}}]")
    if talk.closed is None:
        talk.client(hello(3)).later(1)
    assert talk.to_client == b"" and talk.session.requests.is_new
    assert (talk.closed is None) == (kind in ("drop", "blackhole"))


def test_what_a_rule_changes() -> None:
    """Another name is answered as the client's own."""
    rules = "rules: [{name: r, kind: set, match: {api: ApiVersions}, at: request, fields: {client_software_name: x}}]"
    talk = talking(rules).client(hello(3)).later(1)
    assert len(frames(talk.to_client)) == 1 and talk.session.requests.is_new


def test_what_a_rule_makes_unreadable() -> None:
    """A broker would close the connection; so does kproxy, which says why."""
    rules = "rules: [{name: r, kind: bad_length, match: {api: ApiVersions}, at: request, length: -1}]"
    talk = talking(rules).client(hello(3)).later(1)
    assert talk.closed is not None and "what brokers do not answer" in talk.closed.message
    assert talk.to_client == b"" and talk.session.requests.is_new


UNKNOWN = b"\0\0\0\x0a\0\x12\0\x63\0\0\0\2\xff\xff"
"""ApiVersions 99."""


@pytest.mark.parametrize("chunk", [0, 1, 9])
def test_many_in_one_go(chunk: int) -> None:
    """Each is asked for once, answers come in order, and the login follows."""
    talk = talking()
    asked = [hello(0, 1), UNKNOWN, hello(3, 3), hello(0, 4), hello(3, 5, client_software_name="-"), hello(3, 6)]
    talk.client(b"".join(asked), chunk)
    assert [int.from_bytes(frame[:4], "big") for frame in frames(talk.to_client)] == [1, 2, 3, 4, 5, 6]
    asks = [one for one in talk.log if isinstance(one, AskVersions)]
    assert asks == [AskVersions(0, valid=True), AskVersions(3, valid=True), AskVersions(3, valid=False)]
    log_in(talk).client(request(HEARTBEAT, 4, 102))
    assert talk.to_broker == request(HEARTBEAT, 4, 102)
    assert sum(isinstance(one, Dial) for one in talk.log) == 1


def test_afterwards_the_broker_is_asked() -> None:
    """A client that has authenticated asks it itself."""
    talk = log_in(talking().client(hello(3))).client(hello(3, 9))
    assert talk.to_broker == hello(3, 9)


def test_a_flood() -> None:
    """Some are answered, then the connection closes; no question is asked twice."""
    talk = talking()
    talk.client(b"".join(hello(3, number) for number in range(MOST_REQUESTS + 5)))
    assert len(frames(talk.to_client)) == MOST_REQUESTS
    assert talk.closed is not None and talk.closed.cause == "unauthenticated"
    assert sum(isinstance(one, AskVersions) for one in talk.log) == 1


@pytest.mark.parametrize("version", EVERY)
def test_bodies_that_cannot_be_read(version: int) -> None:
    """They close the connection, and nobody is asked."""
    data = hello(version)[4:] + b"\xff" * 9
    talk = talking().client(len(data).to_bytes(4, "big") + data)
    assert talk.closed is not None and (talk.closed.cause, talk.closed.blame) == ("decode", "client")
    assert not any(isinstance(one, AskVersions | Dial) for one in talk.log)


def test_nobody_stays_without_a_login() -> None:
    """Half a login, or none: the time is up, and the connection closes; whoever is known stays."""
    for sent in (b"", hello(3), request(HANDSHAKE, 1, 1, mechanism="PLAIN"), hello(3)[:9]):
        talk = talking(patience=10.0).client(sent).later(9)
        assert talk.closed is None
        talk.later(2)
        assert talk.closed is not None and talk.closed.message == "the client has not authenticated in 10 s"
    assert log_in(talking(patience=10.0)).later(100).closed is None


def test_time_that_kproxy_takes_does_not_count() -> None:
    """A password that is hashed, and versions that are asked for."""
    talk = talking(patience=10.0)
    talk.versions = None
    talk.client(hello(3)).later(15)
    assert talk.closed is None
    talk.session.logins.versions_known(broker(AskVersions(3, valid=True)), talk.now)
    talk.obey()
    assert len(frames(talk.to_client)) == 1
    talk.works = []
    log_in(talk).later(100)
    assert talk.closed is None
    talk.compute().later(100)
    assert talk.closed is None and talk.session.identity.principal == "alice"
