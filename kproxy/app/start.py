"""First steps of a process that is kproxy's own, so that it starts soon: few collections, structlog without rich.

To be imported before any module that logs, and only by `kproxy run` and the workers: in a user's test kproxy leaves the
process as it is. structlog would import rich for coloured tracebacks, which takes a sixth of kproxy's start; commands
that print tables import rich themselves.
"""

from __future__ import annotations

import sys
from typing import Any

from . import garbage

garbage.spare()
modules: dict[str, Any] = sys.modules
if "rich" not in modules:
    modules["rich"] = None  # `import rich` then fails, as if the package were not installed
    try:
        import structlog  # noqa: F401
    finally:
        del modules["rich"]
