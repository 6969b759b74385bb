"""State of a source and of what passes there, as it says, in words for the top of the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEFT_OUT = {
    "not_looked_at": "not looked at",
    "too_many": "too many",
    "too_slow": "read too slowly",
    "unknown": "not judged",
}
"""Why exchanges were left out, as the stream's `left` counts them, and in words."""


class StreamState:
    """State of a source: its columns, its filter in the long form, rates, and what was left out."""

    def __init__(self) -> None:
        self.stream = self.filter = ""
        self.columns: tuple[str, ...] = ()
        self.workers = 0
        self.may_write = False
        self.good, self.said, self.over = False, "waits for an answer", False
        self.left: dict[str, int] = {}
        self.why = ""
        self.gaps: list[str] = []
        self.seen: int | None = None
        self.matched = 0
        self.rate: Mapping[str, float] = {}
        self.rules: Mapping[str, Any] = {}
        self.lost_events = 0

    @property
    def trouble(self) -> str:
        """Return why there is nothing to see, or not all, in a line; "" while all is well."""
        if not self.good and self.said:
            return self.said
        return f"rows are missing: {self.gaps[-1]}" if self.gaps else ""

    def take(self, name: str, data: Mapping[str, Any]) -> None:
        """Take an event other than rows."""
        match name:
            case "hello":
                self._hello(data)
            case "state" | "refused":
                self.good = data.get("good") is True
                self.said = str(data.get("text") or data.get("message") or "")
                self.over = data.get("over") is True
            case "progress":
                self.seen, self.matched = number(data.get("seen")), number(data.get("matched"))
            case "left":
                for key in LEFT_OUT:
                    self.left[key] = self.left.get(key, 0) + number(data.get(key))
                self.why = str(data.get("why") or self.why)
            case "gap":
                self.gaps = [*self.gaps[-9:], f"{data.get('missing')}, {data.get('why')}"]
            case "tick":
                self._tick(data)

    def _hello(self, data: Mapping[str, Any]) -> None:
        columns = data.get("columns")
        self.columns = tuple(map(str, columns)) if isinstance(columns, list | tuple) else ()
        self.stream, self.filter = str(data.get("stream") or ""), str(data.get("filter") or "")
        self.workers, self.may_write = number(data.get("workers")), data.get("may_write") is True
        self.good, self.said = True, ""

    def _tick(self, data: Mapping[str, Any]) -> None:
        seconds = data.get("seconds")
        per = seconds if isinstance(seconds, (int, float)) and seconds > 0 else 1.0
        self.rate = {name: number(data.get(name)) / per for name in ("passed", "matched")}
        rules, audit = data.get("rules"), data.get("audit")
        self.rules = rules if isinstance(rules, Mapping) else {}
        self.lost_events = number(audit.get("lost")) if isinstance(audit, Mapping) else 0

    def head(self) -> str:
        """Return the state in a line: rates, or how far a file was read, and what was left out."""
        if not self.good and not self.columns:
            return "not connected"
        said: list[str] = []
        if self.seen is not None:
            said.append(f"{self.matched} of {self.seen} exchanges{'' if self.over else ', reading'}")
        elif not self.good:
            said.append("the stream broke")
        if self.rate:
            said.append(f"{self.rate['passed']:,.0f}/s pass, {self.rate['matched']:,.0f}/s fit")
        left = sum(self.left.values())
        if left:
            parts = ", ".join(f"{count:,} {LEFT_OUT[key]}" for key, count in self.left.items() if count)
            said.append(f"left out {left:,}: {parts}")
        if self.lost_events:
            said.append(f"the audit has lost {self.lost_events:,}")
        if self.workers > 1:
            said.append(f"{self.workers} workers")
        if self.seen is None and not self.may_write:
            said.append("read only")
        return " · ".join(said) or "connected"


def number(value: Any) -> int:
    """Return a count as it should be in an event; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
