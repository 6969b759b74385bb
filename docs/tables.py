"""Fills the tables of the reference pages from the models: `python docs/tables.py`.

A table stands between `<!-- table: kproxy.config:AdminConfig -->` and `<!-- end -->`. A test compares the pages with
the models, so that neither can change alone.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from kproxy.rules.reference import markdown_table

PAGES = Path(__file__).parent
_TABLE = re.compile(r"(<!-- table: ([\w.]+):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with all its tables made anew."""
    return _TABLE.sub(_fill, text)


def _fill(found: re.Match[str]) -> str:
    model = getattr(importlib.import_module(found[2]), found[3])
    return f"{found[1]}{markdown_table(model)}{found[4]}"


if __name__ == "__main__":
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text()
        if before != (after := filled(before)):
            page.write_text(after)
            print(page.name)
