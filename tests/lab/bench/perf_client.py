"""A producer or a consumer with confluent-kafka, which names topics in Produce requests (version 10).

perf_client.py produce|consume BOOTSTRAP TOPIC RECORDS      records of 1000 bytes; prints {"records": …, "seconds": …}
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

SIZE = 1000  # bytes of a record
PATIENCE = 30.0  # seconds without a record


def produce(bootstrap: str, topic: str, records: int) -> float:
    """Seconds until all of them are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 5, "batch.size": 65536})
    value = bytes(i % 251 for i in range(SIZE))
    start = time.monotonic()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    if left := producer.flush(PATIENCE):
        raise TimeoutError(f"{left} of {records} records are not acknowledged")
    return time.monotonic() - start


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Seconds until all are read, from the beginning of partition 0. Raises ValueError when one is not whole."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "load", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    start, found = time.monotonic(), 0
    while found < records:
        messages = consumer.consume(min(1000, records - found), PATIENCE)  # waits until it has so many
        if not messages:
            raise TimeoutError(f"{found} of {records} records came")
        for message in messages:
            if message.error() or len(message.value() or b"") != SIZE:
                raise ValueError(f"record {found}: {message.error() or len(message.value() or b'')}")
        found += len(messages)
    taken = time.monotonic() - start
    consumer.close()
    return taken


if __name__ == "__main__":
    verb, bootstrap, topic, records = sys.argv[1:]
    work = {"produce": produce, "consume": consume}[verb]
    print(json.dumps({"seconds": work(bootstrap, topic, int(records)), "records": int(records)}))
