"""Events that are made up look like real ones, and add up to what is said of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from kproxy.record.events.schema import BY_NAME, ENVELOPE
from tests.support.synthetic_events import Size, write_events

SMALL = Size(producers=3, consumers=2, topics=2, partitions=2)


def written(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("dt=*/*.ndjson.gz"))
    return [json.loads(line) for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_every_column_is_declared(tmp_path: Path) -> None:
    """No line has a column that the schema lacks."""
    write_events(tmp_path, 500, size=SMALL)

    envelope = {column.name for column in ENVELOPE} | {"data", "datacontenttype"}
    for line in written(tmp_path):
        assert line.keys() == envelope
        assert line["data"].keys() <= {column.name for column in BY_NAME[line["type"]].columns}


def test_the_sums_are_those_that_were_said(tmp_path: Path) -> None:
    """Lines, records by topic, commits by group; numbers without gaps."""
    truth = write_events(tmp_path, 500, size=SMALL)

    lines = written(tmp_path)
    assert sorted(int(line["id"]) for line in lines) == list(range(1, truth.lines + 1))
    records: Counter[str] = Counter()
    commits: Counter[str] = Counter()
    for data in (line["data"] for line in lines):
        if data["api"] == "Produce" and "topic" in data and "error" not in data:
            records[data["topic"]] += data["records"]
        if data["api"] == "OffsetCommit":
            commits[data["group"]] += 1
    assert records == truth.records
    assert commits == truth.commits


def test_the_same_seed_makes_the_same_lines(tmp_path: Path) -> None:
    """And another source makes others."""
    for name, source in (("a", 0), ("b", 0), ("c", 1)):
        write_events(tmp_path / name, 100, source=source, size=SMALL)

    assert written(tmp_path / "a") == written(tmp_path / "b") != written(tmp_path / "c")
