"""What every client of the matrix is made to do, and what must have come of it.

A program under programs/ is called with five arguments:

    BOOTSTRAP TOPIC MADE GROUP TRANSACTIONAL_ID

TOPIC is there with three partitions, MADE is a topic that is not there yet. It tells what it did in lines of JSON, one
per step, in this order, and goes on when a step fails:

    client        {"version"}
    produce       v-0 … v-29 to TOPIC, by turns to its partitions. {"topics"}: as confirmations name them
    consume       a member of GROUP reads from the beginning, commits and leaves. {"topics", "values"}; a client without
                  groups reads each partition
    group         two members of GROUP: when both have partitions, w-0 … w-29 are produced; both commit, the second
                  leaves, x-0 … x-29 are produced, and the first reads and commits them.
                  {"topics", "values": without doubles, "shares": how many of the w each read, "committed": the sum}
    transactions  TRANSACTIONAL_ID aborts aborted-0 … and commits kept-0 … kept-29, both with offset 7 of partition 0
                  for GROUP-offsets; then TOPIC is read for committed records.
                  {"topics", "values": of those, "committed"}
    admin         makes MADE with two partitions, lists topics, describes it, lists groups, describes GROUP, deletes
                  MADE and sees it go. {"listed", "partitions", "groups", "described", "members"}; a client without
                  groups tells nothing of them
    brokers       {"addresses"}: what it was told

With names of steps behind the five arguments it does these only. One step is done only when it is named so:

    traffic       six rounds: five records of t-0, t-1 … are written to the partitions of TOPIC by turns and waited for,
                  then a member of GROUP reads those that were acknowledged, for ten seconds at most, and commits. After
                  the third round the member leaves and another one takes its place. At the end it reads on until it has
                  all of them, and a second longer. What fails is noted, and ends nothing before 45 seconds are over.
                  Requests may take 5 seconds, a write 20 in all, a session is 6 long; else settings are the library's.
                  {"sent": values, "acknowledged": [[value, partition, offset]], "failed": [[value, error]],
                  "read": [[value, partition, offset]], "errors": a hundred at most, "seconds"}

In place of what it did a step may have {"error"}, or {"missing"}: what it is that the client has not got.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

STEPS = ("produce", "consume", "group", "transactions", "admin", "brokers")
COUNT, PARTITIONS = 30, 3
TRAFFIC, TRAFFIC_SECONDS = "traffic", 45


@dataclass(frozen=True)
class Names:
    """The names that a client goes by on one way, and what it must not see there.

    `upstream` is what stands before them on the brokers; `foreign` says of a topic or group whether the client should
    not have been told of it; `addresses` are all that it may know.
    """

    word: str
    upstream: str = ""
    foreign: Callable[[str], bool] = lambda name: False
    addresses: frozenset[str] = frozenset()

    @property
    def topic(self) -> str:
        """The topic that is there."""
        return f"{self.word}-topic"

    @property
    def made(self) -> str:
        """The one that the client makes."""
        return f"{self.word}-made"

    @property
    def group(self) -> str:
        """Its group."""
        return f"{self.word}-group"

    def arguments(self, bootstrap: str) -> list[str]:
        """What a program is called with."""
        return [bootstrap, self.topic, self.made, self.group, f"{self.word}-transactions"]


def words(*of: str) -> list[str]:
    """`word-0` and so on of each."""
    return [f"{word}-{number}" for word in of for number in range(COUNT)]


@dataclass(frozen=True)
class Expected:
    """What comes of it; a client that does something else with the same steps says what here."""

    consume: list[str] = field(default_factory=lambda: words("v"))
    group: list[str] = field(default_factory=lambda: words("w", "x"))
    transactions: list[str] = field(default_factory=lambda: words("kept"))
    group_committed: int = 3 * COUNT
    transaction_committed: int = 7
    to_made: bool = False  # what is consumed comes from the topic MADE


def told(output: str) -> dict[str, dict[str, Any]]:
    """What a program said, by step; all other lines are left out: logs in JSON, and a line that was cut short."""
    found: dict[str, dict[str, Any]] = {}
    for line in output.splitlines():
        with suppress(ValueError, RecursionError):
            said = json.loads(line) if line.startswith("{") else {}
            if isinstance(step := said.pop("step", None), str):
                found[step] = said
    return found


def judge(names: Names, lines: Mapping[str, Mapping[str, Any]], expected: Expected) -> dict[str, str]:
    """Of each step "yes", "missing: …" or what is wrong with it."""
    found = {}
    for step in STEPS:
        line = lines.get(step)
        if line is None:
            found[step] = "did not come to it"
        elif "missing" in line:
            found[step] = f"missing: {line['missing']}"
        elif "error" in line:
            found[step] = f"error: {line['error']}"
        else:
            found[step] = "; ".join(mistakes(names, step, line, expected)) or "yes"
    if found["admin"] == "yes" and not found["group"].startswith("missing") and "groups" not in lines["admin"]:
        found["admin"] = "no groups were listed"
    return found


def mistakes(names: Names, step: str, line: Mapping[str, Any], expected: Expected) -> Iterable[str]:
    """What is wrong with a step that was done."""
    source = names.made if expected.to_made and step in {"consume", "group", "transactions"} else names.topic
    if step in {"produce", "consume", "group", "transactions"} and list(line["topics"]) != [source]:
        yield f"topics {line['topics']}, expected {[source]}"
    if step in {"consume", "group", "transactions"}:
        wanted = getattr(expected, step)
        surplus, lacking = Counter(line["values"]) - Counter(wanted), Counter(wanted) - Counter(line["values"])
        if surplus or lacking:
            few, many = list(lacking)[:3], list(surplus)[:3]
            yield f"{lacking.total()} records lack ({few}), {surplus.total()} too many ({many})"
    if step == "group":
        yield from differs("committed", line["committed"], expected.group_committed)
        if len(line["shares"]) != 2 or not all(line["shares"]):
            yield f"shares {line['shares']}, expected two members with records"
    elif step == "transactions":
        yield from differs("committed", line["committed"], expected.transaction_committed)
    elif step == "admin":
        yield from administration(names, line)
    elif step == "brokers" and not set() < set(line["addresses"]) <= names.addresses:
        yield f"addresses {line['addresses']}, expected of {sorted(names.addresses)}"


def administration(names: Names, line: Mapping[str, Any]) -> Iterable[str]:
    """What is wrong with what an administrator saw."""
    for name in {names.topic, names.made} - set(line["listed"]):
        yield f"the topic {name} is not listed"
    foreign = sorted(name for name in {*line["listed"], *line.get("groups", ())} if names.foreign(name))
    if foreign:
        yield f"names that are not the client's: {foreign}"
    yield from differs("partitions", line["partitions"], 2)
    if "groups" in line:
        if names.group not in line["groups"]:
            yield f"the group {names.group} is not listed"
        yield from differs("described", line["described"], names.group)
        yield from differs("members", line["members"], 0)


def differs(what: str, found: object, expected: object) -> Iterable[str]:
    """One mistake, or none."""
    if found != expected:
        yield f"{what} {found!r}, expected {expected!r}"
