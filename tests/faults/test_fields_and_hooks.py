"""What real clients make of fields that are set, of hints to wait, and of functions that decide."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kproxy.testing.process import Proxy
from tests.support.java_program import JavaProgram

PATIENCE = 30
FAULTS: dict[str, dict[str, Any]] = {
    "other-offset": {
        "kind": "set", "match": {"api": "ListOffsets"}, "fields": {"topics[].partitions[].offset": 77},
    },
    "other-start": {
        "kind": "set", "match": {"api": "ListOffsets"}, "at": "request",
        "fields": {"topics[].partitions[].timestamp": -1},
    },
    "one-topic": {
        "kind": "set", "match": {"api": "Metadata", "topic": "*-1*"}, "fields": {"topics[].error_code": 3},
    },
    "told-to-wait": {"kind": "throttle_time", "match": {"api": "Produce"}, "delay": "1s", "when": {"nth": 1}},
    "java-told-to-wait": {"kind": "throttle_time", "match": {"api": "Produce"}, "delay": "1s", "when": {"nth": 1}},
    "muted": {"kind": "throttle_time", "match": {"api": "Produce"}, "delay": "1s", "mute": True, "when": {"nth": 1}},
    "hooked": {"kind": "python", "match": {"api": "Produce"}, "call": "proxy_hooks:refuse_every_third"},
    "slow-hook": {"kind": "python", "match": {"api": "Produce"}, "call": "proxy_hooks:sleep"},
    "sad-hook": {"kind": "python", "match": {"api": "Produce"}, "call": "proxy_hooks:fail"},
    "strict-hook": {"kind": "python", "match": {"api": "Produce"}, "call": "proxy_hooks:fail", "on_error": "close"},
}  # fmt: skip

HOOKS = """
import time

from kproxy.rules.exchange import Fail

count = 0


def refuse_every_third(exchange, message):
    global count
    count += 1
    return Fail(6) if count % 3 == 0 else None


def sleep(exchange, message):
    time.sleep(0.02)


def fail(exchange, message):
    raise LookupError(message.body["topic_data"][0]["name"])
"""


@pytest.fixture(scope="module")
def hooked(clients: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy with all these rules, and a module of hooks that it finds by PYTHONPATH."""
    folder: Path = tmp_path_factory.mktemp("hooks")
    (folder / "proxy_hooks.py").write_text(HOOKS)
    rules = [{"name": name, **rule, "match": {**rule["match"], "client_id": name}} for name, rule in FAULTS.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        with Proxy(clients.upstream, rules=rules) as proxy:
            yield proxy


def shown(proxy: Proxy, name: str) -> dict[str, Any]:
    return dict(json.loads(proxy.get(f"/api/rules/{name}")[1]))


@pytest.mark.deep
def test_an_offset_is_what_the_rule_says(hooked: Proxy, clients: Any) -> None:
    """Whoever asks for the end of a partition is told 77."""
    (topic,) = clients.topics(1)
    admin = AdminClient({"bootstrap.servers": hooked.bootstrap, "client.id": "other-offset"})
    (found,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}).values()

    assert found.result(PATIENCE).offset == 77


def test_a_request_is_changed_before_the_broker_sees_it(hooked: Proxy, clients: Any) -> None:
    """Who asks for the beginning gets the end."""
    (topic,) = clients.topics(1)
    clients.write(clients.direct, topic, 3)
    admin = AdminClient({"bootstrap.servers": hooked.bootstrap, "client.id": "other-start"})
    (found,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()

    assert found.result(PATIENCE).offset == 3


def written(clients: Any, proxy: Proxy, name: str, **settings: Any) -> Any:
    (topic,) = clients.topics(1)
    return clients.write(proxy.bootstrap, topic, 3, client_id=name, batch_num_messages=1, max_in_flight=1, **settings)


def test_a_hint_to_wait_is_passed_on(hooked: Proxy, clients: Any) -> None:
    """librdkafka reports it and goes on; nothing in the proxy waits."""
    (topic,) = clients.topics(1)
    told: list[int] = []
    producer = Producer({"bootstrap.servers": hooked.bootstrap, "client.id": "told-to-wait",
                         "throttle_cb": lambda event: told.append(round(event.throttle_time * 1000))})  # fmt: skip
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE) == 0
    producer.poll(0.5)

    assert 1000 in told


def test_javas_producer_heeds_the_hint(hooked: Proxy, clients: Any, java: JavaProgram) -> None:
    """It sends nothing for that long."""
    (topic,) = clients.topics(1)
    settings = {"bootstrap.servers": hooked.bootstrap, "client.id": "java-told-to-wait", "linger.ms": 0,
                "batch.size": 0, "max.in.flight.requests.per.connection": 1}  # fmt: skip
    since = time.monotonic()
    java("produce", config=settings, topic=topic, tag="v", count=3)

    assert time.monotonic() - since >= 1.0
    assert clients.stored(topic) == 3


def test_who_does_not_heed_it_is_muted(hooked: Proxy, clients: Any) -> None:
    """The first write is answered at once, the second one waits."""
    outcome = written(clients, hooked, "muted")

    assert outcome.told == [None] * 3
    assert outcome.seconds >= 1.0


def test_a_function_decides(hooked: Proxy, clients: Any) -> None:
    """Every third produce is refused; the client tries again, and all is stored once."""
    outcome = written(clients, hooked, "hooked")

    assert (outcome.told, outcome.stored) == ([None] * 3, 3)
    assert shown(hooked, "hooked")["applied"] == 1


def test_a_function_that_raises_is_named_and_traffic_goes_on(hooked: Proxy, clients: Any) -> None:
    """Or the connection is closed, if the rule says so."""
    outcome = written(clients, hooked, "sad-hook")
    rule = shown(hooked, "sad-hook")

    assert (outcome.told, outcome.stored) == ([None] * 3, 3)
    assert rule["problems"] == 3
    assert "proxy_hooks:fail with Produce" in rule["problem"] and "LookupError" in rule["problem"]

    outcome = written(clients, hooked, "strict-hook", message_timeout_ms=1500)
    assert (outcome.told, outcome.stored) == (["_MSG_TIMED_OUT"] * 3, 0)


def test_a_slow_function_is_counted_and_logged(hooked: Proxy, clients: Any) -> None:
    """While it runs nobody else is served."""
    written(clients, hooked, "slow-hook")

    assert shown(hooked, "slow-hook")["problems"] >= 3
    limit = time.monotonic() + 60
    while not hooked.said("rule has problems", rule="slow-hook"):
        assert time.monotonic() < limit
        time.sleep(0.05)
