"""Builder of a report from gold: sections with headlines, first rows as cells, counts of omitted rows, and charts.

Without a period, the tables over all days are read as stored. With a period, they are combined from the partials of its
days. Each table is cached while its count, headlines, first rows and chart are computed.

Cells are formatted for people: numbers with thin spaces, bytes with units, ratios as percent, times in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from kproxy.lake.answers import SHOWN, GoldAnswer
from kproxy.lake.gold_lake import ANSWER_TRANSFORMS, GoldLake, conform
from kproxy.lake.gold_tables import ANSWERS, TRAFFIC
from kproxy.lake.report.charts import CHARTS
from kproxy.lake.spark import side_by_side, suited_to
from kproxy.lake.tables import IDS
from kproxy.lake.transforms.ids import completeness
from kproxy.record.events.column import Column


@dataclass(frozen=True, slots=True)
class ReportCell:
    """Cell with a display value and a sort value. `words`: the value is an array of findings or names."""

    text: str
    sort: str | float
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """Headline: `text` and its count. `calls`: a count other than 0 needs attention."""

    count: int
    text: str
    calls: bool

    @property
    def alarms(self) -> bool:
        return self.calls and self.count > 0


@dataclass(frozen=True, slots=True)
class Section:
    """Section of one answer. `chart` is HTML from Plotly, or empty; `chart_text` is its caption."""

    answer: GoldAnswer
    columns: tuple[Column, ...]
    rows: tuple[tuple[ReportCell, ...], ...]
    total: int
    headlines: tuple[Headline, ...]
    chart: str = ""
    chart_text: str = ""

    @property
    def left_out(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class SourceCompleteness:
    """Completeness of the events of one source."""

    source: str
    events: int
    doubles: int
    missing: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Overview of the whole report. Without requests, `first_hour` and `last_hour` are empty."""

    days: tuple[str, ...]
    first_hour: str
    last_hour: str
    clusters: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    """(label, formatted number)."""
    sources: tuple[SourceCompleteness, ...]


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """Report with all data of the page."""

    overview: Overview
    sections: tuple[Section, ...]


THIN = "\u202f"
"""Narrow no-break space."""
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def cell(value: Any, column: Column) -> ReportCell:
    """Return the cell of one value; null is an empty cell that sorts first."""
    if value is None:
        return ReportCell("", float("-inf") if is_number(column) else "")
    if isinstance(value, list):
        words = tuple(map(str, value))
        return ReportCell(", ".join(words), ", ".join(words), words)
    if isinstance(value, bool):
        return ReportCell("yes" if value else "no", float(value))
    if isinstance(value, datetime):
        return ReportCell(f"{value:%Y-%m-%d %H:%M:%S}", value.isoformat())
    if isinstance(value, int | float):
        return ReportCell(_number(value, column), float(value))
    return ReportCell(str(value), str(value))


def is_number(column: Column) -> bool:
    """Return True if the column's cells are right-aligned."""
    return column.type in ("int", "long", "double") and not column.array


def _number(value: float, column: Column) -> str:
    if column.unit == "part":
        return percent(value)
    if column.unit == "bytes":
        return size(value)
    if column.type == "double":
        return grouped(value, 0 if value >= 1000 else 1 if value >= 10 else 2)
    if column.name in ("version", "minimum", "node", "partition", "largest_partition"):
        return str(value)
    return grouped(value)


def grouped(value: float, digits: int = 0) -> str:
    """Format a number with thin spaces: 1 234 567."""
    return f"{value:,.{digits}f}".replace(",", THIN)


def percent(part: float) -> str:
    """Format a ratio as percent: 0.0123 is 1.2 %. Ratios near 0 or 1 become <0.1 or >99.9, never 0 or 100."""
    hundred = part * 100
    text = f"{hundred:.1f}".removesuffix(".0")
    if text == "0" and part > 0:
        text = "<0.1"
    if text == "100" and part < 1:
        text = ">99.9"
    return f"{text}{THIN}%"


def size(count: float) -> str:
    """Format a count of bytes in decimal units: 12345678 is 12.3 MB."""
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{count:.0f}{THIN}{unit}" if unit == "B" else f"{count:.1f}{THIN}{unit}"
        count /= 1000
    return f"{count:.1f}{THIN}{_SIZES[-1]}"


SHORT = {"traffic": 24}
"""Row limits of single answers; traffic has a chart."""


@dataclass(frozen=True, slots=True)
class Period:
    """Period between two UTC dates, both inclusive; None: unbounded."""

    first: date | None = None
    last: date | None = None

    @property
    def whole(self) -> bool:
        return self.first is None and self.last is None

    def holds(self, day: date) -> bool:
        return (self.first is None or day >= self.first) and (self.last is None or day <= self.last)


def build_report(gold: GoldLake, period: Period, *, shown: int = SHOWN) -> AnswerReport:
    """Build the report of a period, with at most `shown` rows of each answer."""
    days = tuple(day for day in sorted(gold.state().days) if period.holds(date.fromisoformat(day)))
    facts = dict[str, Row]()

    def section(answer: GoldAnswer) -> Section:
        rows = read(answer_rows(gold, answer, period)).cache()
        facts[answer.name] = rows.agg(*_facts(answer)).collect()[0]
        drawn = gold.partials(answer.name, period.first, period.last) if answer is TRAFFIC else rows
        most = min(shown, SHORT.get(answer.name, shown))
        made = _section(answer, rows, facts[answer.name], most, drawn)
        rows.unpersist()
        return made

    with suited_to(gold.lake.spark, gold.size()) as read:
        sections = side_by_side(section, ANSWERS)
        return AnswerReport(_overview(gold, days, facts, period), tuple(sections))


def answer_rows(gold: GoldLake, answer: GoldAnswer, period: Period) -> DataFrame:
    if period.whole:
        return gold.read(answer)
    partials = gold.partials(answer.name, period.first, period.last)
    return conform(ANSWER_TRANSFORMS[answer.name].combine(partials), answer)


def _clients(condition: SparkColumn) -> SparkColumn:
    return F.count_distinct(F.when(condition, F.struct("cluster", "client_id")))


def _findings(word: str) -> SparkColumn:
    return F.count_if(F.array_contains("findings", word))


def _sum(name: str, condition: SparkColumn) -> SparkColumn:
    return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0))


HeadlineCount = tuple[str, SparkColumn, bool]
"""Headline before its count is computed: text; aggregate; True if a count other than 0 needs attention."""


def headlines(name: str) -> tuple[HeadlineCount, ...]:
    """Return the headlines of an answer by its name. Built at each call, because Spark's columns need a running
    session."""
    verdict, kind, own = F.col("verdict"), F.col("kind"), F.col("responder") == "kproxy"
    level, blind = F.col("level"), F.col("check") == "not-checked"
    entries: dict[str, tuple[HeadlineCount, ...]] = {
        "topic_producers": (
            ("clients write", _clients((F.col("records") > 0) | (F.col("unconfirmed_records") > 0)), False),
        ),
        "topic_consumers": (("clients read", _clients(F.col("bytes") > 0), False),),
        "kafka4_readiness": (
            ("clients would break on Kafka 4", _clients(verdict == "breaks"), True),
            ("clients with an old library", _clients(verdict == "old software"), True),
            ("clients do not say what they are", _clients(verdict == "unknown software"), False),
        ),
        "unused_topics": (
            ("topics that nobody uses", F.count_if(verdict == "unused"), True),
            ("topics that are written and never read", F.count_if(verdict == "never read"), True),
        ),
        "dormant_clients": (
            ("clients", F.count(F.lit(1)), False),
            ("of them dormant", F.count_if(F.col("dormant")), True),
        ),
        "client_metrics": (
            ("clients say what they measure", F.count(F.lit(1)), False),
            ("clients slow before kproxy", _findings("slow before kproxy"), True),
        ),
        "zones": (
            ("networks of clients", F.count_distinct(F.struct("cluster", "client_network")), False),
            (
                "racks of brokers",
                F.count_distinct(F.when(F.col("rack").isNotNull(), F.struct("cluster", "rack"))),
                False,
            ),
        ),
        "errors_and_denials": (
            ("failed authentications", _sum("count", (kind == "authentication")), True),
            ("refused requests", _sum("count", (kind == "authorization") & (F.col("scope") == "request")), True),
            ("requests without an answer", _sum("count", kind == "cut off"), True),
            ("requests with another error", _sum("count", (kind == "other") & (F.col("scope") == "request")), False),
            ("errors of requests that rules of kproxy made", _sum("count", own & (F.col("scope") == "request")), False),
        ),
        "group_health": (
            ("groups", F.count(F.lit(1)), False),
            ("groups rebalance often", _findings("rebalances often"), True),
            ("groups with flapping members", _findings("flapping members"), True),
            ("groups with zombies", _findings("zombies"), True),
            ("groups commit often", _findings("commits often"), True),
        ),
        "group_lag": (
            ("records behind, all groups together", F.coalesce(F.sum("lag"), F.lit(0)), False),
            ("commits that went back", F.coalesce(F.sum("commits_back"), F.lit(0)), True),
        ),
        "throttled": (
            ("clients were throttled", F.count_distinct("client_id"), True),
            ("requests were throttled", F.sum("requests"), False),
        ),
        "storms": (("storms, by address and kind", F.count_if(F.col("storm")), True),),
        "rules_effect": (
            ("rules", F.count_distinct("rule"), False),
            ("changes applied", F.sum("applied"), False),
            ("connections opened with a rule that binds then, by rule", F.sum("connections"), False),
        ),
        "producer_hygiene": tuple(
            (f"producers, by topic: {word}", _findings(word), True)
            for word in ("acks=0", "acks=1", "not idempotent", "uncompressed", "tiny batches", "huge batches")
        ),
        "partition_skew": (
            (
                "topics have a partition with more than twice its share",
                F.count_if(F.col("records_max_to_mean") > 2),
                True,
            ),
        ),
        "empty_fetches": (("clients poll in vain", _findings("polls in vain"), True),),
        "violations": (
            ("violations suspected", _sum("count", level == "suspect"), True),
            ("requests not checked for violations", _sum("count", blind), False),
        ),
    }
    return entries.get(name, ())


def _facts(answer: GoldAnswer) -> list[SparkColumn]:
    heads = [count.alias(f"head{number}") for number, (_, count, _) in enumerate(headlines(answer.name))]
    names = {column.name for column in answer.columns}
    sums = [F.sum(name).alias(name) for name in ("requests", "errors", "records", "bytes") if name in names]
    spans = [F.min("hour").alias("first"), F.max("hour").alias("last")] if "hour" in names else []
    clusters = [F.sort_array(F.collect_set("cluster")).alias("clusters")] if "cluster" in names else []
    return [F.count(F.lit(1)).alias("total"), *heads, *sums, *spans, *clusters]


def _section(answer: GoldAnswer, rows: DataFrame, facts: Row, shown: int, charted: DataFrame) -> Section:
    """Build the section of one answer.

    `charted`: the rows of its chart. For traffic these are per minute; otherwise they are the answer's rows.
    """
    first = rows.orderBy(*_order(answer)).limit(shown).collect()
    columns = tuple(_worth_showing(answer.columns, first, facts))
    heads = tuple(
        Headline(facts[f"head{number}"] or 0, text, calls)
        for number, (text, _, calls) in enumerate(headlines(answer.name))
    )
    cells = tuple(tuple(cell(row[column.name], column) for column in columns) for row in first)
    chart = CHARTS.get(answer.name)
    drawn = chart.draw(charted) if chart and facts["total"] else ""
    return Section(answer, columns, cells, facts["total"], heads, drawn, chart.text if chart and drawn else "")


def _order(answer: GoldAnswer) -> Iterator[SparkColumn]:
    for column, how in answer.sort_keys():
        if how == "rank":
            yield F.array_position(F.array(*map(F.lit, answer.worst_first)), F.col(column)).asc()
        elif how == "descending":
            yield F.col(column).desc_nulls_last()
        else:
            yield F.col(column).asc_nulls_last()


def _worth_showing(columns: tuple[Column, ...], rows: list[Row], facts: Row) -> Iterator[Column]:
    """Yield the displayed columns.

    Omitted are columns without values, the cluster column if there is only one, and broker names equal to the client's.
    """
    for column in columns:
        values = [row[column.name] for row in rows]
        if rows and all(value is None or value == [] for value in values):
            continue
        if column.name == "cluster" and len(facts["clusters"]) <= 1:
            continue
        own = column.name.removeprefix("broker_")
        if own != column.name and own in facts_of(rows) and values == [row[own] for row in rows]:
            continue
        yield column


def facts_of(rows: list[Row]) -> list[str]:
    return rows[0].__fields__ if rows else []


def _overview(gold: GoldLake, days: tuple[str, ...], facts: dict[str, Row], period: Period) -> Overview:
    traffic, written, read = facts["traffic"], facts["topic_producers"], facts["topic_consumers"]
    clusters: set[str] = set().union(*(row["clusters"] for row in facts.values() if "clusters" in row))
    figures = (
        ("requests", grouped(traffic["requests"] or 0)),
        ("of them with an error", grouped(traffic["errors"] or 0)),
        ("clients", grouped(facts["dormant_clients"]["total"])),
        ("records written", grouped(written["records"] or 0)),
        ("bytes written", size(written["bytes"] or 0)),
        ("records read", grouped(read["records"] or 0)),
        ("bytes read", size(read["bytes"] or 0)),
    )
    return Overview(
        days, _hour(traffic["first"]), _hour(traffic["last"]), tuple(sorted(clusters)), figures,
        tuple(_sources(gold, period)),
    )  # fmt: skip


def _hour(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:00}" if time else ""


def _sources(gold: GoldLake, period: Period) -> Iterator[SourceCompleteness]:
    """Yield the completeness of the sources, ordered by missing events, most first."""
    ids = gold.lake.read(IDS)
    within = [ids["dt"] >= F.lit(period.first)] if period.first else []
    within += [ids["dt"] <= F.lit(period.last)] if period.last else []
    for condition in within:
        ids = ids.where(condition)
    rows: list[Any] = completeness(ids).orderBy(F.desc("missing"), "source").limit(SHOWN).collect()
    for row in rows:
        yield SourceCompleteness(row["source"], row["events"], row["doubles"], row["missing"])
