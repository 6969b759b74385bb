"""Name of the user of this terminal, as others are told who look at the same proxy."""

from __future__ import annotations

import getpass
from functools import cache

LONGEST = 100
"""Letters of a name that the proxy takes."""


@cache
def user() -> str:
    """Return the user's name on this machine."""
    try:
        return getpass.getuser()[:LONGEST]
    except (OSError, KeyError, ImportError):
        return "somebody"
