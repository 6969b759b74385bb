"""`POST /api/exchanges/{id}/send`: requests that are sent again by the listener that they came by, over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from kproxy.admin.exchange_sender import MOST_AT_ONCE, ExchangeSender
from kproxy.base.errors import DocumentError
from kproxy.cli.admin_client import Admin, Refused
from kproxy.protocol import Message
from kproxy.protocol.records import entries
from kproxy.protocol.records.batch import ANYBODY, Producer, encode_batch
from kproxy.protocol.records.record import Record
from kproxy.protocol.sasl.scram import make_line
from kproxy.protocol.table.api_keys import HEARTBEAT, METADATA, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.rehearse.dialogue import defaults
from tests.record.live_view.stream_reader import produced, viewing
from tests.support.certificates import Authority, client_context
from tests.support.fake_broker import FakeBroker, reset
from tests.support.raw_client import METADATA as NOTHING
from tests.support.raw_client import RawClient
from tests.support.wait import until

pytestmark = pytest.mark.process
OFFSET_FETCH = 9
ABROAD = "127.0.0.2"
"""Address from which clients are let in where kproxy's own connection is not."""


def as_usual(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Answer with nothing but defaults; a Produce with acks=0 not at all."""
    if request.api.key != PRODUCE or request.body["acks"]:
        broker.respond(stream, request, defaults(request.api.key, request.version, "response"))


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    answers = dict.fromkeys((PRODUCE, HEARTBEAT, SASL_HANDSHAKE, SASL_AUTHENTICATE), as_usual)
    with FakeBroker(answers={**answers, OFFSET_FETCH: reset}) as broker:
        yield broker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class Places:
    """A proxy with a listener of each kind, by name; somebody looks at it."""

    def __init__(self, proxy: Proxy, addresses: dict[str, str]) -> None:
        self.proxy, self.addresses, self.admin = proxy, addresses, Admin(f"http://{proxy.admin}")
        self.probes = count()

    def client(self, listener: str = "main", **more: Any) -> RawClient:
        """Connect when what passes is looked at: on a busy machine it is not at all times."""
        until(self.is_looked_at)
        return RawClient(self.addresses[listener], **more)

    def is_looked_at(self) -> bool:
        """Whether an exchange of now is shown."""
        name = f"probe-{next(self.probes)}"
        with RawClient(self.addresses["main"], client_id=name) as client:
            client.brokers()
        return bool(self.rows(client=name))

    def rows(self, **wanted: Any) -> list[dict[str, Any]]:
        """What is kept, the newest first, with these values."""
        found = self.admin("GET", "/api/exchanges", query={"limit": 1000})
        rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
        return [row for row in rows if wanted.items() <= row.items()]

    def seen(self, **wanted: Any) -> dict[str, Any]:
        """The newest exchange with these values, as soon as there is one."""
        until(lambda: self.rows(**wanted))
        return self.rows(**wanted)[0]

    def again(self, row: dict[str, Any] | str, confirm: str = "") -> dict[str, Any]:
        """Send it again. Raises Refused."""
        ident = row if isinstance(row, str) else row["id"]
        sent: dict[str, Any] = self.admin(
            "POST", f"/api/exchanges/{ident}/send", json.dumps({"confirm": confirm} if confirm else {}).encode()
        )
        return sent

    def refusal(self, row: dict[str, Any] | str, confirm: str = "") -> tuple[str, str]:
        with pytest.raises(Refused) as refused:
            self.again(row, confirm)
        return refused.value.code, str(refused.value)


@contextmanager
def looked_at(proxy: Proxy) -> Iterator[None]:
    """Have somebody look."""
    connection = http.client.HTTPConnection(proxy.admin, timeout=60)
    connection.request("GET", "/api/view")
    answer = connection.getresponse()
    try:
        while answer.readline() != b"event: tick\n":  # with it all processes look
            assert not answer.isclosed()
        yield
    finally:
        answer.close()
        connection.close()


@pytest.fixture(scope="module")
def places(broker: FakeBroker, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    server, folder = str(authority.issue("127.0.0.1", "localhost")), tmp_path_factory.mktemp("users")
    (folder / "users").write_text(make_line("ann", "SCRAM-SHA-256", "s3cret-of-ann", b"salt" * 4) + "\n")
    ways: dict[str, dict[str, Any]] = {
        "main": {},
        "tls": {"tls": {"cert": server}},
        "certificates": {"tls": {"cert": server, "client_ca": str(authority.file)}},
        "either": {"tls": {"cert": server, "client_ca": str(authority.file), "client_auth": "optional"}},
        "login": {"sasl": {"mechanisms": ["PLAIN"], "users": str(folder / "users")}},
        "abroad": {},
        "behind": {"proxy_protocol": {"from": [ABROAD]}},
    }
    addresses = {name: f"127.0.0.1:{free_port_with_room(4)}" for name in ways}
    config = {
        "clusters": {"main": {"bootstrap": [broker.address]}},
        "listeners": [
            {"name": name, "bind": addresses[name], "cluster": "main", **more} for name, more in ways.items()
        ],
    }
    rules = [
        {"name": "slow", "kind": "delay", "match": {"api": "Metadata", "listener": "main"}, "delay": "30ms"},
        {"name": "from abroad", "kind": "allow_from", "match": {"listener": "abroad"}, "networks": [ABROAD]},
    ]
    with Proxy(config=config, rules=rules) as proxy, looked_at(proxy):
        yield Places(proxy, addresses)


def of(broker: FakeBroker, api: str, client: str) -> list[Message]:
    return [one for one in broker.requests if one.api.name == api and one.header.get("client_id") == client]


# ---- what is sent


def test_the_answer_is_an_exchange_of_its_own(places: Places, broker: FakeBroker) -> None:
    """On another connection, with rules at work, from the same client id; it says from which it is."""
    with places.client(client_id="first") as client:
        client.send(client.request(METADATA, 4, NOTHING, correlation=4711))
        client.frame()
    first = places.seen(client="first")
    sent = places.again(first)

    assert (sent["outcome"], sent["again_of"], sent["reason"], sent["notes"]) == ("answered", first["id"], "", [])
    assert sent["seconds"] >= 0.03
    second = places.seen(id=sent["id"])
    assert (second["client"], second["again_of"], second["rules"]) == ("first", first["id"], ["slow"])
    assert second["connection"] != first["connection"]
    assert first["again_of"] is None
    details = places.admin("GET", f"/api/exchanges/{sent['id']}")
    assert details["again_of"] == first["id"]
    assert details["event"]["client_address"] == "127.0.0.1"
    one, other = of(broker, "Metadata", "first")
    assert one.body == other.body
    assert other.header["correlation_id"] != 4711
    third = places.again(sent["id"])
    assert third["again_of"] == sent["id"]
    said = places.proxy.said("exchange sent again", of=first["id"])
    assert [(one["exchange"], one["outcome"]) for one in said] == [(sent["id"], "answered")]


def test_what_changes_something_is_asked_back_by_name(places: Places, broker: FakeBroker) -> None:
    """Nothing is sent before, nor for another name; a Metadata that may make topics is such a one."""
    with places.client(client_id="asked") as client:
        client.call(HEARTBEAT, 3, {"group_id": "billing", "generation_id": 7, "member_id": "m"})
        client.call(METADATA, 4, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True})
    heartbeat, metadata = places.seen(client="asked", api="Heartbeat"), places.seen(client="asked", api="Metadata")
    for confirm in ("", "heartbeat", "Produce"):
        code, words = places.refusal(heartbeat, confirm)
        asks = 'Heartbeat changes who is in a group: to send it again, say so with {"confirm": "Heartbeat"}'
        assert (code, words) == ("confirm_first", asks)
    assert places.refusal(metadata)[0] == "confirm_first"
    assert len(of(broker, "Heartbeat", "asked")) == 1
    assert places.again(heartbeat, "Heartbeat")["outcome"] == "answered"
    one, other = of(broker, "Heartbeat", "asked")
    assert one.body == other.body
    assert places.again(metadata, "Metadata")["outcome"] == "answered"


def written(producer: Producer = ANYBODY, size: int = 10) -> list[dict[str, Any]]:
    """Topics of a Produce with one record."""
    batch = encode_batch([Record(0, 0, b"k", b"v" * size)], producer=producer)
    return [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]


def test_records_are_written_again_without_idempotence(places: Places, broker: FakeBroker) -> None:
    """The broker knows the sequence already; whoever asks is told."""
    with places.client(client_id="writer") as client:
        client.call(PRODUCE, 8, {"acks": -1, "timeout_ms": 1000, "topic_data": written(Producer(17, 0, 41))})
    sent = places.again(places.seen(client="writer"), "Produce")

    assert sent["outcome"] == "answered"
    (note,) = sent["notes"]
    assert "without idempotence" in note
    one, other = of(broker, "Produce", "writer")
    batches = [next(iter(entries(one.body["topic_data"][0]["partition_data"][0]["records"]))) for one in (one, other)]
    assert [batch.producer_id for batch in batches] == [17, -1]


def test_no_answer_is_due(places: Places, broker: FakeBroker) -> None:
    with places.client(client_id="silent") as client:
        client.send(client.request(PRODUCE, 8, {"acks": 0, "timeout_ms": 1000, "topic_data": written()}))
        row = places.seen(client="silent")
    sent = places.again(row, "Produce")

    assert (sent["outcome"], sent["seconds"]) == ("no_answer_due", None)
    until(lambda: len(of(broker, "Produce", "silent")) == 2)
    assert places.seen(id=sent["id"])["outcome"] == "no_answer_due"


def test_there_is_no_answer(places: Places) -> None:
    """The broker resets the connection: the new exchange says so as well."""
    with places.client(client_id="unlucky") as client:
        client.send(client.request(OFFSET_FETCH, 3, {"group_id": "billing", "topics": None}))
        assert client.rest() == b""
    sent = places.again(places.seen(client="unlucky"))

    assert (sent["outcome"], sent["reason"]) == ("unanswered", "the connection was closed before it was answered")
    assert places.seen(id=sent["id"])["outcome"] == "unanswered"


# ---- by which listener


@pytest.mark.parametrize("listener", ["tls", "either", "behind"])
def test_by_the_listener_that_it_came_by(places: Places, authority: Authority, listener: str) -> None:
    """With TLS, of which its own certificate is believed; behind a balancer as one that comes directly."""
    tls = None if listener == "behind" else client_context(authority.file)
    with places.client(listener, client_id=listener, tls=tls, server_name=tls and "localhost") as client:
        client.brokers()
    sent = places.again(places.seen(client=listener))
    assert (sent["outcome"], places.seen(id=sent["id"])["listener"]) == ("answered", listener)


def by_certificate(places: Places, authority: Authority, listener: str) -> None:
    context = client_context(authority.file, authority.issue("somebody", common_name="somebody"))
    with places.client(listener, client_id=listener, tls=context) as client:
        client.brokers()


def by_password(places: Places, authority: Authority, listener: str) -> None:
    with places.client(listener, client_id=listener) as client:
        assert not client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})["error_code"]
        answered = client.call(SASL_AUTHENTICATE, 1, {"auth_bytes": b"\0ann\0s3cret-of-ann"})
        assert not answered["error_code"]
        client.brokers()


@pytest.mark.parametrize(
    ("listener", "come", "words"),
    [("certificates", by_certificate, "asks for a client's certificate"),
     ("either", by_certificate, "its client had logged in as "),
     ("login", by_password, "asks for a login"), ("main", by_password, "its client had logged in as ann")],
)  # fmt: skip
def test_nobody_is_logged_in_for(
    places: Places, authority: Authority, listener: str, come: Callable[[Places, Authority, str], None], words: str
) -> None:
    """Neither where the listener asks for it, nor where the broker did."""
    come(places, authority, listener)
    code, message = places.refusal(places.seen(client=listener, api="Metadata", listener=listener))
    assert code == "cannot_log_in"
    assert words in message
    assert "s3cret" not in message


def test_who_is_not_let_in(places: Places) -> None:
    """Rules about who may come hold for kproxy's own connection, too."""
    with places.client("abroad", client_id="abroad", source=ABROAD) as client:
        client.brokers()
    code, message = places.refusal(places.seen(client="abroad"))
    assert code == "not_let_in"
    assert message.startswith("listener abroad does not let it in: ")


# ---- what cannot be sent


def test_what_was_not_kept_whole(places: Places) -> None:
    """Of long frames with records the records are not kept; of a login nothing."""
    with places.client(client_id="long") as client:
        client.call(PRODUCE, 8, {"acks": -1, "timeout_ms": 1000, "topic_data": written(size=100_000)})
        client.call(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert places.refusal(places.seen(client="long", api="Produce"), "Produce") == (
        "not_sendable", "Produce cannot be sent again: its request was not kept whole"
    )  # fmt: skip
    assert places.refusal(places.seen(client="long", api="SaslHandshake"))[0] in ("not_sendable", "cannot_log_in")


@pytest.mark.parametrize("ident", ["0-999999999", "7-1", "x", "0-1..", "-"])
def test_there_is_none(places: Places, ident: str) -> None:
    assert places.refusal(ident)[0] == "no_such_exchange"


def test_bodies_that_are_none(places: Places) -> None:
    """Each is said, and nothing is sent."""
    for body in (b'{"confirm": 1}', b'{"confirm": "%s"}' % (b"x" * 1000), b'{"sure": true}', b"[]"):
        with pytest.raises(DocumentError, match=r"confirm|sure|object"):
            places.admin("POST", "/api/exchanges/0-1/send", body)
    with pytest.raises(Refused) as refused:
        places.admin("POST", "/api/exchanges/0-1/send", b"{}", query={"source": "s1"})
    assert refused.value.code == "invalid_query"


@pytest.mark.trio
async def test_what_is_gone_and_too_many_at_once(api: Any) -> None:
    """And nobody may where the config lets nobody change anything."""
    (member,) = api.members
    async with viewing(api.app):
        member.kept_exchanges.watch.ring.most = 1
        for number in (1, 2):
            api.proxy.server.taps.fanout.take(produced("orders", number))
        gone = await api("POST", "/api/exchanges/0-1/send")
        assert (gone.status, gone.code) == (410, "exchange_gone")
        sender = member._sender = ExchangeSender(api.proxy.server, member.kept_exchanges)
        sender.busy = MOST_AT_ONCE
        refused = await api("POST", "/api/exchanges/0-2/send")
        assert (refused.status, refused.code) == (429, "too_many_sent")
        api.backend.view = api.backend.view.model_copy(update={"write": False})
        refused = await api("POST", "/api/exchanges/0-2/send")
        assert (refused.status, refused.code) == (403, "read_only")


# ---- several processes


@pytest.mark.deep
def test_the_worker_that_has_it_sends_it(broker: FakeBroker) -> None:
    """The new exchange is kept by the same one, whichever it is."""
    address = f"127.0.0.1:{free_port_with_room(4)}"
    config = {
        "clusters": {"main": {"bootstrap": [broker.address]}},
        "listeners": [{"name": "main", "bind": address, "cluster": "main"}],
        "workers": 2,
    }
    with Proxy(config=config) as proxy, looked_at(proxy):
        places = Places(proxy, {"main": address})
        for _ in range(4):
            with RawClient(address, client_id="many") as client:  # they take turns, one more would upset them
                client.brokers()
        until(lambda: len(places.rows(client="many")) == 4)
        rows = places.rows(client="many")
        processes = {row["id"].partition("-")[0] for row in rows}
        assert processes == {"0", "1"}
        for row in rows:
            sent = places.again(row)
            assert sent["outcome"] == "answered"
            assert sent["id"].partition("-")[0] == row["id"].partition("-")[0]
            assert places.seen(id=sent["id"])["again_of"] == row["id"]
        assert places.refusal("5-1")[0] == "no_such_exchange"
