"""The gold job: which days it makes anew, and what comes of late data, retention and kills.

What is about days is tried with some answers, with KPROXY_TEST_ALL=1 with all of them.
"""

import os
from datetime import date

import pytest

from kproxy.lake import gold_lake as job
from kproxy.lake import spark as planning
from kproxy.lake.gold_lake import GoldLake
from kproxy.lake.gold_tables import ANSWERS, answer_named
from kproxy.lake.lake import BatchLedger, Lake
from kproxy.lake.report import report_builder
from kproxy.lake.report.page import page
from kproxy.lake.report.report_builder import Period, build_report
from kproxy.lake.spark import Run
from kproxy.lake.tables import table_named
from tests.support.report_page import without_drawings_ids

pytestmark = pytest.mark.timeout(600)
WRITE = {"api": "Produce", "topic": "orders", "partition": 0, "client_id": "shop", "records": 5, "bytes": 500}
FEW = ("topic_producers", "rules_effect")
COMPILED = "spark.sql.codegen.wholeStage"
OF_THE_REPORT = ("traffic", "topic_producers", "topic_consumers", "dormant_clients", "kafka4_readiness")


@pytest.fixture(params=[FEW])
def few(monkeypatch, request):
    """Most answers are left out, since Spark plans and writes each for each change."""
    if not os.environ.get("KPROXY_TEST_ALL"):
        some = tuple(answer_named(name) for name in request.param)
        for module in (job, report_builder):
            monkeypatch.setattr(module, "ANSWERS", some)


@pytest.fixture
def as_usual(spark):
    """Spark plans as users have it; tests of this folder have it interpret."""
    before = {name: spark.conf.get(name) for name in planning.FOR_SMALL_DATA}
    for name, (usual, _) in planning.FOR_SMALL_DATA.items():
        spark.conf.set(name, usual)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def run(spark, tmp_path):
    return Run(spark, Lake(spark, str(tmp_path / "lake")), print)


@pytest.fixture
def put(run, silver):
    """put("b1", produce_partitions=[…]): a finished batch of silver."""

    def write(batch, **rows):
        for name, made in silver(**rows).items():
            if name in rows:
                run.lake.replace(table_named(name), made.drop("batch"), batch)
        BatchLedger(run.lake, "silver").add(batch, {})

    return write


def written(gold):
    return {row["topic"]: row["records"] for row in gold.read(answer_named("topic_producers")).collect()}


@pytest.mark.deep
@pytest.mark.usefixtures("few")
def test_late_rows_of_an_old_day_change_that_day_only(run, put):
    """The partials of other days stay the very files; a run without changes does nothing; the answer over all days
    has everything."""
    gold = GoldLake(run.lake)
    put("b1", produce_partitions=[{**WRITE, "time": f"2026-11-{day} 10:00:00"} for day in (18, 19)])
    first = job.gold(run)
    files = {day: run.lake.files.glob(f"{gold.daily_path('topic_producers')}/dt=2026-11-{day}/*") for day in (18, 19)}
    again = job.gold(run)
    put("b2", produce_partitions=[{**WRITE, "time": "2026-11-18 23:00:00"}])
    late = job.gold(run)

    assert ([date(2026, 11, 18), date(2026, 11, 19)], [], [date(2026, 11, 18)]) == (first.days, again.days, late.days)
    assert (True, False, True) == (first.combined, again.combined, late.combined)
    assert files[19] == run.lake.files.glob(f"{gold.daily_path('topic_producers')}/dt=2026-11-19/*")
    assert files[18] != run.lake.files.glob(f"{gold.daily_path('topic_producers')}/dt=2026-11-18/*")
    assert {"orders": 15} == written(gold)


@pytest.mark.usefixtures("few")
def test_what_has_gone_from_a_day_goes_from_its_partials_and_days_without_silver_keep_theirs(run, put):
    """A batch that is taken out takes its answers with it; retention of silver takes none."""
    gold = GoldLake(run.lake)
    put("b1", produce_partitions=[{**WRITE, "time": "2026-11-18 10:00:00"}])
    put("b2", produce_partitions=[{**WRITE, "topic": "other"}], groups=[{"api": "Heartbeat", "group": "g"}])
    job.gold(run)
    run.lake.drop_day(table_named("produce_partitions"), date(2026, 11, 18))
    run.lake.drop_batch(table_named("produce_partitions"), "b2")
    made = job.gold(run)

    assert ([date(2026, 11, 20)], {"orders": 5}) == (made.days, written(gold))


@pytest.mark.deep
@pytest.mark.usefixtures("few")
def test_a_batch_that_silver_had_not_finished_is_looked_at_again(run, put, silver):
    """Its rows are taken as they are; once silver has finished it, the day is made anew."""
    rows = silver(produce_partitions=[WRITE])["produce_partitions"].drop("batch")
    run.lake.replace(table_named("produce_partitions"), rows, "b1")
    job.gold(run)
    put("b1", produce_partitions=[WRITE, WRITE])

    assert [date(2026, 11, 20)] == job.gold(run).days
    assert {"orders": 10} == written(GoldLake(run.lake))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("few", [OF_THE_REPORT], indirect=True)
def test_gold_of_an_empty_lake_has_empty_tables_and_no_days(run):
    """All tables are there, with their columns and no rows."""
    made, gold = job.gold(run), GoldLake(run.lake)
    report = build_report(gold, Period())

    assert ([], True) == (made.days, made.combined)
    assert all(gold.read(answer).schema.names == [column.name for column in answer.columns] for answer in ANSWERS)
    assert report.overview.days == ()


@pytest.mark.deep
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("few", [OF_THE_REPORT], indirect=True)
def test_a_report_of_a_period_is_of_its_days(run, put):
    """Combined from their partials; hostile names are text in it; days outside of it are not in it."""
    writes = [
        {**WRITE, "time": "2026-11-18 10:00:00", "topic": "<script>alert(1)</script>"},
        {**WRITE, "time": "2026-11-19 10:00:00", "topic": "later"},
    ]
    old = {"api": "Produce", "time": "2026-11-18 10:00:00", "client_id": "<b>shop</b>", "version": 2}
    put("b1", produce_partitions=writes, requests=[old])
    job.gold(run)
    period = Period(None, date(2026, 11, 18))
    report = build_report(GoldLake(run.lake), period)
    text = page(report)

    assert ("2026-11-18",) == report.overview.days
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "<script>alert" not in text
    assert "<td>later" not in text and "<b>shop" not in text
    heads = {head.text: head.count for section in report.sections for head in section.headlines}
    assert (1, 1) == (heads["clients would break on Kafka 4"], heads["clients write"])


@pytest.mark.deep
@pytest.mark.usefixtures("few", "as_usual")
@pytest.mark.parametrize("few", [OF_THE_REPORT], indirect=True)
def test_small_data_is_planned_in_another_way_and_gives_the_same(spark, tmp_path, silver, monkeypatch):
    """The same days with Spark's compiler and without; afterwards it is as it was."""
    rows = {
        "produce_partitions": [{**WRITE, "time": f"2026-11-{day} 10:00:00", "records": day} for day in (18, 19)],
        "fetch_partitions": [{**WRITE, "api": "Fetch", "client_id": "till", "records": 3}],
        "requests": [{"api": "Produce", "time": "2026-11-18 10:00:00", "client_id": "shop", "version": 2, "count": 4}],
    }
    given = {}
    for name, limit in (("small", 1 << 30), ("large", 0)):
        monkeypatch.setattr(planning, "SMALL", limit)
        seen = []
        run = Run(
            spark, Lake(spark, str(tmp_path / name)), lambda line, seen=seen: seen.append(spark.conf.get(COMPILED))
        )
        for table, made in silver(**rows).items():
            if table in rows:
                run.lake.replace(table_named(table), made.drop("batch"), "b1")
        BatchLedger(run.lake, "silver").add("b1", {})
        job.gold(run)
        gold = GoldLake(run.lake)
        answers = {one.name: sorted(map(repr, gold.read(one).collect())) for one in map(answer_named, OF_THE_REPORT)}
        given[name] = answers, without_drawings_ids(page(build_report(gold, Period())))
        assert {"true" if name == "large" else "false"} == set(seen[1:])  # the first line is said before
        assert spark.conf.get(COMPILED) == "true"

    assert given["small"] == given["large"]
    assert all(given["small"][0][name] for name in OF_THE_REPORT)
