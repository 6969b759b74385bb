"""The quota kind over processes: what it limits, by whatever it is counted for, is limited for all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kproxy.app.workers.shared_table import SharedTable
from kproxy.rules.bucket import Bucket, SharedBucket, SharedFetchBucket
from kproxy.rules.kinds.base.quota import LimitedResource, QuotaEffect, QuotaWord
from kproxy.rules.kinds.quota import Quota
from kproxy.rules.shared_numbers import SharedNumbers

RESOURCES: tuple[LimitedResource, ...] = ("produce", "fetch", "requests", "connections")
SECONDS, STEP = 6.0, 0.01


def charge(buckets: Any, key: tuple[Any, ...], amount: float, now: float) -> float:
    bucket = buckets.of(key, now)
    assert bucket is not None
    return float(bucket.charge(amount, now))


@pytest.fixture
def table() -> Iterator[SharedTable]:
    made = SharedTable.create(groups=64)
    yield made
    made.close()


def effects(table: SharedTable, count: int, **limits: Any) -> list[QuotaEffect]:
    rule = Quota.model_validate({"name": "q", "kind": "quota", **limits})
    made = [rule.start() for _ in range(count)]
    for index, effect in enumerate(made):
        effect.common = SharedNumbers(table.cells, b"quotaown", f":{index}" if index else "")
    return made


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("workers", [2, 4])
def test_all_together_get_the_limit(table: SharedTable, resource: LimitedResource, workers: int) -> None:
    """Each worker sends as soon as it may; over all of them it is the rate, and the burst once, within 5 %. The client
    beside them has a limit of its own."""
    unit = 1000.0 if resource in ("produce", "fetch") else 1.0
    rate = "100KB/s" if unit > 1 else "100/s"
    made = effects(table, workers, per=["client_address" if resource == "connections" else "client_id"],
                   burst="1s", **{resource: rate})  # fmt: skip
    sent = {"one": 0.0, "two": 0.0}
    free = {(index, key): 0.0 for index in range(workers) for key in sent}
    for step in range(int(SECONDS / STEP)):
        now = step * STEP
        for (index, key), until in free.items():
            if until > now:
                continue
            buckets = getattr(made[index], resource)
            wait = charge(buckets, (key,), unit, now)
            sent[key] += unit
            free[index, key] = now + max(wait, STEP / 10)

    limit = 100 * unit * (SECONDS + 1)
    assert all(0.95 * limit <= total <= 1.05 * limit for total in sent.values())


@pytest.mark.parametrize(
    "word", ["client_id", "principal", "client_address", "client_network", "topic", "api", "node", "listener"]
)
def test_what_is_told_apart_by_all_is_counted_by_all(table: SharedTable, word: QuotaWord) -> None:
    """Values may be texts, numbers or unknown; each is its own, and the same in every worker."""
    one, two = effects(table, 2, per=[word], requests="10/s", burst="1s")
    assert one.requests is not None
    assert two.requests is not None
    for key in (("a",), (7,), (None,), ("",)):
        assert charge(one.requests, key, 10.0, 1.0) == 0
        assert charge(two.requests, key, 5.0, 1.0) == 0.5


def test_a_connection_is_counted_where_it_is(table: SharedTable) -> None:
    """Nobody else has it."""
    one, _ = effects(table, 2, per=["connection"], requests="10/s", fetch="1MB/s")
    assert one.requests is not None
    assert one.fetch is not None
    charge(one.requests, (4,), 1.0, 0.0)

    assert type(one.requests.of((4,), 0.0)) is Bucket
    assert table.used() == 0


def test_each_resource_has_its_own_numbers(table: SharedTable) -> None:
    """Also where they are counted for the same."""
    one, _ = effects(table, 2, per=[], produce="1MB/s", fetch="1MB/s", requests="10/s")
    for buckets, kind in ((one.produce, SharedBucket), (one.fetch, SharedFetchBucket), (one.requests, SharedBucket)):
        assert buckets is not None
        bucket = buckets.of((), 0.0)
        assert type(bucket) is kind
        bucket.charge(1.0, 0.0)

    assert table.used() == 3
