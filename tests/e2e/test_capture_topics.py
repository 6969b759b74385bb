"""Topics that kproxy records in captures by requests of its own: bounded, and without harm if brokers refuse them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kproxy.app.capture_topics import topic_names
from kproxy.cli.admin_client import Admin
from kproxy.protocol import Message, encode
from kproxy.protocol.table import schema
from kproxy.protocol.table.api_keys import DESCRIBE_CONFIGS, METADATA
from kproxy.record.captures.info import noted_losses
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import Filter
from kproxy.session.cluster import VERSION
from tests.support.fake_broker import FakeBroker, answer_metadata
from tests.support.line_count import LineCount

SECRET = "hunter2"
DENIED = 29


def metadata(names: list[str]) -> Callable[..., None]:
    """Return an answer to Metadata with these topics."""

    def answer(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        if request.version < 10:
            return answer_metadata(broker, stream, request)
        listed = request.body["topics"]
        wanted = names if listed is None else [one["name"] for one in listed]
        topics = [{"name": name, "topic_id": UUID(int=number), "partitions": []}
                  for number, name in enumerate(wanted, 1)]  # fmt: skip
        return broker.respond(stream, request, {"brokers": [], "topics": topics})

    return answer


def configs(error: int = 0) -> Callable[..., None]:
    """Return an answer to DescribeConfigs: a policy, and a secret in a config that was not requested."""

    def answer(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        values = [] if error else [{"name": "cleanup.policy", "value": "compact"}, {"name": "other", "value": SECRET}]
        results = [{"resource_type": 2, "resource_name": one["resource_name"], "error_code": error, "configs": values}
                   for one in request.body["resources"]]  # fmt: skip
        broker.respond(stream, request, {"results": results})

    return answer


def silence(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
    """Answer nothing."""


@pytest.fixture
def captured(fake: Callable[..., FakeBroker], proxy_with: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Records an empty capture before a broker with these answers. Return it after reading, its own exchanges and the
    broker."""

    def record(names: list[str], answer: Callable[..., None], **more: Any) -> Any:
        query = {"file": "c", "payload": "full", **more.pop("query", {})}
        broker = fake(answers={METADATA: metadata(names), DESCRIBE_CONFIGS: answer})
        proxy = proxy_with(broker.address, captures=str(tmp_path / "captures"), **more)
        admin = Admin(f"http://{proxy.admin}")
        admin("POST", "/api/captures", query=query)
        stopped = admin("DELETE", "/api/captures/c")
        assert (stopped["state"], stopped["exchanges"], stopped["broker_exchanges"]) == ("stopped", 0, 0)
        capture = Capture(stopped["file"], side="broker")
        return capture, list(capture), broker

    return record


def asked(seen: list[ObservedExchange]) -> list[str]:
    """Return the topics of the DescribeConfigs requests."""
    bodies = [one.request_body or {} for one in seen if one.key == DESCRIBE_CONFIGS]
    return [resource["resource_name"] for body in bodies for resource in body["resources"]]


def troubles(capture: Capture) -> list[str]:
    return [loss.text for loss in noted_losses(capture)]


def test_topics_are_recorded_at_start_and_end(captured: Callable[..., Any]) -> None:
    """Ids and the policy stay in the file; a value of another config does not. Coordinators' topics come first."""
    capture, seen, _ = captured(["orders", "__consumer_offsets", "payments"], configs())
    assert [one.api for one in seen] == ["Metadata", "DescribeConfigs"] * 2
    assert asked(seen) == ["__consumer_offsets", "orders", "payments"] * 2
    assert seen[0].response_body["topics"][0]["topic_id"] == UUID(int=1)
    values = {one["name"]: one["value"] for one in seen[1].response_body["results"][1]["configs"]}
    assert values == {"cleanup.policy": "compact", "other": "*" * len(SECRET)}
    assert {one.who.cluster for one in seen} == {"main"}
    assert len({one.who.number for one in seen}) == 2
    assert troubles(capture) == []


def test_topics_are_bounded_and_requested_in_pieces(captured: Callable[..., Any]) -> None:
    """A thousand topics, a hundred in a request; the file has the reason why others are missing."""
    names = [f"topic-{number:04}" for number in range(1200)]
    capture, seen, broker = captured(names, configs())
    assert asked(seen) == names[:1000] * 2
    sizes = [len(one.body["resources"]) for one in broker.requests if one.api.key == DESCRIBE_CONFIGS]
    assert sizes == [100] * 20
    assert troubles(capture) == [
        "topics and their configs were not all recorded: cluster main: expected at most 1000 topics, got more"
    ]


def test_topics_are_recorded_when_the_proxy_ends(
    fake: Callable[..., FakeBroker], proxy_with: Callable[..., Any], tmp_path: Path
) -> None:
    """A running capture has the topics at its end as well."""
    broker = fake(answers={METADATA: metadata(["orders"]), DESCRIBE_CONFIGS: configs()})
    proxy = proxy_with(broker.address, captures=str(tmp_path))
    Admin(f"http://{proxy.admin}")("POST", "/api/captures", query={"file": "c", "payload": "full"})
    proxy.stop()
    capture = Capture(tmp_path / "c.pcapng", side="broker")
    assert asked(list(capture)) == ["orders", "orders"]
    assert troubles(capture) == []


@pytest.mark.parametrize(
    ("wanted", "topics"),
    [
        ("api == Produce", ["other", "payments", "payments-old"]),
        ("topic == payments", ["payments"]),
        ("api == Fetch and (topic ~ ^pay or broker_topic == other)", ["other", "payments", "payments-old"]),
        ("topic ~ ^pay and not topic == payments", ["payments-old"]),
        ("topic != payments", ["other", "payments-old"]),
    ],
)
def test_topics_of_a_filtered_capture_may_pass_the_filter(
    captured: Callable[..., Any], wanted: str, topics: list[str]
) -> None:
    """A capture about some topics names no others."""
    _, seen, _ = captured(["payments", "payments-old", "other"], configs(), query={"filter": wanted})
    assert asked(seen) == topics * 2


def test_topics_that_a_broker_denies_are_told(captured: Callable[..., Any]) -> None:
    capture, seen, _ = captured(["orders", "payments"], configs(DENIED))
    assert [one.api for one in seen] == ["Metadata", "DescribeConfigs"] * 2
    assert troubles(capture) == [
        "topics and their configs were not all recorded: cluster main: 2 topics: TOPIC_AUTHORIZATION_FAILED"
    ]


@pytest.mark.deep
def test_broker_that_never_answers_leaves_the_capture_whole(captured: Callable[..., Any]) -> None:
    """Its start and its end wait for a bounded time."""
    capture, seen, _ = captured(["orders"], silence)
    assert seen == []
    (trouble,) = troubles(capture)
    assert trouble.startswith("topics and their configs were not all recorded: ")
    assert "no response in" in trouble or "no answer in" in trouble


@pytest.mark.parametrize(
    "more", [{"query": {"topics": False}}, {"capture_topics": False}, {"query": {"side": "client"}}]
)
def test_topics_are_not_recorded_if_switched_off(captured: Callable[..., Any], more: dict[str, Any]) -> None:
    """By the query, by the config, and in captures of one side, where names of clients are another matter."""
    capture, seen, broker = captured(["orders"], configs(), **more)
    assert (seen, troubles(capture)) == ([], [])
    assert [one for one in broker.requests if one.api.key == DESCRIBE_CONFIGS] == []


@pytest.mark.deep
def test_topics_with_unknown_error_codes_are_reported(captured: Callable[..., Any]) -> None:
    """A broker may send codes that the table of errors lacks."""
    capture, seen, _ = captured(["orders"], configs(9999))
    assert [one.api for one in seen] == ["Metadata", "DescribeConfigs"] * 2
    assert troubles(capture) == ["topics and their configs were not all recorded: cluster main: 1 topic: 9999"]


def test_topics_stop_at_the_bytes_of_all_responses(captured: Callable[..., Any]) -> None:
    """Long responses of a broker fill neither the memory nor the file."""

    def answer(broker: FakeBroker, stream: socket.socket, request: Message) -> None:
        values = [{"name": "other", "value": "v" * 32_000}] * 250
        broker.respond(stream, request, {"results": [{"resource_name": "t", "resource_type": 2, "configs": values}]})

    names = [f"topic-{number:04}" for number in range(1000)]
    capture, _, broker = captured(names, answer, query={"payload": "head"})
    requests = [one for one in broker.requests if one.api.key == DESCRIBE_CONFIGS]
    assert len(requests) <= 2 * 9
    assert len(troubles(capture)) == 1


def test_topic_names_of_long_responses_are_read_in_steps() -> None:
    """Other connections run between the steps."""
    names = [f"topic-{number:05}" for number in range(20_000)]
    topics = [{"name": name, "partitions": [], "error_code": 0} for name in [*names, "__consumer_offsets"]]
    message = Message(schema.load(METADATA), VERSION, {"correlation_id": 0}, {"brokers": [], "topics": topics})
    frame = encode(message)
    with LineCount() as count:
        found = topic_names(frame, Filter(""))
    assert found == ["__consumer_offsets", *names[:1000]]
    assert count.looks > 10
    assert count.longest < 10_000
