"""Bytes from an enemy: a watcher never raises, and what it keeps is bounded."""

from __future__ import annotations

import os
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.protocol.table import schema
from kproxy.record.exchange import Depth
from kproxy.record.observer.exchange_builder import KEPT
from tests.record.observer.watching import BROKER, Watching, play, random_talk, whole_summary
from tests.support.random_peers import Manners, mangled

EVERYTHING = bool(os.environ.get("KPROXY_TEST_ALL"))
APIS = sorted(schema.names())


@settings(deadline=None, max_examples=2000 if EVERYTHING else 150)
@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=60))), st.sampled_from(list(Depth)))
def test_any_bytes(said: list[tuple[bool, bytes]], depth: Depth) -> None:
    """Whatever is said on both sides, nothing is raised, and all bytes are counted."""
    watching = Watching(depth, most=50, summary=whole_summary())
    for client, data in said:
        (watching.client if client else watching.broker)(data)
    watching.end()
    watching.observer.summary.drain(200.0, everything=True)
    for one in watching.seen:
        assert one.request_body is None or one.request is not None
        assert one.response_body is None or one.response is not None

    assert sum(len(data) for _, data in said) == sum(watching.counts()[4:])


@pytest.mark.parametrize("seed", range(400 if EVERYTHING else 40))
def test_changed_bytes(seed: int) -> None:
    """Good conversations with some bytes changed, cut anywhere: nothing is raised, each request is handed out once."""
    random = Random(seed)
    manners = Manners(silent=0.1, swap=0.2, mangle=0.3, junk=0.1)
    talk = random_talk(random, random.sample(APIS, 12), 25, manners, mangle=0.3)
    talk = [(side, mangled(data, random, 0) if random.random() < 0.1 else data) for side, data in talk]
    depth = random.choice(list(Depth))
    watching = Watching(depth, most=random.choice((100, 100_000)), summary=whole_summary())
    play(talk, watching, random if seed % 2 else None).end()
    lines = watching.observer.summary.drain(200.0, everything=True)

    requests, responses, unanswered = watching.counts()[:3]
    assert requests == sum(line.count for line in lines if line.topic is None and line.topic_id is None)
    assert requests >= responses + unanswered
    assert len(watching.seen) == (requests if depth >= Depth.LINES else 0)


def test_memory_of_long_frames() -> None:
    """Requests that claim to be large and are, at every depth, take no more than the room that there is for them."""
    watching = Watching(Depth.FULL)
    tracemalloc.start()
    for number in range(60):
        head = b"\0\3\0\x09" + number.to_bytes(4, "big") + b"\xff\xff"
        watching.client((1 << 20).to_bytes(4, "big") + head).client(b"\x7f" * ((1 << 20) - len(head)), 1 << 18)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < KEPT + (2 << 20)
    assert len(watching.observer.open) == 60


def test_memory_of_names() -> None:
    """A client that makes up a name for each request does not make the summary grow without limit."""
    from kproxy.tools.rehearse.dialogue import request, response

    watching = Watching(Depth.ROWS, summary=whole_summary())
    for number in range(3000):
        watching.client(request(12, 4, number, f"client-{number}")).broker(response(12, 4, number))
        topics = [{"topic": f"t{number}", "partitions": [{"partition_index": 0, "high_watermark": 1}]}]
        watching.client(request(1, 11, number, "one")).broker(response(1, 11, number, responses=topics))
    summary = watching.observer.summary
    lines = summary.drain(200.0, everything=True)

    assert len(lines) < 3600
    assert 3000 == sum(line.count for line in lines if line.api == "Heartbeat")
    families = watching.observer.request_templates.values()
    assert sum(len(family.clients) + sum(len(form.known) for form in family.forms) for family in families) <= 400


def test_a_broker_that_answers_nobody() -> None:
    """Responses without requests are counted, and the connection is watched on."""
    watching = Watching(Depth.SKETCH)
    play([(BROKER, (6).to_bytes(4, "big") + number.to_bytes(6, "big")) for number in range(100)], watching)

    assert 100 == watching.observer.unread
