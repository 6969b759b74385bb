"""Measure verification: captures of librdkafka on a real Kafka, which writes records and reads them again, in batches
of 250 and of one.

    python -m tests.lab.verify.measure [--records N]

Prints a row of RESULTS.md for each view of each capture. Rates are per second of one process's CPU time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tracemalloc
from pathlib import Path
from statistics import median
from time import monotonic, process_time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kproxy.record.captures.pairs import paired
from kproxy.record.captures.reader import Capture
from kproxy.testing.kafka import Kafka
from kproxy.testing.plugin import PROXIED
from kproxy.testing.process import Proxy, free_port_with_room
from kproxy.tools.verify import Verifier, VerifyTerms, verify
from tests.support.topics import create_topics
from tests.support.wait import until

BATCHES = (250, 1)
PATIENCE = 120
TIMES = 5
WAYS = {
    "both views, headers": VerifyTerms(),
    "clients' view, headers": VerifyTerms(view="clients"),
    "both views, every record": VerifyTerms(records=True),
}


def recorded(kafka: Kafka, folder: Path, batch: int, records: int) -> Path:
    """Return a capture of so many records of up to 100 bytes, written in batches of `batch`, and all read once."""
    topic = f"batches-of-{batch}"
    create_topics(kafka.bootstrap("DIRECT"), topic, partitions=1)
    listener = {"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}
    config = {
        "clusters": {"main": {"bootstrap": [kafka.bootstrap("PROXIED")]}}, "listeners": [listener],
        "captures": str(folder),
    }  # fmt: skip
    with Proxy(config=config) as proxy:
        proxy.post(f"/api/captures?file={batch}&payload=full", {})
        producer = Producer({
            "bootstrap.servers": proxy.bootstrap, "batch.num.messages": batch, "linger.ms": 20 if batch > 1 else 0,
        })  # fmt: skip
        for number in range(records):
            producer.produce(topic, b"%d" % number * 20, partition=0)
            if not number % 1000:
                producer.flush(60)
        assert producer.flush(60) == 0
        consumer = Consumer({
            "bootstrap.servers": proxy.bootstrap, "group.id": "readers",
            "fetch.message.max.bytes": 200_000,  # longer answers than 1 MiB are not kept
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        read, limit = 0, monotonic() + PATIENCE
        while read < records:
            assert monotonic() < limit, f"read {read} of {records}"
            read += sum(one.error() is None for one in consumer.consume(1000, 1))
        consumer.close()
        del producer
        until(lambda: proxy.metric("kproxy_connections_open") <= 1)
    return folder / f"{batch}.pcapng"


def warm_up(kafka: Kafka, folder: Path) -> None:
    """Verify once what is small: what is made at first use is no part of a rate."""
    capture = recorded(kafka, folder, 10, 100)
    for terms in WAYS.values():
        verify(paired(Capture(capture, side="both")), terms)


def measured(capture: Path, terms: VerifyTerms, records: int) -> tuple[float, float, int]:
    """Return the CPU seconds of the middle one of some verifications, the bytes a record that one keeps until its
    verdict, and how many exchanges there were."""
    took = []
    for _ in range(TIMES):
        began = process_time()
        verdict = verify(paired(Capture(capture, side="both")), terms)
        took.append(process_time() - began)
    assert [one for one in verdict.findings if one.level == "proved"] == []
    assert verdict.counts["read afterwards"] == verdict.counts["acknowledged writes"] >= records // max(BATCHES)
    verifier = Verifier(terms)
    tracemalloc.start()
    for pair in paired(Capture(capture, side="both")):
        verifier.take(pair.front, pair.behind)
    verifier.verdict()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return median(took), kept / records, verdict.exchanges


def rounded(number: float) -> str:
    """Return a number with two digits that mean something."""
    return f"{float(f'{number:.2g}'):,.12g}"


def main() -> int:
    """Measure all ways, a row each."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.verify.measure")
    parser.add_argument("--records", type=int, default=100_000, help="records in batches of 250; a tenth of it alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kproxy-measure-") as folder, Kafka(1, listeners=[PROXIED]) as kafka:
        warm_up(kafka, Path(folder))
        for batch in BATCHES:
            records = given.records if batch > 1 else given.records // 10
            capture = recorded(kafka, Path(folder), batch, records)
            size = capture.stat().st_size
            for way, terms in WAYS.items():
                took, each, exchanges = measured(capture, terms, records)
                print(
                    f"| {batch} | {way} | {records:,} records, {size / 1e6:.0f} MB, {exchanges:,} exchanges | "
                    f"{rounded(records / took)} | {rounded(size / took / 1e6)} | {rounded(each)} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
