"""Every API in every version becomes an event that its schema declares, whatever its fields hold."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import msgspec
import pytest

from kproxy.protocol.table import layout, schema
from kproxy.record.audit.request_event import request_event
from kproxy.record.events.schema import REQUEST_EVENT
from tests.record.audit.exchanges import FakeWho, seen, wall
from tests.support.event_validation import mistakes
from tests.support.random_values import random_struct

SEEDS = 40 if os.environ.get("KPROXY_TEST_ALL") else 3
SECRET = "s3cret"
SECRETS = frozenset(("config_value", "secret", "sasl_token"))
"""Kinds of fields that never get into an event."""

LARGEST = 60_000
"""Bytes of an event of at most 20 topics, partitions and resources, all their texts as long as they may be."""


class Anybody(FakeWho):
    """Knows another name for everything."""

    def broker_topic(self, topic: str) -> str | None:
        return f"prod.{topic}"

    def broker_group(self, group: str) -> str | None:
        return f"prod.{group}"

    def topic_of(self, topic_id: str) -> str | None:
        return None if topic_id[0] in "01" else f"topic {topic_id[:4]}"


def poison(struct: layout.Struct, value: dict[str, Any]) -> None:
    """Puts a secret into every field that may hold one."""
    for slot in struct.all_slots:
        if slot.kind in SECRETS:
            value[slot.name] = SECRET if slot.type == "string" else SECRET.encode()
        elif slot.struct is not None and value[slot.name] is not None:
            for element in value[slot.name] if slot.array else (value[slot.name],):
                poison(slot.struct, element)


def random_body(key: int, version: int, direction: str, random: Random) -> dict[str, Any] | None:
    if not random.randrange(8):
        return None
    struct = layout.body(key, version, direction)
    value = random_struct(struct, random, size=random.choice((1, 3, 12)))
    poison(struct, value)
    return value


@pytest.mark.parametrize("key", schema.paths())
def test_every_api_in_every_version(key: int) -> None:
    """Columns are declared and of their types, JSON holds them, their size is bounded, and no secret is in them."""
    api = schema.load(key)
    for version in api.versions:
        for seed in range(SEEDS):
            random = Random(seed)
            request, response = (random_body(key, version, one, random) for one in ("request", "response"))
            exchange = seen(api.name, version, request, response, who=Anybody())

            event = request_event(exchange, wall, random.choice((2, 20)))

            assert not exchange.unread
            assert mistakes(REQUEST_EVENT, event) == [], f"v{version} seed {seed}"
            line = msgspec.json.encode(event)
            assert len(line) < LARGEST
            assert SECRET.encode() not in line
            if request is not None and response is not None and api.name != "ApiVersions":
                assert ("error" in event) == bool(event.get("errors"))


@pytest.mark.parametrize("key", schema.paths())
def test_damaged_frames(key: int) -> None:
    """Whatever the bytes are, nothing is raised, and what is said follows the schema."""
    api = schema.load(key)
    for seed in range(10 * SEEDS):
        random = Random(seed)
        version = random.choice(list(api.versions))
        request, response = (random_body(key, version, one, random) for one in ("request", "response"))
        exchange = seen(api.name, version, request, response, who=Anybody())
        for frame in (exchange.request, exchange.response):
            if frame is not None:
                data = bytearray(frame.data)
                for _ in range(random.randrange(1, 4)):
                    data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
                frame.data = bytes(data)[: len(data) - random.randrange(2)]

        event = request_event(exchange, wall)

        assert mistakes(REQUEST_EVENT, event) == [], f"v{version} seed {seed}"
        assert event["api"] == api.name
