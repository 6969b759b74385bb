"""Records loopback.pcapng anew: `python -m tests.record.captures.golden.record`. Needs dumpcap, a JVM, the right to
capture.

The numbers in tests/record/captures are those of the file that is there; a new one has other ports and perhaps other
counts.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kproxy.testing.kafka import Kafka
from tests.support.capture_files import tool

FILE = Path(__file__).parent / "loopback.pcapng"
WRITTEN, LOST = 20, 3


def traffic(bootstrap: str) -> None:
    """A producer with lz4, one that wants no answers, and a consumer of a group."""
    shop = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "compression.type": "lz4"})
    for number in range(WRITTEN):
        shop.produce("orders", key=f"k{number % 3}", value=f"order {number}")
    shop.flush(10)
    careless = Producer({"bootstrap.servers": bootstrap, "client.id": "careless", "acks": 0})
    for number in range(LOST):
        careless.produce("orders", value=f"lost {number}")
        careless.flush(5)
    billing = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": "billing", "group.id": "bills", "auto.offset.reset": "earliest",
         "fetch.wait.max.ms": 300}
    )  # fmt: skip
    billing.subscribe(["orders"])
    read = 0
    while read < WRITTEN + LOST:
        message = billing.poll(10)
        assert message is not None and not message.error(), "the broker is too slow"
        read += 1
    billing.commit()
    billing.close()


def record() -> None:
    """Everything from before the first connection to after the last one."""
    with Kafka() as kafka:
        bootstrap = kafka.bootstrap("DIRECT")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
        port = bootstrap.rpartition(":")[2]
        command = [tool("dumpcap"), "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", str(FILE)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as dumpcap:
            assert dumpcap.stderr
            while "File:" not in dumpcap.stderr.readline():
                assert dumpcap.poll() is None, "dumpcap has ended"
            traffic(bootstrap)
            dumpcap.send_signal(signal.SIGINT)
    print(f"{FILE}: port {port}, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    record()
