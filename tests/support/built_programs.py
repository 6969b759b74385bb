"""Programs that `tests/bring-go-tools` builds into the cache, each in one version: their messages are compared."""

from __future__ import annotations

from pathlib import Path

from kproxy.base.jars import cache_folder

BUILT = ("helm", "kustomize", "crds", "otelcol")
"""What it brings; `crds` is the folder of schemas of custom resources."""


def built(name: str) -> Path:
    """Return the path under which a program is once it was built."""
    return cache_folder() / "programs" / name
