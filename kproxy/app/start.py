"""First steps of kproxy's own processes, for a fast start: few collections, structlog without rich.

Import it before any module that logs, and only in `kproxy run` and the workers: in a user's test kproxy leaves the
process unchanged. structlog would import rich for coloured tracebacks, which takes a sixth of kproxy's start; commands
that print tables import rich themselves.
"""

from __future__ import annotations

import sys
from typing import Any

from . import garbage

garbage.postpone()
modules: dict[str, Any] = sys.modules
if "rich" not in modules:
    modules["rich"] = None  # `import rich` then fails, as if the package were not installed
    try:
        import structlog  # noqa: F401
    finally:
        del modules["rich"]
