"""What was measured: {case: {target: one row of figures per round}}, and medians of it."""

from __future__ import annotations

from statistics import median

Row = dict[str, float]


class Rows:
    """Rows of one run. A ratio is the median over the rounds of one target's figure by the other's of the same round:
    absolute figures move with the machine, these do much less."""

    def __init__(self, cases: dict[str, dict[str, list[Row]]] | None = None) -> None:
        self.cases = cases if cases is not None else {}

    def add(self, case: str, target: str, row: Row) -> None:
        self.cases.setdefault(case, {}).setdefault(target, []).append(row)

    def has(self, case: str, *targets: str) -> bool:
        return all(target in self.cases.get(case, {}) for target in targets)

    def median(self, case: str, target: str, key: str) -> float:
        return median(row[key] for row in self.cases[case][target])

    def ratio(self, case: str, target: str, by: str, key: str) -> float:
        pairs = zip(self.cases[case][target], self.cases[case][by], strict=True)
        return median(row[key] / other[key] for row, other in pairs)

    def more(self, case: str, target: str, than: str, key: str) -> float:
        """The median over the rounds of by how much one target's figure is above the other's of the same round."""
        pairs = zip(self.cases[case][target], self.cases[case][than], strict=True)
        return median(row[key] - other[key] for row, other in pairs)

    def others(self) -> list[float]:
        """Cores that others had, for each run in which that was measured, the least first."""
        every = (row for targets in self.cases.values() for rows in targets.values() for row in rows)
        return sorted(row["others"] for row in every if "others" in row)
