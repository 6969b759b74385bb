"""Cells of values as people read them: numbers with thin spaces, bytes with units, parts as percent, times in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kproxy.events.column import Column
from kproxy.pipeline.report.section import ReportCell

THIN = "\u202f"
"""Narrow space that does not break."""
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def cell(value: Any, column: Column) -> ReportCell:
    """Return the cell of one value; null is an empty cell that sorts before all others."""
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
    """Return True if the column's cells stand at the right."""
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
    """Format a part as percent: 0.0123 is 1.2 %; what is not quite nothing or all does not look so."""
    hundred = part * 100
    text = f"{hundred:.1f}".removesuffix(".0")
    if text == "0" and part > 0:
        text = "<0.1"
    if text == "100" and part < 1:
        text = ">99.9"
    return f"{text}{THIN}%"


def size(count: float) -> str:
    """Format a count of bytes: 12345678 is 12.3 MB; thousands, as disks are sold and networks measured."""
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{count:.0f}{THIN}{unit}" if unit == "B" else f"{count:.1f}{THIN}{unit}"
        count /= 1000
    return f"{count:.1f}{THIN}{_SIZES[-1]}"
