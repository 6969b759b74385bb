"""What Kafka's performance tools print, read."""

from __future__ import annotations

import re

_SUMMARY = re.compile(
    r"(?P<records>\d+) (?:steady state )?records sent, [\d.]+ records/sec \((?P<mbs>[\d.]+) MB/sec\), .* ms 99\.9th"
)


def produced(text: str, records: int) -> float:
    """MiB/s of ProducerPerformance after its warm-up. Raises ValueError unless all records were sent."""
    found = [match for match in map(_SUMMARY.search, text.splitlines()) if match]
    if not found or int(found[0]["records"]) != records:
        raise ValueError(f"expected a summary of {records} records: {text[-300:]!r}")
    return float(found[-1]["mbs"])


def consumed(text: str, records: int) -> float:
    """MiB/s of ConsumerPerformance while it was fetching. Raises ValueError unless all records came.

    Columns: start, end, MB, MB/s, records, records/s, ms of rebalancing, ms of fetching, MB/s and records/s of that.
    """
    columns = [column.strip() for column in text.strip().splitlines()[-1].split(",")] if text.strip() else []
    if len(columns) != 10 or int(columns[4]) < records:
        raise ValueError(f"expected a line about {records} records: {text[-300:]!r}")
    return float(columns[8])
