"""The same traffic gives the same numbers everywhere: stats of a capture and of audit files, metrics, gold tables, and
what the clients counted themselves; with the audit's details `requests` and `summary`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from pyspark.sql import SparkSession

from kproxy.cli import main
from kproxy.cli.admin_client import Admin
from kproxy.lake import gold_lake
from kproxy.lake.gold_lake import GoldLake, gold
from kproxy.lake.gold_tables import answer_named
from kproxy.lake.jobs.ingest import FileSource, bronze, silver
from kproxy.lake.lake import Lake
from kproxy.lake.report import report_builder
from kproxy.lake.report.page import page
from kproxy.lake.report.report_builder import Period, build_report
from kproxy.lake.spark import Run
from kproxy.protocol.records import Record, encode_batch
from kproxy.testing.process import free_port
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.timeout(400)
DETAILS = ("requests", "summary")
PAGE = Path(__file__).parent.parent.parent / "docs" / "audit.md"
PRODUCE, FETCH, METADATA = 0, 1, 3
EXACT = ("requests", "errors", "unanswered", "request_bytes", "response_bytes")
COMPARED = ("traffic", "zones", "topic_producers", "topic_consumers", "errors_and_denials", "dormant_clients")
HOSTILE = "</script><b>x</b>&amp;"


@dataclass
class Counts:
    """What the clients counted: records by (client id, topic)."""

    stored: Counter[tuple[str, str]] = field(default_factory=Counter)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    """With acks=0."""
    read: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass
class Lived:
    """What one proxy has left: stats of its audit files and of its capture, its metrics, and its clients' counts."""

    events: dict[str, Any]
    capture: dict[str, Any]
    metrics: dict[tuple[str, str], float]
    counts: Counts


def rules(prefix: str) -> list[dict[str, Any]]:
    """A rename, errors in the broker's place and after its work, and a denial."""
    topic = f"{prefix}-orders"
    return [
        {"name": "names", "kind": "rename_topic", "topics": {topic: f"prod.{topic}"}},
        {"name": "refused", "kind": "error", "match": {"api": "Produce", "client_id": "unlucky"},
         "when": {"first": 3}, "error": "NOT_LEADER_OR_FOLLOWER"},
        {"name": "one of two", "kind": "error", "match": {"api": "Produce", "client_id": "raw", "topic": topic,
         "partition": 1}, "error": "KAFKA_STORAGE_ERROR"},
        {"name": "late", "kind": "error", "match": {"api": "Produce", "client_id": "late"}, "when": {"first": 1},
         "error": "REQUEST_TIMED_OUT", "at": "response"},
        {"name": "closed", "kind": "deny", "match": {"topic": topic, "client_id": ["spy", "vandal"]}},
    ]  # fmt: skip


def write(address: str, client: str, topic: str, records: int, into: Counter[tuple[str, str]], **more: Any) -> None:
    transaction = "transactional.id" in more
    producer = Producer({"bootstrap.servers": address, "client.id": client, "linger.ms": 5, **more})
    if transaction:
        producer.init_transactions(30)
        producer.begin_transaction()

    def delivered(error: Any, message: Any) -> None:
        into[client, message.topic()] += error is None

    for number in range(records):
        producer.produce(topic, b"v" * 100, key=str(number).encode(), on_delivery=delivered)
    assert producer.flush(30) == 0
    if transaction:
        producer.commit_transaction(30)


async def write_aiokafka(address: str, client: str, topic: str, records: int, counts: Counts) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address, client_id=client, compression_type="gzip", linger_ms=5)
    await producer.start()
    try:
        sent = [await producer.send(topic, b"v" * 100) for _ in range(records)]
        counts.stored[client, topic] += len(await asyncio.gather(*sent))
    finally:
        await producer.stop()


def read(address: str, client: str, topic: str, records: int, counts: Counts) -> None:
    consumer = Consumer({"bootstrap.servers": address, "client.id": client, "group.id": f"{topic}-{client}",
                         "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.subscribe([topic])
    try:
        while counts.read[client, topic] < records:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            counts.read[client, topic] += 1
    finally:
        consumer.close()


def read_kafka_python(address: str, client: str, topic: str, records: int, counts: Counts) -> None:
    consumer = KafkaConsumer(topic, bootstrap_servers=address, client_id=client, auto_offset_reset="earliest",
                             consumer_timeout_ms=20_000)  # fmt: skip
    for _ in consumer:
        counts.read[client, topic] += 1
        if counts.read[client, topic] == records:
            break
    consumer.close()


def spy(address: str, topic: str) -> None:
    """Is denied everything that it asks of the topic."""
    consumer = Consumer({"bootstrap.servers": address, "client.id": "spy", "group.id": f"{topic}-spy"})
    consumer.subscribe([topic])
    with suppress(KafkaException):
        for _ in range(4):
            consumer.poll(0.3)
    consumer.close()


def raw(address: str, topic: str, counts: Counts) -> None:
    """Two partitions in one request, of which a rule refuses one; one that does not exist; requests without an end."""
    batch = encode_batch([Record(at, 0, None, b"v" * 10) for at in range(7)])
    with RawClient(address) as client:
        named = {"topics": [{"name": topic}, {"name": f"{topic}-unknown"}], "allow_auto_topic_creation": False}
        client.send(client.request(METADATA, 8, named))
        client.frame()
        for parts in ((0, 1), (99,)):
            data = [{"index": part, "records": batch} for part in parts]
            body = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": data}]}
            client.send(client.request(PRODUCE, 8, body))
            client.frame()
        counts.stored["raw", topic] += 7
        whole = {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 1 << 40}]}
        client.send(client.request(FETCH, 11, {"max_wait_ms": 100, "min_bytes": 1, "topics": [whole]}))
        client.frame()  # OFFSET_OUT_OF_RANGE
        unknown = {"session_id": 77, "session_epoch": 5, "max_wait_ms": 100, "topics": [whole]}
        client.send(client.request(FETCH, 11, unknown))
        client.frame()  # FETCH_SESSION_ID_NOT_FOUND
    with RawClient(address) as client:  # is gone before its answer comes
        end = {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}
        client.send(client.request(FETCH, 11, {"max_wait_ms": 20_000, "min_bytes": 1 << 30, "topics": [end]}))
    with RawClient(address) as client:  # and in the middle of a request
        client.send(client.request(METADATA, 8, named)[:-3])


def live(address: str, prefix: str, counts: Counts) -> None:
    """Several clients one after the other."""
    orders, clicks = f"{prefix}-orders", f"{prefix}-clicks"
    admin = AdminClient({"bootstrap.servers": address, "client.id": "admin"})
    for created in admin.create_topics([NewTopic(name, 2, 1) for name in (orders, clicks)]).values():
        created.result(60)
    for created in admin.create_topics([NewTopic(orders, 2, 1)]).values():
        with suppress(KafkaException):
            created.result(60)  # it exists
    write(address, "unlucky", orders, 300, counts.stored, **{"enable.idempotence": True})
    write(address, "late", orders, 50, counts.stored, **{"enable.idempotence": True})
    write(address, "careless", clicks, 200, counts.sent, acks=0)
    write(address, "exact", clicks, 100, counts.stored, **{"transactional.id": f"{prefix}-tx"})
    write(address, "vandal", orders, 20, counts.stored, **{"message.timeout.ms": 3000})
    write(address, HOSTILE, clicks, 10, counts.stored)
    asyncio.run(write_aiokafka(address, "slow", clicks, 150, counts))
    raw(address, orders, counts)
    read(address, "reader", orders, 357, counts)
    read_kafka_python(address, "python", clicks, 460, counts)
    spy(address, orders)


def stats(path: Path) -> dict[str, Any]:
    ran = CliRunner().invoke(main, ["stats", "-o", "json", str(path)])
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def scraped(proxy: Any) -> dict[tuple[str, str], float]:
    """Requests by (API, version)."""
    with urllib.request.urlopen(f"http://{proxy.admin}/metrics", timeout=60) as said:
        text = said.read().decode()
    found: Counter[tuple[str, str]] = Counter()
    for api, version, number in re.findall(r'kproxy_requests_total\{api="(\w+)",.*?version="(\w+)"\} (\S+)', text):
        found[api, version] += float(number)
    return dict(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audits")


@pytest.fixture(scope="module")
def lived(kafka: Any, folder: Path) -> dict[str, Lived]:
    """The same traffic through a proxy with each detail, captured, too; clusters have the details' names."""
    from kproxy.testing.process import Proxy

    found = {}
    for detail in DETAILS:
        counts, audit = Counts(), folder / "events" / detail
        details = dict.fromkeys(("Produce", "Fetch", "Metadata"), detail)
        config = {
            "clusters": {detail: {"bootstrap": [kafka.bootstrap("PROXIED")]}},
            "listeners": [{"name": "outside", "bind": f"127.0.0.1:{free_port()}", "cluster": detail}],
            "audit": {"dir": str(audit), "flush": "100ms", "level": detail, "level_by_api": details},
            "captures": str(folder), "limits": {"drain_timeout": "1s"},
        }  # fmt: skip
        with Proxy(config=config, rules=rules(f"agree-{detail}")) as proxy:
            admin = Admin(f"http://{proxy.admin}")
            admin("POST", "/api/captures", query={"file": detail, "payload": "full", "side": "client"})
            live(proxy.bootstrap, f"agree-{detail}", counts)
            metrics = scraped(proxy)
        found[detail] = Lived(stats(audit), stats(folder / f"{detail}.pcapng"), metrics, counts)
    return found


@pytest.mark.parametrize("detail", DETAILS)
def test_stats_of_audit_files_and_of_the_capture_agree(lived: dict[str, Lived], detail: str) -> None:
    """In every number but percentiles, of which summaries know the bucket only, and the times' last digits."""
    events, capture = lived[detail].events, lived[detail].capture

    for table, key in (("apis", "api"), ("clients", "client_id")):
        of_events, of_capture = ({row[key]: [row[name] for name in EXACT] for row in one[table]} for one in
                                 (events, capture))  # fmt: skip
        assert of_events == of_capture
    assert {name: events["total"][name] for name in EXACT} == {name: capture["total"][name] for name in EXACT}
    for table in ("topics", "errors"):
        assert sorted(events[table], key=repr) == sorted(capture[table], key=repr)
    assert events["connections"] == capture["connections"]
    assert events["total"]["unanswered"] >= 1


@pytest.mark.parametrize("detail", DETAILS)
def test_metrics_count_the_same_requests(lived: dict[str, Lived], detail: str) -> None:
    """By API; but for the one that was cut off in its middle before it went anywhere."""
    of_metrics: Counter[str] = Counter()
    for (api, _), number in lived[detail].metrics.items():
        of_metrics[api] += int(number)
    of_events = {row["api"]: row["requests"] for row in lived[detail].events["apis"]}

    of_metrics["Metadata"] += 1

    assert of_events == dict(of_metrics)


@pytest.mark.parametrize("detail", DETAILS)
def test_errors_at_each_level_and_who_made_them(lived: dict[str, Lived], detail: str) -> None:
    """Refused in the broker's place, after its work, one of two partitions, by the broker, and as a whole."""
    errors = {
        (one["api"], one["error"], one["level"], one["by"]): one["count"] for one in lived[detail].events["errors"]
    }

    assert errors["Produce", "NOT_LEADER_OR_FOLLOWER", "request", "kproxy"] == 3
    assert errors["Produce", "REQUEST_TIMED_OUT", "request", "kproxy"] == 1
    for level in ("request", "partition"):
        assert errors["Produce", "KAFKA_STORAGE_ERROR", level, "kproxy"] == 1
        assert errors["Produce", "UNKNOWN_TOPIC_OR_PARTITION", level, "broker"] == 1
        assert errors["Fetch", "OFFSET_OUT_OF_RANGE", level, "broker"] == 1
    assert errors["Fetch", "FETCH_SESSION_ID_NOT_FOUND", "request", "kproxy"] == 1  # a session that no rule may judge
    assert errors["CreateTopics", "TOPIC_ALREADY_EXISTS", "request", "broker"] == 1
    assert any(by == "kproxy" and error == "TOPIC_AUTHORIZATION_FAILED" for _, error, _, by in errors)


@pytest.mark.parametrize("detail", DETAILS)
def test_records_are_what_the_clients_counted(lived: dict[str, Lived], detail: str) -> None:
    """Stored, sent without knowing, and read; not the refused ones."""
    counts = lived[detail].counts
    for topic in lived[detail].events["topics"]:
        name = topic["topic"]
        told = topic["written_records"], topic["unconfirmed_records"], topic["read_records"]
        assert told == tuple(
            sum(number for (_, one), number in kind.items() if one == name)
            for kind in (counts.stored, counts.sent, counts.read)
        )


@pytest.mark.parametrize("detail", DETAILS)
def test_the_command_of_the_page(lived: dict[str, Lived], folder: Path, detail: str) -> None:
    """Records stored by topic, as docs/audit.md shows it with jq."""
    shown = re.search(r"^\$ (zcat .*acks != 0\)\n(?:> .*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert shown is not None
    (folder / detail).mkdir()
    (folder / detail / "audit").symlink_to(folder / "events" / detail)
    command = ["bash", "-c", shown[1].replace("\n> ", "\n")]
    said = subprocess.run(command, cwd=folder / detail, capture_output=True, text=True, check=True, timeout=60).stdout

    stored: Counter[str] = Counter()
    for (_, topic), number in lived[detail].counts.stored.items():
        stored[topic] += number
    assert dict(line.split() for line in said.splitlines()) == {topic: str(number) for topic, number in stored.items()}


@pytest.fixture(scope="module")
def few() -> Iterator[None]:
    """Without KPROXY_TEST_ALL gold has only the tables that are compared, and the report their sections."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("KPROXY_TEST_ALL"):
            for module in (gold_lake, report_builder):
                patch.setattr(module, "ANSWERS", tuple(map(answer_named, COMPARED)))
        yield


@pytest.fixture(scope="module")
def lake(lived: dict[str, Lived], folder: Path, spark: SparkSession, few: None) -> GoldLake:
    """Gold of both proxies."""
    run = Run(spark, Lake(spark, str(folder / "lake")), print)
    for detail in DETAILS:
        assert bronze(run, FileSource(str(folder / "events" / detail))).corrupt == 0
    silver(run)
    gold(run)
    return GoldLake(run.lake)


@pytest.fixture(scope="module")
def answers(lake: GoldLake) -> Callable[[str], list[dict[str, Any]]]:
    """The rows of a gold table."""
    return lambda name: [row.asDict() for row in lake.read(answer_named(name)).collect()]


def summed(rows: list[dict[str, Any]], cluster: str, *names: str, by: tuple[str, ...] = ()) -> Counter[Any]:
    """Sums of columns by others, without zeros."""
    found: Counter[Any] = Counter()
    for row in rows:
        for name in names if row["cluster"] == cluster else ():
            found[(*(row[one] for one in by), name)] += row[name] or 0
    return +found


def test_gold_tables_say_the_same(lived: dict[str, Lived], answers: Callable[[str], list[dict[str, Any]]]) -> None:
    """As stats: requests, errors and bytes by API; as the clients: records by client and topic."""
    tables = {
        name: answers(name) for name in ("traffic", "zones", "topic_producers", "topic_consumers", "errors_and_denials")
    }
    columns = ("requests", "errors", "request_bytes", "response_bytes")
    for detail, one in lived.items():
        of_stats = +Counter({(row["api"], name): row[name] for row in one.events["apis"] for name in columns})
        assert summed(tables["traffic"], detail, *columns, by=("api",)) == of_stats
        assert summed(tables["zones"], detail, *columns[2:]) == summed(tables["traffic"], detail, *columns[2:])
        records = summed(tables["topic_producers"], detail, "records", by=("client_id", "topic"))
        assert records == +Counter({(*key, "records"): number for key, number in one.counts.stored.items()})
        unconfirmed = summed(tables["topic_producers"], detail, "unconfirmed_records", by=("client_id", "topic"))
        assert unconfirmed == {(*key, "unconfirmed_records"): number for key, number in one.counts.sent.items()}
        read_records = summed(tables["topic_consumers"], detail, "records", by=("client_id", "topic"))
        assert read_records == {(*key, "records"): number for key, number in one.counts.read.items()}
        by = ("api", "error", "scope", "responder")
        partitions = {
            (row["api"], row["error"], row["level"], row["by"], "count"): row["count"]
            for row in one.events["errors"]
            if row["level"] == "partition"
        }
        of_gold = [row for row in tables["errors_and_denials"] if row["api"] in ("Produce", "Fetch")
                   and row["scope"] == "partition"]  # fmt: skip
        assert summed(of_gold, detail, "count", by=by) == partitions
        requests = [row for row in tables["errors_and_denials"] if row["scope"] == "request" and row["responder"]]
        assert sum(summed(requests, detail, "count").values()) == one.events["total"]["errors"]
        cut_off = [row for row in tables["errors_and_denials"] if row["kind"] == "cut off"]
        assert sum(summed(cut_off, detail, "count").values()) == one.events["total"]["unanswered"]


@pytest.mark.deep
def test_lawful_traffic_has_no_violations(
    lived: dict[str, Lived], answers: Callable[[str], list[dict[str, Any]]]
) -> None:
    """Summaries by the minute are not checked, and counted so.

    Events have no timestamps, so a batch whose times the broker has changed is suspected to be another one.
    """
    rows = answers("violations")

    assert {row["check"] for row in rows if row["level"] != "note"} <= {"inconsistent-offset"}
    assert {"summary"} == {row["cluster"] for row in rows if row["check"] == "not-checked"} & lived.keys()


def test_the_report_says_the_same(lived: dict[str, Lived], lake: GoldLake, folder: Path) -> None:
    """Its figures are the sums; who was denied everything is no reader; bars are minutes; names are text."""
    made = build_report(lake, Period())
    figures = {name: int(value.replace("\u202f", "")) for name, value in made.overview.figures if "bytes" not in name}
    totals = [one.events["total"] for one in lived.values()]
    heads = {head.text: head.count for section in made.sections for head in section.headlines}
    html = page(made)
    (folder / "report.html").write_text(html)

    assert figures["requests"] == sum(total["requests"] for total in totals)
    assert figures["of them with an error"] == sum(total["errors"] for total in totals)
    assert figures["records written"] == sum(sum(one.counts.stored.values()) for one in lived.values())
    assert figures["records read"] == sum(sum(one.counts.read.values()) for one in lived.values())
    assert heads["clients read"] == len({(detail, key[0]) for detail, one in lived.items() for key in one.counts.read})
    assert "requests per minute" in html
    assert "made by rules of kproxy" in html
    assert HOSTILE not in html
    assert html.count("<table>") == html.count('<div class="scroll"')
