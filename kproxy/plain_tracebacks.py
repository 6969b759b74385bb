"""Imports structlog without rich: it would take that for coloured tracebacks, and a sixth of kproxy's start with it.

To be imported before anything that logs. Commands that print tables import rich themselves.
"""

from __future__ import annotations

import sys
from typing import Any

modules: dict[str, Any] = sys.modules
if "rich" not in modules:
    modules["rich"] = None  # what import makes of this: there is no such package
    try:
        import structlog  # noqa: F401
    finally:
        del modules["rich"]
