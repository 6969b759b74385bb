"""What of partitions counts, for Arrow's columns: the same as `kproxy.events.counting` says of single events."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kproxy.events.counting import FINISHED
from kproxy.pipeline.columnar.rows import Columns


def counted(parts: Columns, *, read: bool) -> Columns:
    """Keep those rows of partitions that count as written to, or `read` from; see `counting.partitions`."""
    keep = pc.is_in(pc.fill_null(parts["outcome"], "answered"), pa.array(FINISHED))
    keep = pc.and_(keep, pc.fill_null(pc.not_equal(parts["error_level"], "request"), fill_value=True))
    if read:
        keep = pc.and_(keep, told(parts))
    return {name: column.filter(keep) for name, column in parts.items()}


def told(parts: Columns) -> Any:
    """Tell of each row if its answer said something of the partition; see `counting.is_mentioned`."""
    bytes_ = pc.greater(pc.fill_null(parts["bytes"], 0), 0)
    return pc.or_(bytes_, pc.or_(pc.is_valid(parts["error"]), pc.is_valid(parts["high_watermark"])))
