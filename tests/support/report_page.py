"""Pages of the report, as two of them are compared."""

from __future__ import annotations

import re

DRAWING = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def without_drawings_ids(page: str) -> str:
    """Return the page without the ids that Plotly gives to drawings, which differ each time."""
    return DRAWING.sub("", page)
