"""Clients' own metrics: read from payloads, added up over clients and workers, told to Prometheus, within bounds."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import cramjam
import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kproxy.protocol.records.compression import compress
from kproxy.record.metrics.client_telemetry import (
    CLIENT_TELEMETRY,
    KAFKA,
    MOST_CELLS,
    MOST_NAMES,
    MOST_UNPACKED,
    STANDARD,
    GaugeRow,
    PushRead,
    PushReader,
    TelemetryConfig,
    sample_name,
)
from kproxy.record.metrics.merged import collect_into
from kproxy.record.metrics.totals import LabelTotals, MetricsConfig
from kproxy.record.metrics.traffic import registry_of
from kproxy.record.metrics.worker_totals import LabelShare, TelemetryCollector, WorkerTotals, make_share, share_of
from kproxy.rules.names.composed import NameMap, NameMaps
from kproxy.session.telemetry import TelemetryPush
from tests.support.otlp_metrics import counted, gauge, metrics_data, point
from tests.support.stretches import IN_BOTH_UNITS, Unit

MADE = f"{KAFKA}producer.connection.creation.total"
WAIT_AVG, WAIT_MAX = f"{KAFKA}producer.record.queue.time.avg", f"{KAFKA}producer.record.queue.time.max"
AVG, MAX, TOTAL = (
    f"kproxy_client_telemetry_producer_{name}"
    for name in ("record_queue_time_avg", "record_queue_time_max", "connection_creation_total")
)


def push(*metrics: bytes, payload: bytes | None = None, codec: int = 0, **who: Any) -> TelemetryPush:
    """A payload of a client, which is called `shop` unless told."""
    known = {
        "instance": UUID(int=9), "terminating": False, "client_id": "shop", "principal": "User:ann",
        "software": "java/4.3", "listener": "main", "address": "10.0.0.1", "names": None, "owner": None,
    }  # fmt: skip
    return TelemetryPush(metrics_data(*metrics) if payload is None else payload, codec, **known | who)


class Told:
    """Totals with these settings, and a clock that a test sets."""

    def __init__(self, series: int = 200, **config: Any) -> None:
        self.config = TelemetryConfig(**config)
        self.reader = PushReader(self.config)
        self.totals = self.new(series)
        self.now = 1000.0

    def new(self, series: int = 200) -> LabelTotals:
        return LabelTotals(MetricsConfig(series=series), self.config)

    def take(self, one: TelemetryPush, totals: LabelTotals | None = None) -> PushRead:
        totals = totals or self.totals
        read = self.reader.read(one)
        assert read is not None
        for series, lines in read.counters.items():
            totals.add(CLIENT_TELEMETRY, series, list(lines.items()), self.now)
        totals.add_gauges(read.gauges, self.now)
        return read

    def text(self, totals: LabelTotals | None = None) -> str:
        return generate_latest(registry_of(TelemetryCollector(totals or self.totals, lambda: self.now))).decode()

    def samples(self, totals: LabelTotals | None = None) -> dict[tuple[str, ...], float]:
        """What Prometheus reads: (name, values of the labels in the order of their names…) → number."""
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(self.text(totals))
            for sample in family.samples
            if sample.name.startswith("kproxy_client")
        }


# ---- one payload


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_is_read(codec: int) -> None:
    plain = metrics_data(counted(MADE, point(2)))
    told = Told()
    told.take(push(payload=compress(codec, plain), codec=codec))
    assert told.samples() == {(TOTAL, "shop", "java/4.3"): 2}


@pytest.mark.parametrize(
    ("payload", "codec"),
    [
        (b"no metrics", 0),
        (b"not packed", 4),
        (bytes(cramjam.zstd.compress(bytes(MOST_UNPACKED + 1))), 4),
        (bytes(cramjam.gzip.compress(bytes(100 << 20))), 1),
        (bytes(cramjam.snappy.compress_raw(bytes(MOST_UNPACKED + 1))), 2),
        (b"x" * 10, 9),
        (bytes(cramjam.zstd.compress(metrics_data(counted(MADE, *[point(1)] * 11_000)))), 4),
    ],
    ids=["bytes", "unpacked", "zstd bomb", "gzip bomb", "snappy bomb", "codec", "points"],
)
def test_what_cannot_be_read_is_nothing(payload: bytes, codec: int) -> None:
    """However it was packed, and however large it would become."""
    assert PushReader(TelemetryConfig()).read(push(payload=payload, codec=codec)) is None


def test_only_standard_metrics_are_taken_unless_others_are_asked_for() -> None:
    other = gauge(f"{KAFKA}producer.mine.avg", point(1)), gauge(f"{KAFKA}producer.connection.creation.rate", point(1))
    standard, every, some = Told(), Told(metrics="all"), Told(metrics=[f"{KAFKA}producer.m"])
    for told in (standard, every, some):
        told.take(push(counted(MADE, point(1)), *other))

    assert {name for name, *_ in standard.samples()} == {TOTAL}
    assert {name for name, *_ in every.samples()} == {TOTAL, "kproxy_client_telemetry_producer_mine_avg"}
    assert {name for name, *_ in some.samples()} == {"kproxy_client_telemetry_producer_mine_avg"}


def test_numbers_of_several_nodes_are_one_clients() -> None:
    told = Told()
    told.take(push(counted(MADE, point(2), point(3)), gauge(WAIT_AVG, point(1.0), point(4.0))))
    assert told.samples() == {(TOTAL, "shop", "java/4.3"): 5, (AVG, "shop", "java/4.3"): 2.5}


def test_labels_say_who_it_is() -> None:
    """A topic has the broker's name."""
    told = Told(metrics="all", labels=["topic", "role", "principal", "listener", "software", "client_id"])
    names = NameMaps(topics=NameMap.of({"orders": "prod.orders"}))
    told.take(push(gauge(f"{KAFKA}consumer.lag.max", point(7, {"topic": "orders"})), names=names))
    told.take(push(gauge("com.example.odd", point(1)), client_id='a"b\nc'))

    lag, odd = ("kproxy_client_telemetry_consumer_lag_max", "kproxy_client_telemetry_com_example_odd")
    assert told.samples() == {
        (lag, "shop", "main", "User:ann", "consumer", "java/4.3", "prod.orders"): 7,
        (odd, r'a"b\u000ac', "main", "User:ann", "", "java/4.3", ""): 1,
    }


def test_labels_may_be_none() -> None:
    told = Told(labels=[])
    told.take(push(counted(MADE, point(2)), gauge(WAIT_MAX, point(3))))
    assert told.samples() == {(TOTAL,): 2, (MAX,): 3}


def test_a_payload_has_so_many_numbers_at_most() -> None:
    told = Told(metrics="all", labels=["topic"])
    points = [point(1, {"topic": f"t{number}"}) for number in range(MOST_CELLS + 5)]
    read = told.take(push(gauge("many.avg", *points)))
    assert (len(read.gauges), read.left_out) == (MOST_CELLS, 5)


# ---- all clients


def test_counters_add_up_and_gauges_come_together() -> None:
    """The mean, or the largest, or the smallest of what was said in this interval and the one before."""
    told = Told(metrics="all", interval="10s", labels=["software"])
    for number in (1, 2, 6):
        low = gauge("low.min", point(number))
        told.take(
            push(counted(MADE, point(number)), gauge(WAIT_AVG, point(number)), gauge(WAIT_MAX, point(number)), low)
        )
    low_name = "kproxy_client_telemetry_low_min"
    software = "java/4.3"
    assert told.samples() == {(TOTAL, software): 9, (AVG, software): 3, (MAX, software): 6, (low_name, software): 1}

    told.now += 10
    told.take(push(gauge(WAIT_MAX, point(5)), gauge(WAIT_AVG, point(7))))
    assert told.samples() == {(TOTAL, software): 9, (AVG, software): 4, (MAX, software): 6, (low_name, software): 1}
    told.now += 10
    assert told.samples() == {(TOTAL, software): 9, (AVG, software): 7, (MAX, software): 5}
    told.now += 10
    assert told.samples() == {(TOTAL, software): 9}


def test_many_clients_have_as_many_series_as_there_may_be() -> None:
    """All others are one; nothing is lost of what was counted."""
    told = Told(series=20, labels=["client_id"])
    for number in range(1_000):
        told.take(push(counted(MADE, point(1)), gauge(WAIT_MAX, point(number)), client_id=f"c{number}"))

    found = told.samples()
    assert sum(value for (name, _), value in found.items() if name == TOTAL) == 1_000
    assert found[TOTAL, "other"] == 980
    assert found[MAX, "other"] == 999
    assert len(found) == 42
    assert told.totals.telemetry is not None
    assert sum(map(len, told.totals.telemetry.gauges.cells.values())) == 21


def test_a_series_that_goes_takes_its_gauges_along() -> None:
    told = Told(labels=["client_id"], interval="1h")
    told.take(push(gauge(WAIT_MAX, point(1))))
    for minute in range(70):
        told.totals.tick(told.now + 60 * minute)
    assert told.samples() == {}


def test_made_up_names_are_so_many_at_most_and_drive_no_standard_one_out() -> None:
    told = Told(metrics="all", labels=[])
    for first in range(0, 2 * MOST_NAMES, 100):
        told.take(push(*[gauge(f"made.up.n{number}.avg", point(1)) for number in range(first, first + 100)]))
    told.take(push(*[gauge(name, point(1)) for name in STANDARD if not name.endswith(".total")]))

    assert len(told.samples()) == MOST_NAMES + sum(not name.endswith(".total") for name in STANDARD)
    assert "kproxy_telemetry_points_refused_total 300.0" in told.text()


@pytest.mark.parametrize(
    "others",
    [
        [counted("a", point(1)), gauge("a", point(1))],
        [gauge("a", point(1)), counted("a.total", point(1))],
        [gauge("a.b", point(1)), counted("a-b", point(1))],
        [gauge("a.total", point(1))],
        [gauge(MADE, point(1))],
    ],
)
def test_a_name_is_a_counter_or_a_gauge_for_good(others: list[bytes]) -> None:
    """Prometheus could not read both under one name."""
    told = Told(metrics="all", labels=[])
    for metric in others:
        told.take(push(metric))
    assert len(told.samples()) == len(others) - 1
    assert "kproxy_telemetry_points_refused_total 1.0" in told.text()


def test_names_are_what_prometheus_can_read() -> None:
    assert sample_name(f"{KAFKA}consumer.Poll-Idle.ratio_avg", grows=False) == "consumer_poll_idle_ratio_avg"
    assert sample_name(f"{KAFKA}a.total", grows=True) == sample_name(f"{KAFKA}a", grows=True) == "a_total"


# ---- workers


def tell(shares: WorkerTotals, worker: int, told: Told, totals: LabelTotals) -> None:
    share = msgspec.msgpack.decode(msgspec.msgpack.encode(share_of(totals, told.now)), type=LabelShare)
    for _ in shares.take(worker, share, told.now):
        pass


def test_workers_are_put_together() -> None:
    """Counters add up, however often they are told; a mean is that of all clients; the limit holds once more."""
    told = Told(labels=["client_id"])
    shares, workers = WorkerTotals(told.new(series=2)), [told.new(), told.new()]
    told.take(push(counted(MADE, point(2)), gauge(WAIT_AVG, point(1)), client_id="a"), workers[0])
    told.take(push(counted(MADE, point(3)), gauge(WAIT_AVG, point(4)), client_id="a"), workers[1])
    told.take(push(gauge(WAIT_AVG, point(7)), client_id="a"), workers[1])
    told.take(push(gauge(WAIT_MAX, point(9)), client_id="b"), workers[1])
    told.take(push(gauge(WAIT_MAX, point(5)), client_id="c"), workers[1])
    for _ in range(2):
        for worker, totals in enumerate(workers):
            tell(shares, worker, told, totals)

    both = shares.totals
    named = {name for kind, name in told.samples(both) if kind == MAX}
    assert named < {"b", "c", "other"}
    assert "other" in named
    assert told.samples(both)[TOTAL, "a"] == 5
    assert told.samples(both)[AVG, "a"] == 4

    shares.begins(1)
    tell(shares, 1, told, told.new())
    assert told.samples(both) == {(TOTAL, "a"): 5, (AVG, "a"): 1}


def test_what_workers_refuse_is_told_once() -> None:
    """However often workers tell what they have, and whoever asks; also what only meets here."""
    told = Told(metrics="all", labels=[])
    shares, workers = WorkerTotals(told.new()), [told.new(), told.new()]
    told.take(push(counted("a", point(1)), gauge("b", point(1))), workers[0])
    told.take(push(gauge("a", point(1)), counted("b", point(1))), workers[0])  # refused there
    told.take(push(gauge("a", point(1))), workers[1])  # refused here
    for _ in range(3):
        for worker, totals in enumerate(workers):
            tell(shares, worker, told, totals)
        assert "kproxy_telemetry_points_refused_total 3.0" in told.text(shares.totals)
    told.take(push(gauge("a", point(1))), workers[0])
    tell(shares, 0, told, workers[0])

    assert "kproxy_telemetry_points_refused_total 4.0" in told.text(shares.totals)
    assert set(told.samples(shares.totals)) == {
        ("kproxy_client_telemetry_a_total",), ("kproxy_client_telemetry_b",)
    }  # fmt: skip


@pytest.mark.deep
@IN_BOTH_UNITS
def test_gauges_of_many_clients_are_reported_in_short_steps(unit: Unit) -> None:
    """A process reports them to a scraper; a worker reports them to the supervisor, which merges them."""
    told = Told(series=500, metrics="all", labels=["client_id"])
    rows = [GaugeRow("", f"n{number}_avg", 1, 1.0, 1.0, 1.0) for number in range(MOST_NAMES)]
    for number in range(500):
        told.totals.add_gauges([msgspec.structs.replace(row, series=f"c{number}") for row in rows], told.now)
    made: list[LabelShare] = []
    both = told.new(500)
    steps = {
        "share": make_share(told.totals, told.now, made),
        "take": (step for share in made for step in WorkerTotals(both).take(0, share, told.now)),
        "own": collect_into([], TelemetryCollector(told.totals, lambda: told.now)),
        "all": collect_into([], TelemetryCollector(both, lambda: told.now)),
    }
    for name, work in steps.items():
        watch = unit.watch()
        with watch:
            for _ in work:
                watch.look()
        unit.judge(watch, {"lines": 400_000, "seconds": 0.03}[unit.name], name)
    assert len(made[0].gauges) == 500 * MOST_NAMES
    assert both.telemetry is not None
    assert sum(map(len, both.telemetry.told[0].values())) == 500 * MOST_NAMES


@pytest.mark.parametrize("labels", [["client_id"], ["client_id", "software"], ["client_id", "topic", "listener"]])
def test_a_client_that_calls_itself_other_is_one_of_those_without_series(labels: list[str]) -> None:
    """No series is told twice, or a scraper would refuse what is told of all."""
    told = Told(series=1, metrics="all", labels=labels)
    name = {"client_id": "other", "software": "other", "listener": "other"}
    of = {"topic": "other"}
    told.take(push(counted(MADE, point(2, of)), gauge(WAIT_MAX, point(2.0, of)), **name))
    told.take(push(counted(MADE, point(1)), gauge(WAIT_MAX, point(1.0))))
    told.take(push(counted(MADE, point(4)), gauge(WAIT_MAX, point(4.0)), client_id="late"))
    lines = [line.rpartition(" ")[0] for line in told.text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    assert told.samples()[TOTAL, *["other"] * len(labels)] == 6
    assert told.samples()[MAX, *["other"] * len(labels)] == 4


def test_a_number_that_a_client_claims_takes_nobodys_series() -> None:
    """Who has series is decided by how many numbers clients tell; the overflow counts numbers, too."""
    told = Told(series=1, labels=["client_id"])
    for minute in range(6):
        told.now += 61
        told.totals.tick(told.now)
        told.take(push(counted(MADE, point(1))))
        told.take(push(counted(MADE, point(1 << 62)), client_id="liar"))
        assert "shop" in told.totals.tables[CLIENT_TELEMETRY].series, minute
    assert told.totals.tables[CLIENT_TELEMETRY].overflow == 6
