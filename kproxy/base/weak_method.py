"""Methods that are called without holding their object, for what the object itself holds: such as a cache of its own
answers. Otherwise the two hold each other, and stay until the garbage collector comes by, which is every ten minutes
for what is old (`app/garbage.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import ref

F = TypeVar("F", bound=Callable[..., Any])


def unheld(method: F) -> F:
    """Return a function that calls this bound method as long as somebody else holds its object."""
    bound = cast("Any", method)
    owner, function = ref(bound.__self__), bound.__func__

    def call(*args: Any) -> Any:
        return function(owner(), *args)

    return cast("F", call)
