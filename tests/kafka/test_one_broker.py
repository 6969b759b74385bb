"""A cluster of one broker: ports that stay, and what happens when the broker goes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.testing import one_request
from kproxy.testing.kafka import HOST, Kafka
from kproxy.testing.plugin import Proxies
from kproxy.testing.process import free_port


@pytest.mark.deep
def test_a_node_keeps_its_port_over_restarts(kafka: Kafka, kproxy_process: Proxies, tmp_path: Path) -> None:
    """With a state file, a second kproxy gives the node the port that the first one gave it."""
    config = {
        "clusters": {"main": {"bootstrap": [kafka.bootstrap("PROXIED")]}},
        "listeners": [{"name": "main", "bind": f"{HOST}:{free_port()}", "cluster": "main"}],
        "state": str(tmp_path / "state.json"),
    }

    first = kproxy_process(config=config)
    before = one_request.brokers(first.bootstrap)
    assert first.stop() == 0
    second = kproxy_process(config=config)
    (node, address), *others = one_request.brokers(second.bootstrap).items()

    assert (node, others) == (1, [])
    assert {node: address} == before
    assert one_request.brokers(address) == before
    assert int(address.rsplit(":", 1)[1]) not in kafka.ports("PROXIED")


@pytest.mark.deep
def test_a_broker_that_is_away_comes_back_for_the_same_proxy(kafka: Kafka, kproxy_process: Proxies) -> None:
    """While the broker is down a client is cut off, not left hanging; when it is back, clients are served again."""
    proxy = kproxy_process(kafka.bootstrap("PROXIED"))
    before = one_request.brokers(proxy.bootstrap)
    kafka.stop_broker(1)
    try:
        answered = True
        try:
            one_request.brokers(proxy.bootstrap)
        except OSError:
            answered = False
    finally:
        kafka.start_broker(1)

    assert not answered
    assert one_request.brokers(proxy.bootstrap) == before
