"""What workers have counted is added up by name, under the same limit, over restarts."""

from __future__ import annotations

import msgspec
import pytest

from kproxy.record.metrics.client_telemetry import CLIENT_TELEMETRY, GaugeRow, TelemetryConfig
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.metrics.worker_totals import LabelShare, WorkerTotals, share_of

CONFIG = MetricsConfig(by=["client_id", "group"], series=3)
REQUESTS = ("kproxy_client_requests_total", "other")


def count(totals: LabelTotals, name: str, number: int = 1) -> None:
    totals.add("client_id", name, [(REQUESTS, number)], 0.0)


def tell(told: WorkerTotals, worker: int, totals: LabelTotals) -> None:
    share = msgspec.msgpack.decode(msgspec.msgpack.encode(share_of(totals)), type=LabelShare)
    for _ in told.take(worker, share, 0.0):
        pass


def requests(told: WorkerTotals) -> dict[str, float]:
    return {one.name: one.values[REQUESTS] for one in told.totals.tables["client_id"].everything()}


def test_sums_by_name_however_often_they_are_told() -> None:
    told, workers = WorkerTotals(LabelTotals(CONFIG)), [LabelTotals(CONFIG), LabelTotals(CONFIG)]
    for turn in range(3):
        for worker, totals in enumerate(workers):
            count(totals, "both")
            count(totals, f"only-{worker}", turn)
            tell(told, worker, totals)
            tell(told, worker, totals)

    assert requests(told) == {"both": 6, "only-0": 3, "only-1": 3}


def test_the_limit_holds_once_more_and_the_sum_stays() -> None:
    """Each worker has three names, all have nine: three of them have series here."""
    told = WorkerTotals(LabelTotals(CONFIG))
    for worker in range(3):
        totals = LabelTotals(CONFIG)
        for number in range(5):
            count(totals, f"name-{worker}-{number}")
        tell(told, worker, totals)

    found = requests(told)
    assert found == {"name-0-0": 1, "name-0-1": 1, "name-0-2": 1, "other": 12}
    assert told.totals.tables["client_id"].overflow == 12


def test_a_worker_that_begins_anew_makes_no_counter_fall() -> None:
    told, before, after = WorkerTotals(LabelTotals(CONFIG)), LabelTotals(CONFIG), LabelTotals(CONFIG)
    count(before, "a", 100)
    tell(told, 0, before)
    told.begins(0)
    assert requests(told) == {"a": 100}
    count(after, "a", 120)  # more than the process before had told
    tell(told, 0, after)

    assert requests(told) == {"a": 220}


@pytest.mark.parametrize("more", [3, 130])
def test_a_series_that_a_worker_gave_up_and_began_again_is_added(more: int) -> None:
    told, totals = WorkerTotals(LabelTotals(CONFIG)), LabelTotals(CONFIG)
    count(totals, "a", 100)
    tell(told, 0, totals)
    del totals.tables["client_id"].series["a"]
    count(totals, "a", more)
    tell(told, 0, totals)

    assert requests(told) == {"a": 100 + more}


def test_a_label_that_was_gone_between_two_looks_counts_all_that_came_since() -> None:
    """What a worker has not room for is another number then, too, and so are the partitions that it has forgotten."""
    told, worker = WorkerTotals(LabelTotals(CONFIG, rests=True)), LabelTotals(CONFIG)
    assert worker.lags is not None
    worker.lags.forgotten = 5
    for name in ("a", "b", "c", "d"):
        count(worker, name, 10)
    tell(told, 0, worker)
    for config in (MetricsConfig(), CONFIG):
        told.totals.prepare(config, None)()
        worker.prepare(config, None)()
    worker.lags.forgotten = 7
    for name in ("a", "b", "c", "d"):
        count(worker, name, 25)
    tell(told, 0, worker)

    assert requests(told) == {"a": 35, "b": 35, "c": 35, "other": 35}
    assert told.totals.tables["client_id"].overflow == 35
    assert told.totals.lags is not None
    assert told.totals.lags.forgotten == 12


def test_lag_of_a_group_whose_commits_and_ends_are_in_two_workers() -> None:
    told, one, other = WorkerTotals(LabelTotals(CONFIG)), LabelTotals(CONFIG), LabelTotals(CONFIG)
    one.add("group", "g", [(("kproxy_group_commits_total", ""), 1)], 0.0)
    assert one.lags is not None
    assert other.lags is not None
    assert told.totals.lags is not None
    one.lags.commit("g", ("main", "t", 0), 5, 1.0)
    other.lags.end(("main", "t", 0), 25, 1.0)
    for worker, totals in enumerate((one, other)):
        tell(told, worker, totals)

    assert told.totals.lags.lags() == {("g", "t"): 20}


def test_labels_that_come_and_go_in_all_processes_make_no_counter_fall() -> None:
    """Whoever has the other config first: what is told by labels that are not told here is passed over."""
    told, worker = WorkerTotals(LabelTotals(CONFIG, rests=True)), LabelTotals(CONFIG)
    none = MetricsConfig()
    count(worker, "a", 100)
    tell(told, 0, worker)
    told.totals.prepare(none, None)()
    tell(told, 0, worker)
    worker.prepare(none, None)()
    tell(told, 0, worker)
    assert told.totals.tables == {}
    told.totals.prepare(CONFIG, None)()
    assert requests(told) == {"a": 100}
    worker.prepare(CONFIG, None)()
    count(worker, "a", 7)
    tell(told, 0, worker)

    assert requests(told) == {"a": 107}


def test_clients_metrics_by_labels_of_another_config_are_passed_over() -> None:
    """A series would have too many labels, or too few."""
    line = ("producer_connection_creation_total", "")
    one, two = TelemetryConfig(labels=["client_id"]), TelemetryConfig(labels=["client_id", "role"])
    told, worker = WorkerTotals(LabelTotals(MetricsConfig(), one, rests=True)), LabelTotals(MetricsConfig(), one)
    worker.add(CLIENT_TELEMETRY, "c", [(line, 4)], 0.0)
    worker.add_gauges([GaugeRow("c", "producer_node_request_latency_max", 1, 2.0, 2.0, 2.0)], 0.0)
    told.totals.prepare(MetricsConfig(), two)()
    tell(told, 0, worker)
    assert told.totals.tables[CLIENT_TELEMETRY].everything() == []
    assert told.totals.telemetry is not None
    assert told.totals.telemetry.told == {}
    told.totals.prepare(MetricsConfig(), one)()
    tell(told, 0, worker)

    assert [one.values[line] for one in told.totals.tables[CLIENT_TELEMETRY].everything()] == [4]
