"""Bound methods through a weak reference: a cache stored on an object can call the object without a reference cycle.

The garbage collector frees old cycles only every ten minutes (`app/garbage.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import ref

F = TypeVar("F", bound=Callable[..., Any])


def unheld(method: F) -> F:
    """Return a function that calls this bound method while other code holds its object."""
    bound = cast("Any", method)
    owner, function = ref(bound.__self__), bound.__func__

    def call(*args: Any) -> Any:
        return function(owner(), *args)

    return cast("F", call)
