"""What a process that is kproxy's own does first, so that it starts soon: few collections, structlog without rich.

To be imported before anything that logs, and only by `kproxy run` and the workers: in somebody's test kproxy leaves
the process as it is. structlog would take rich for coloured tracebacks, and a sixth of kproxy's start with it; commands
that print tables import rich themselves.
"""

from __future__ import annotations

import sys
from typing import Any

from kproxy import garbage

garbage.spare()
modules: dict[str, Any] = sys.modules
if "rich" not in modules:
    modules["rich"] = None  # what import makes of this: there is no such package
    try:
        import structlog  # noqa: F401
    finally:
        del modules["rich"]
