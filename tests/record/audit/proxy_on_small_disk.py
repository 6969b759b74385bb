"""kproxy in front of a mock cluster, with its audit on a small disk that is full, and later is not: FOLDER POLICY.

Runs in a mount namespace of its own, see test_traffic.py. Prints what happened as one JSON object, and copies what was
published to FOLDER.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import Proxy, free_port_with_room
from tests.record.audit.small_disk import SIZE, mount
from tests.support.wait import until

RECORDS = 1200


def main(target: str, when_full: str) -> None:
    disk = Path(f"{target}-disk")
    disk.mkdir()
    mount(disk, 0)
    ballast = disk / "ballast"
    ballast.write_bytes(b"\xff" * (SIZE - 100_000))
    listener = {"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}
    audit = {"dir": str(disk / "audit"), "flush": "50ms", "level": "requests", "when_full": when_full, "queue": 300}
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 1)
        document = {"clusters": {"main": {"bootstrap": [cluster.bootstrap]}}, "listeners": [listener], "audit": audit}
        with Proxy(config=document) as proxy:
            said = records(proxy, ballast, when_full)
            assert proxy.child is not None
            assert proxy.child.stop(30) == 0
    shutil.copytree(disk / "audit", target)
    print(json.dumps(said))


def records(proxy: Proxy, ballast: Path, when_full: str) -> dict[str, Any]:
    """A request for each record, until all are acknowledged or clients wait; then there is room on the disk."""
    options = {"bootstrap.servers": proxy.bootstrap, "linger.ms": 0, "batch.num.messages": 1, "log_level": 0}
    options["max.in.flight"] = 50  # else kproxy may have read them all before the disk is full
    producer = Producer(options)
    for _ in range(RECORDS):
        producer.produce("orders", b"socks", partition=0)
    if when_full == "drop":
        producer.flush(30)
    else:
        until(lambda: producer.poll(0) or proxy.metric("kproxy_audit_failing") == 1)  # else the queue may be full only
        until(lambda: producer.poll(0) or proxy.get("/readyz")[0] == 503)
    waiting, failing = len(producer), proxy.metric("kproxy_audit_failing")
    ballast.unlink()
    until(lambda: proxy.metric("kproxy_audit_failing") == 0)
    left = producer.flush(30)
    until(lambda: proxy.get("/readyz")[0] == 200)
    return {"failing": failing, "waiting": waiting, "left": left, "dropped": proxy.metric("kproxy_audit_dropped_total")}


if __name__ == "__main__":
    main(*sys.argv[1:])
