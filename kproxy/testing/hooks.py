"""Functions of tests, under names by which `python` rules find them: `kproxy.testing.hooks:NAME`. Empty at first."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

_numbers = itertools.count(1)


def put(function: Callable[..., Any]) -> str:
    """Keep a test's function under a new name. Return `module:function` for a rule's `call`."""
    plain = re.sub(r"\W", "", getattr(function, "__name__", type(function).__name__), flags=re.ASCII)
    name = f"hook_{next(_numbers)}_{plain}"
    setattr(sys.modules[__name__], name, function)
    return f"{__name__}:{name}"


def forget(call: str) -> None:
    """Remove the function of a rule that is gone."""
    delattr(sys.modules[__name__], call.partition(":")[2])
