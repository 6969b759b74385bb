"""A table as several processes have it in common, for tests in one process."""

from __future__ import annotations

from kproxy.rules.shared_numbers import NumberCells, SharedNumbers

OWNER = b"12345678"


class Numbers:
    """The numbers of one key; says when somebody forgets to put them back."""

    def __init__(self) -> None:
        self.numbers: tuple[float, ...] | None = None
        self.out = False

    def take(self, now: float) -> tuple[float, ...] | None:
        assert not self.out
        self.out = True
        return None if self.numbers is None else (*self.numbers, *[0.0] * (6 - len(self.numbers)))

    def put(self, *numbers: float, until: float | None = None) -> None:
        assert self.out
        assert len(numbers) <= 6
        self.out = False
        if numbers:
            self.numbers = tuple(map(float, numbers))


class PlainTable:
    """Without bounds and locks."""

    def __init__(self) -> None:
        self.found: dict[tuple[bytes, str | None], Numbers] = {}

    def cells(self, owner: bytes, what: str | None) -> NumberCells:
        return self.found.setdefault((owner, what), Numbers())


def commons(count: int = 2) -> list[SharedNumbers]:
    """So many processes' views of the same rule."""
    table = PlainTable()
    return [SharedNumbers(table.cells, OWNER, f":{index}" if index else "") for index in range(count)]
