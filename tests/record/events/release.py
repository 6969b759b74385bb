"""Puts new columns on record: `python tests/record/events/release.py`. Refuses a change that breaks what was
released."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kproxy.record.events.schema import EVENT_TYPES
from tests.support.event_compatibility import broken_promises, release_of

FILE = Path(__file__).parent / "released.json"


def written() -> str:
    """The record of the schema as it is now."""
    return json.dumps(release_of(EVENT_TYPES), indent=1) + "\n"


if __name__ == "__main__":
    broken = broken_promises(json.loads(FILE.read_text()), EVENT_TYPES) if FILE.exists() else []
    if broken:
        sys.exit("\n".join(broken))
    FILE.write_text(written())
