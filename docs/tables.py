"""Fills the tables of the reference pages from the models: `python docs/tables.py`.

A table stands between `<!-- table: kproxy.config:AdminConfig -->` and `<!-- end -->`. The JSON Schemas of the events
are written, too. Tests compare the pages and the schemas with the models, so that neither can change alone.
"""

from __future__ import annotations

import importlib
import json
import re
from inspect import isfunction
from pathlib import Path

from kproxy.events import reference as events
from kproxy.events.column import EventType
from kproxy.events.json_schema import json_schema
from kproxy.events.schema import EVENT_TYPES
from kproxy.rules.reference import markdown_table

PAGES = Path(__file__).parent
_TABLE = re.compile(r"(<!-- table: ([\w.]+):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """A page with all its tables made anew."""
    return _TABLE.sub(_fill, text)


def _fill(found: re.Match[str]) -> str:
    model = getattr(importlib.import_module(found[2]), found[3])
    if isfunction(model):  # it makes the table itself
        return f"{found[1]}{model()}{found[4]}"
    table = events.markdown_table if isinstance(model, (EventType, tuple)) else markdown_table
    return f"{found[1]}{table(model)}{found[4]}"


def schemas() -> dict[Path, str]:
    """The files of the events' JSON Schemas, and what has to stand in them."""
    return {
        PAGES / "events" / f"{one.short}.schema.json": json.dumps(json_schema(one), indent=2, ensure_ascii=False) + "\n"
        for one in EVENT_TYPES
    }


if __name__ == "__main__":
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text()
        if before != (after := filled(before)):
            page.write_text(after)
            print(page.name)
    for file, content in schemas().items():
        if not file.exists() or file.read_text() != content:
            file.write_text(content)
            print(f"events/{file.name}")
