"""The answer `violations` and `kproxy verify` find the same in the same exchanges, but for what is told here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kproxy.protocol.table import schema
from kproxy.record.audit.lines import stamp
from kproxy.record.filters import EventView
from kproxy.tools.verify import VerifyTerms, verify
from tests.lake.gold.test_violations import FOUND, GRANTS, NOTE, OFFSETS, READS, STARTS, SUSPECT, TOLD, WRITES, Row

BY_ID, BY_NAME = 13, 9
"""Versions of Produce and Fetch that name topics by their ids, and by their names."""
START = STARTS["one day"].timestamp()
OF_REQUEST = ("acks", "isolation", "group", "generation", "connection")
OF_TOPIC = ("topic", "topic_id")
OTHERWISE = {
    "aborted, or not": {("skipped-input", SUSPECT)},  # the lake has no such check
    "lost later": {("log-goes-back", SUSPECT)},  # nor this one
    "on two ways": {("realtime-order", SUSPECT)},  # nor this one
    "thinned": {("inconsistent-offset", SUSPECT), ("thinned-batch", SUSPECT)},  # the lake does not look for these
}
"""What verify finds in place of what the lake does, and why."""


def events() -> Iterator[EventView]:
    """Yield the request events from which silver has the rows of the histories, in the order of their ends."""
    commits, told = (
        [{"api": api} | row for row in rows] for api, rows in (("OffsetCommit", OFFSETS), ("OffsetFetch", TOLD))
    )
    rows = [row for row in (*WRITES, *READS, *GRANTS, *commits, *told) if row.get("detail") != "summary"]
    keys = {schema.load(key).name: key for key in schema.paths()}
    for row in sorted(rows, key=lambda row: float(row.get("response_out", row["time"]))):
        data: Row = {
            "api": row["api"], "api_key": keys[row["api"]], "version": BY_ID if row.get("topic_id") else BY_NAME,
            "client_address": "10.0.0.1", "client_port": 1, "request_in": stamp(START + row["time"]),
            **{column: row[column] for column in OF_REQUEST if column in row},
        }  # fmt: skip
        if "response_out" in row:
            data["response_out"] = stamp(START + row["response_out"])
        if "topic" in row:
            used = {"api", "time", "response_out", "source", *OF_REQUEST, *OF_TOPIC}
            partition = {column: value for column, value in row.items() if column not in used and value is not None}
            names = {column: row[column] for column in OF_TOPIC if row.get(column)}
            data["topics"] = [{**names, "partitions": [partition]}]
        else:
            data |= {"transactional_id": "t"} | {name: row[name] for name in ("producer_id", "producer_epoch")}
        yield EventView(data)


def test_verify_finds_the_same() -> None:
    """The same checks at the same places, as sure as the lake is."""
    found: dict[str, set[tuple[str, str]]] = {}
    for finding in verify(events(), VerifyTerms(view="clients", level=NOTE)).findings:
        place = re.sub(r"^(group .*), t\[0\]$|\[0\]$", r"\1", finding.about)
        found.setdefault(place, set()).add((finding.check, finding.level))
    assert found == FOUND | OTHERWISE
