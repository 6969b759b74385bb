"""Charts of the report, made by Plotly from small aggregates that Spark computes.

Names come from clients, and Plotly interprets some HTML in texts, so names are escaped first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from typing import Any

import plotly.graph_objects as go
import plotly.io
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

BARS = 15
"""Maximum number of bars in a chart."""
LONGEST = 40
"""Maximum length of a name next to a bar, in characters."""
SERIES = 6
"""Maximum number of series, with colours that colour-blind readers can distinguish; more are merged into `other`."""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")
"""Okabe and Ito's palette; the last colour is for `other`."""
BINS = ((200, 60, "minute"), (2000, 600, "10 minutes"), (14 * 1440, 3600, "hour"))
"""(maximum minutes of a chart over time, seconds per bar, name of the bin). Longer charts have one bar per day."""
MAKERS = (
    ("broker", "made by brokers"),
    ("kproxy", "made by rules of kproxy"),
    (None, "no answer, or no request's"),
)
_LAYOUT = {
    "template": "plotly_white",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 10, "r": 20, "t": 10, "b": 40},
    "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    "colorway": COLOURS,
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",  # the page's own light or dark background shows through
}
_CONFIG = {"displayModeBar": False, "responsive": True}


@dataclass(frozen=True, slots=True)
class Chart:
    """Chart of one answer. `figure` makes it from the answer's rows; `text` is its caption."""

    text: str
    figure: Callable[[DataFrame], Any]

    def draw(self, rows: DataFrame) -> str:
        """Return HTML without the library; empty if there is nothing to draw."""
        figure = self.figure(rows)
        if figure is None:
            return ""
        return str(plotly.io.to_html(figure, config=_CONFIG, full_html=False, include_plotlyjs=False))


def label(name: Any) -> str:
    """Return a name for display in Plotly: shortened, with its HTML escaped."""
    text = "(none)" if name is None else str(name)
    return escape(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def bars(values: list[tuple[Any, float]], title: str) -> Any:
    """Return horizontal bars, the longest on top; None without bars."""
    if not values:
        return None
    positions = list(range(len(values)))
    figure = go.Figure(go.Bar(x=[value for _, value in values], y=positions, orientation="h", marker_color=COLOURS[0]))
    names = [label(name) for name, _ in values]
    axis = {"tickvals": positions, "ticktext": names, "autorange": "reversed", "automargin": True}
    height = 80 + 24 * len(values)
    return figure.update_layout(**_LAYOUT, height=height, yaxis=axis, xaxis_title=title, bargap=0.3)


def _largest(rows: DataFrame, name: str, value: str) -> list[tuple[Any, float]]:
    summed = rows.groupBy(name).agg(F.sum(value).alias("value"))
    largest = summed.where(F.col("value") > 0).orderBy(F.desc("value"), name).limit(BARS).collect()
    return [(row[0], row["value"]) for row in largest]


def bin_of(minutes: float) -> tuple[int, str]:
    """Return a bar's length in seconds, and its name: at most 200 bars within a day and a half."""
    return next(((seconds, name) for most, seconds, name in BINS if minutes <= most), (86400, "day"))


def traffic(rows: DataFrame) -> Any:
    """Return bars of requests over time by API: per minute for short spans, per day for long ones.

    `rows` are per minute.
    """
    first, last = rows.agg(F.min("minute"), F.max("minute")).collect()[0]
    if first is None:
        return None
    seconds, unit = bin_of((last - first).total_seconds() / 60 + 1)
    biggest = [name for name, _ in _largest(rows, "api", "requests")[:SERIES]]
    named = F.when(F.col("api").isin(biggest), F.col("api")).otherwise("other").alias("api")
    at = F.timestamp_seconds(F.floor(F.unix_timestamp("minute") / seconds) * seconds).alias("at")
    summed = rows.groupBy(at, named).agg(F.sum("requests").alias("requests"))
    counts = {(row["api"], row["at"]): row["requests"] for row in summed.collect()}
    begin, end = min(at for _, at in counts), max(at for _, at in counts)
    count = int((end - begin).total_seconds()) // seconds + 1
    times = [begin + timedelta(seconds=seconds) * number for number in range(count)]
    figure, half = go.Figure(), timedelta(seconds=seconds / 2)
    for number, api in enumerate([*biggest, "other"]):
        if any(name == api for name, _ in counts):
            heights = [counts.get((api, at), 0) for at in times]
            colour = COLOURS[-1] if api == "other" else COLOURS[number]
            figure.add_bar(
                x=[at + half for at in times], y=heights, name=label(api), marker_color=colour, width=seconds * 900
            )
    # space for several bars, so a single bar is not as wide as the page
    span = [begin - timedelta(seconds=seconds), max(end, begin + 9 * timedelta(seconds=seconds)) + 2 * half]
    return figure.update_layout(
        **_LAYOUT,
        barmode="stack",
        height=340,
        yaxis_title=f"requests per {unit}",
        xaxis={"range": span, "type": "date"},
    )


def writers(rows: DataFrame) -> Any:
    return bars(_largest(rows, "topic", "records"), "records written")


def readers(rows: DataFrame) -> Any:
    return bars(_largest(rows, "topic", "records"), "records read")


def lag(rows: DataFrame) -> Any:
    return bars(_largest(rows, "group", "lag"), "records behind, all partitions")


def errors(rows: DataFrame) -> Any:
    """Return bars of errors, split into those from brokers and those from kproxy's rules."""
    whole = rows.where(F.col("scope") != "partition")
    names = [name for name, _ in _largest(whole, "error", "count")]
    if not names:
        return None
    summed = whole.where(F.col("error").isin(names)).groupBy("error", "responder").agg(F.sum("count").alias("count"))
    counts = {(row["error"], row["responder"]): row["count"] for row in summed.collect()}
    positions = list(range(len(names)))
    figure = go.Figure()
    for (by, name), colour in zip(MAKERS, (COLOURS[0], COLOURS[5], COLOURS[6]), strict=True):
        if any(maker == by for _, maker in counts):
            lengths = [counts.get((error, by), 0) for error in names]
            figure.add_bar(x=lengths, y=positions, name=name, orientation="h", marker_color=colour)
    axis = {"tickvals": positions, "ticktext": [label(name) for name in names], "autorange": "reversed"}
    return figure.update_layout(
        **_LAYOUT, barmode="stack", height=110 + 24 * len(names), yaxis=axis | {"automargin": True}, bargap=0.3,
        xaxis_title="requests and connections", showlegend=True,
    )  # fmt: skip


def skew(rows: DataFrame) -> Any:
    worst = rows.where(F.col("records_max_to_mean") > 1).orderBy(F.desc("records_max_to_mean"), "topic").limit(BARS)
    return bars(
        [(row["topic"], row["records_max_to_mean"]) for row in worst.collect()], "largest partition ÷ even share"
    )


def storms(rows: DataFrame) -> Any:
    worst = rows.orderBy(F.desc("peak_per_minute"), "client_address", "activity").limit(BARS).collect()
    named = [(f"{row['client_address']} {row['activity']}", row["peak_per_minute"]) for row in worst]
    return bars(named, "worst minute")


def readiness(rows: DataFrame) -> Any:
    order = ("breaks", "unknown api", "old software", "unknown software", "ready")
    rank = F.array_position(F.array(*map(F.lit, order)), F.col("verdict"))
    worst = rows.groupBy("cluster", "client_id").agg(F.min(rank).alias("rank"))
    counts = {row["rank"]: row["count"] for row in worst.groupBy("rank").count().collect()}
    return bars([(verdict, counts.get(number, 0)) for number, verdict in enumerate(order, 1)], "clients")


def client_of(row: Row) -> str:
    """Return the client id of a row, or its principal if it has no client id."""
    return row["client_id"] or row["principal"] or "no client id"


def node_of(row: Row) -> str:
    return "bootstrap" if row["node"] is None else f"node {row['node']}"


def client_latency(rows: DataFrame) -> Any:
    return latency(rows, client_of)


def latency(rows: DataFrame, name_of: Callable[[Row], str] = node_of) -> Any:
    """Return the percentiles of the slowest rows (50 %, 95 % and 99 %) on a logarithmic axis."""
    timed = rows.where(F.col("p50_ms").isNotNull())
    slowest = timed.orderBy(F.desc("p99_ms"), F.desc("requests")).limit(BARS).collect()
    if not slowest:
        return None
    positions = list(range(len(slowest)))
    figure = go.Figure()
    symbols = (("p50_ms", "half", "circle"), ("p95_ms", "95 %", "diamond"), ("p99_ms", "99 %", "square"))
    for column, name, symbol in symbols:
        figure.add_scatter(
            x=[row[column] for row in slowest],
            y=positions,
            mode="markers",
            name=name,
            marker={"symbol": symbol, "size": 11},
        )
    names = [label(f"{row['api']} {name_of(row)}") for row in slowest]
    axis = {"tickvals": positions, "ticktext": names, "autorange": "reversed", "automargin": True}
    x_axis = {"type": "log", "title": "at most so many ms", "dtick": 1}
    return figure.update_layout(**_LAYOUT, height=110 + 26 * len(slowest), yaxis=axis, xaxis=x_axis)


def rules(rows: DataFrame) -> Any:
    """Return bars of the applied changes per day, for the rules with the most changes."""
    biggest = [name for name, _ in _largest(rows, "rule", "applied")[:SERIES]]
    if not biggest:
        return None
    applied = (
        rows.where(F.col("rule").isin(biggest)).groupBy("rule", "day").agg(F.sum("applied").alias("applied")).collect()
    )
    figure = go.Figure()
    for number, rule in enumerate(biggest):
        days = sorted((row["day"], row["applied"]) for row in applied if row["rule"] == rule)
        heights = [count for _, count in days]
        figure.add_bar(x=[day for day, _ in days], y=heights, name=label(rule), marker_color=COLOURS[number])
    return figure.update_layout(
        **_LAYOUT, barmode="stack", height=320, yaxis_title="applied", xaxis_type="category", showlegend=True
    )


CHARTS = {
    "traffic": Chart("Requests over time (UTC), by API.", traffic),
    "topic_producers": Chart("Topics by records written.", writers),
    "topic_consumers": Chart("Topics by records read.", readers),
    "kafka4_readiness": Chart("Clients by their worst verdict.", readiness),
    "latency": Chart("The slowest APIs and nodes: what half, 95 % and 99 % of the requests took at most.", latency),
    "client_latency": Chart(
        "The slowest clients and APIs: half, 95 % and 99 % of the requests took at most this time.", client_latency
    ),
    "errors_and_denials": Chart("Errors of requests and connections, and who made them.", errors),
    "group_lag": Chart("Groups by lag.", lag),
    "storms": Chart("The worst minute of each address and kind.", storms),
    "rules_effect": Chart("What the rules that did most have changed, by day.", rules),
    "partition_skew": Chart("Topics whose largest partition has more than its share.", skew),
}
"""Charts by the answer's name."""
