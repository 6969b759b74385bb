"""Facts about the installed package: its name on a package index, its version, and how to install its extras.

The import name and the command are `kproxy`. The distribution is called `kproxy-kafka`, since the name `kproxy` on the
public package index belongs to another project.
"""

from __future__ import annotations

import re
from functools import cache

DISTRIBUTION = "kproxy-kafka"


@cache
def own_version() -> str:
    """Return the version of the installed package, "unknown" when kproxy runs from a tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # `kproxy --help` has no need of it

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def project_url() -> str | None:
    """Return the URL of the project's pages from the metadata of the installed package: its documentation, otherwise
    its home page. None without one. Labels are compared as the core metadata specification requires."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        entries = metadata(DISTRIBUTION).get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    urls = {
        re.sub(r"[\W_]", "", label).lower(): url.strip() for label, _, url in (one.partition(",") for one in entries)
    }
    url = urls.get("documentation") or urls.get("homepage")
    return url.partition("#")[0].rstrip("/") if url else None


def how_to_install(extra: str) -> str:
    """Return the commands that install an optional part of kproxy, from a checkout and from a built wheel."""
    wheel = f"kproxy_kafka-VERSION-py3-none-any.whl[{extra}]"
    return f"pip install '.[{extra}]' in a checkout of kproxy, or pip install '{wheel}' with a built wheel"
