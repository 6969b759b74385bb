"""A config that changes under the traffic of a real client: no connection is cut, no record is lost."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import free_port, free_port_with_room
from tests.support.live_proxy import LiveProxy

CHANGES = 20
ENDED_BY_CLIENTS = {"client_closed", "client_reset", "broker_closed"}
"""A client that hears of other addresses connects there, and ends what it has; a broker may end that, too, then."""


def test_no_record_is_lost_and_no_connection_cut() -> None:
    """Other listeners come and go, the client's own one gets other addresses and another login to be, limits and its
    cluster's settings change; all that ends is what clients end."""
    port, other = free_port_with_room(16), free_port()
    with MockCluster(2) as cluster:
        cluster.create_topic("orders", partitions=2)

        def config(number: int) -> dict[str, Any]:
            own: dict[str, Any] = {"name": "own", "bind": f"127.0.0.1:{port}", "cluster": "main"}
            if number % 2:
                own["advertise"] = {"host": "localhost"}
            listeners = [own]
            if number % 3:
                listeners.append({"name": f"other{number % 3}", "bind": f"127.0.0.1:{other}", "cluster": "main"})
            dial = {"nowhere:1": f"nowhere:{1 + number % 2}"}
            clusters = {"main": {"bootstrap": cluster.bootstrap.split(","), "dial": dial if number % 4 else {}}}
            limits = {"max_connections": 500 + number % 5, "max_buffered_bytes": f"{64 + number % 2}MiB"}
            return {"clusters": clusters, "listeners": listeners, "limits": limits}

        with LiveProxy(config(0)) as live:
            stop, written, errors = threading.Event(), itertools.count(), list[Any]()
            producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all", "linger.ms": 1})

            def write() -> None:
                while not stop.is_set():
                    for _ in range(50):
                        value = str(next(written))
                        producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
                    producer.flush(20)

            writes = threading.Thread(target=write)
            writes.start()
            for number in range(1, CHANGES):
                live.apply(config(number))
            stop.set()
            writes.join(60)
            assert producer.flush(20) == 0
            assert [error for error in errors if error is not None] == []
            group = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "auto.offset.reset": "earliest"}
            consumer = Consumer(group)
            try:
                consumer.subscribe(["orders"])
                values: set[bytes] = set()
                end = time.monotonic() + 40
                while len(values) < len(errors):
                    assert time.monotonic() < end, f"{len(values)} of {len(errors)} records came"
                    values.update(record.value() for record in consumer.consume(500, 0.2))
                    live.apply(config(len(values)))
                ends = live.call(lambda: list(live.proxy.server.last_ends))
                assert [(end.cause, end.message) for end in ends if end.cause not in ENDED_BY_CLIENTS] == []
            finally:
                consumer.close()
