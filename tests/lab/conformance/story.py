"""The story of a run: its exchanges as its capture has them, and how the faulted one was got over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.base.errors import plural
from kproxy.base.terminal import in_line
from kproxy.cli.exchange_input import Trouble, views
from kproxy.record.filters import errors, topics
from tests.lab.conformance.faults import general
from tests.lab.conformance.judge import Recovery

BEFORE, AFTER = 1, 5
"""Exchanges that are shown before the first that the fault acted on, and after it."""
REPEATED = ("Fetch", "Heartbeat", "ConsumerGroupHeartbeat", "ApiVersions")
"""APIs that clients call all the time; such exchanges are left out of what is shown, unless something is the matter."""
FAULT = "FAULT"
MARK, CLIENT = 1, 2
"""Columns of a row by number."""
Row = list[str]
"""Exchange in columns: seconds since the run began, `FAULT` or nothing, client, broker, API, latency, and the rest; one
column alone is a remark."""


@dataclass(frozen=True)
class StoryLine:
    """Exchange of a run: seconds since 1970 of its beginning, its latency, and what a row of `kproxy tail` says."""

    at: float
    seconds: float | None
    api: str
    client: str
    node: str
    about: str
    state: str
    faulted: bool

    @property
    def good(self) -> bool:
        """Return True if it was answered without an error, and the fault had nothing to do with it."""
        return self.seconds is not None and not self.state and not self.faulted

    @property
    def shown_always(self) -> bool:
        """Return True if it is worth a row although clients make such exchanges all the time."""
        return self.faulted or self.state != "" or self.api.partition(" ")[0] not in REPEATED


def read(capture: Path, rule: str, topic: str, group: str) -> list[StoryLine]:
    """Return the exchanges of a capture in the order of their requests. The run's topic and group have the names that
    they have in the fault's rule."""
    found = []
    for view in views(str(capture), Trouble()):
        data, seen = view.data, getattr(view, "seen", None)
        if seen is None or seen.request is None:
            continue
        latency = None if seen.answer is None else seen.answer.last - seen.request.first
        client, about = general(seen.client_id or "", topic, group), general(said(data, topic), topic, group)
        found.append(StoryLine(seen.request.first, latency, f"{seen.api} v{seen.version}",
                               client, node_of(data), about, state_of(data), rule in seen.rules))  # fmt: skip
    return sorted(found, key=lambda line: line.at)


def node_of(data: Any) -> str:
    """Return the broker that an exchange was with."""
    return "bootstrap" if data.get("node") is None else f"node {data['node']}"


def said(data: Any, topic: str) -> str:
    """Return what an exchange is about: the run's topic and how many others, or a group."""
    named = topics(data).split()
    own = [one for one in named if topic in one or one.startswith("group:")]
    others = len(named) - len(own)
    return " ".join([*own, *([plural(others, "other topic")] if others else [])])


def state_of(data: Any) -> str:
    """Return the errors of an exchange, else how it ended; empty if it was answered as usual."""
    outcome = data.get("outcome", "answered")
    return ", ".join(errors(data)) or ("" if outcome in {"answered", "no_answer_due"} else outcome)


def tries(lines: Sequence[StoryLine]) -> tuple[list[int], bool]:
    """Return which lines are tries to get over the first exchange that the fault acted on, and whether the last of them
    was answered well.

    Tries are those of its API by the same client, about the same or with the same broker, from the next one to the
    first that was answered well.
    """
    found: list[int] = []
    first = next((number for number, line in enumerate(lines) if line.faulted), None)
    if first is None:
        return found, False
    fault = lines[first]
    api = fault.api.partition(" ")[0]
    for number, line in enumerate(lines[first + 1 :], first + 1):
        same = line.about == fault.about or line.node == fault.node
        if same and line.api.partition(" ")[0] == api and line.client == fault.client:
            found.append(number)
            if line.good:
                return found, True
    return found, False


def recovery(lines: Sequence[StoryLine]) -> Recovery | None:
    """Return how the first exchange that the fault acted on was got over; None if there is none, or it never was. One
    that was answered well itself, with the fault in it, needed no try."""
    made, over = tries(lines)
    if not over:
        return None
    fault, last = next(line for line in lines if line.faulted), lines[made[-1]]
    untouched = fault.seconds is not None and not fault.state
    return Recovery(0 if untouched and len(made) == 1 else len(made), last.at + (last.seconds or 0) - fault.at)


def shown(lines: Sequence[StoryLine]) -> list[Row]:
    """Return rows of the lines around the first exchange that the fault acted on, to where it was got over; of those
    that were not answered well, where it acted on none."""
    if not lines:
        return [["nothing passed"]]
    marks = [number for number, line in enumerate(lines) if line.faulted]
    if marks:
        made, over = tries(lines)
        last = made[-1] if over else len(lines) - 1
        near = range(max(0, marks[0] - BEFORE), last + 1)
        chosen = [number for number in near if lines[number].shown_always or number in made]
    else:
        chosen = [number for number, line in enumerate(lines) if not line.good]
    rows = [row(lines[number], lines[0].at) for number in chosen[: BEFORE + 1 + AFTER]]
    if len(lines) > len(rows):
        rows.append([f"… {plural(len(lines), 'exchange')} in all, {len(marks)} with the fault"])
    return rows


def row(line: StoryLine, began: float) -> Row:
    """Return an exchange in columns."""
    took = "no answer" if line.seconds is None else f"{line.seconds * 1000:.0f} ms"
    rest = "  ".join(part for part in (line.about, line.state) if part)
    mark = FAULT if line.faulted else ""
    return [f"{line.at - began:.3f}", mark, in_line(line.client)[:20], line.node, line.api, took, in_line(rest)[:100]]
