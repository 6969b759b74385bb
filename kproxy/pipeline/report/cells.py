"""Values as people read them: numbers with thin spaces, bytes with units, parts as percent, times in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kproxy.events.column import Column
from kproxy.pipeline.report.section import Cell

THIN = "\u202f"
"""Narrow space that does not break."""
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def cell(value: Any, column: Column) -> Cell:
    """The cell of one value; null is an empty cell that sorts before all others."""
    if value is None:
        return Cell("", float("-inf") if is_number(column) else "")
    if isinstance(value, list):
        words = tuple(map(str, value))
        return Cell(", ".join(words), ", ".join(words), words)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", float(value))
    if isinstance(value, datetime):
        return Cell(f"{value:%Y-%m-%d %H:%M:%S}", value.isoformat())
    if isinstance(value, int | float):
        return Cell(_number(value, column), float(value))
    return Cell(str(value), str(value))


def is_number(column: Column) -> bool:
    """Whether its cells stand at the right."""
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
    """1234567 as 1 234 567."""
    return f"{value:,.{digits}f}".replace(",", THIN)


def percent(part: float) -> str:
    """0.0123 as 1.2 %; what is not quite nothing or all does not look so."""
    hundred = part * 100
    text = f"{hundred:.1f}".removesuffix(".0")
    if text == "0" and part > 0:
        text = "<0.1"
    if text == "100" and part < 1:
        text = ">99.9"
    return f"{text}{THIN}%"


def size(count: float) -> str:
    """12345678 as 12.3 MB; thousands, as disks are sold and networks measured."""
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{count:.0f}{THIN}{unit}" if unit == "B" else f"{count:.1f}{THIN}{unit}"
        count /= 1000
    return f"{count:.1f}{THIN}{_SIZES[-1]}"
