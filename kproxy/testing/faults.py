"""Faults that somebody else injects into a test: an exploration, or the rule file of what it has found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class NamedFault(NamedTuple):
    """Fault by its sentence and by its class: transient, fatal, crash or lies."""

    text: str
    kind_of: str


class InjectedFaults:
    """Faults that are injected into a run, for assertions that hold only with them, or only without; false if there
    are none."""

    def __init__(self, faults: Iterable[NamedFault] = ()) -> None:
        self.all = tuple(faults)

    @property
    def transient(self) -> bool:
        """Return True if there is a fault that a right client gets over."""
        return self._any("transient")

    @property
    def fatal(self) -> bool:
        """Return True if there is a fault of which a right client may say that it cannot go on."""
        return self._any("fatal")

    @property
    def crash(self) -> bool:
        """Return True if the client is killed and started again."""
        return self._any("crash")

    @property
    def lies(self) -> bool:
        """Return True if something is said to the client that no right cluster says."""
        return self._any("lies")

    def _any(self, kind_of: str) -> bool:
        return any(fault.kind_of == kind_of for fault in self.all)

    def __iter__(self) -> Iterator[NamedFault]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __repr__(self) -> str:
        return f"<faults: {'; '.join(fault.text for fault in self.all) or 'none'}>"
