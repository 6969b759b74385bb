"""Programs that tests call. `make programs` puts some into the cache, each in one version."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kproxy.base.jars import cache_folder

BUILT = ("helm", "kustomize", "crds", "otelcol", "actionlint", "sarif-multitool")
"""`tests/bring-go-tools` builds these, and `tests/bring-npm` fetches sarif-multitool. `crds` has the schemas of custom
resources."""


def built(name: str) -> Path:
    """Return the path under which a program is once it was built."""
    return cache_folder() / "programs" / name


def find_program(name: str) -> str | None:
    """Return the path of a built program, of one installed next to Python, or of one of the system."""
    if name in BUILT:
        return str(built(name)) if built(name).exists() else None
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)
