"""Hooks of yield points for the duration of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kproxy.base import cooperative


@contextmanager
def hooked(hook: Callable[[], Any] | None, thread_runner: Callable[..., Any] | None = None) -> Iterator[None]:
    before = cooperative.install_hooks(hook, thread_runner)
    try:
        yield
    finally:
        cooperative.install_hooks(before)
