"""The soak in short: a broker and a worker are killed under an idempotent, a transactional and a reading client.

Only with KPROXY_TEST_ALL=1: it takes a minute, and up to three where librdkafka forgets a call (RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.testing.kafka import Kafka
from tests.lab.soak.chaos import Step
from tests.lab.soak.scene import Scene
from tests.lab.soak.soak import Soak

SECONDS = 12.0


@pytest.fixture
def scene(kafka3: Kafka) -> Iterator[Scene]:
    """On the brokers that others use, too: a broker comes back before the test ends."""
    with Scene(kafka3, disk=False) as scene:
        yield scene


@pytest.mark.deep
@pytest.mark.timeout(900)  # a broker's start takes two seconds, and a minute on a machine that has much else to do
def test_nothing_is_lost_doubled_or_turned_over_when_a_broker_and_a_worker_die(scene: Scene) -> None:
    """Record by record; counters and the audit's numbers add up, and no descriptor stays open."""
    lanes = [Step(2.0, "kill_broker", (2, 0.5))], [Step(3.0, "kill_worker", (0,)), Step(4.0, "recycle")]
    told = Soak(scene, rate=200, with_java=False, say=print).run(lanes, SECONDS)

    print("\n".join(told.facts))
    assert told.findings == []
