"""Options of an exploration, the same for pytest and for the command line, read from what a user wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kproxy.errors import InputError
from kproxy.rules.document.quantities import parse_duration

from .faults import DEFAULT_CLASSES
from .model import FAULT_CLASSES, FaultClass
from .option_table import OPTIONS
from .order import place_filter

LEAST_LIMIT = 0.1
MOST_JOBS = 200
"""Runs side by side for which a process may have enough open files: each takes four."""
REPORTS = (".json", ".html")


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    """Options of an exploration, checked. `jobs` None: as many as suit the machine."""

    seconds: float = 60.0
    runs: int | None = None
    jobs: int | None = None
    classes: tuple[FaultClass, ...] = DEFAULT_CLASSES
    depth: int = 2
    only: str = ""
    limit: float | None = None
    reports: tuple[Path, ...] = ()
    baseline: Path | None = None
    update: bool = False
    first: bool = False
    until_covered: bool = False
    drip: bool = False
    seed: int | None = None


def read_options(given: Mapping[str, Any]) -> ExploreOptions:
    """Return the options from what was given, by the names of the command line; None for what was not. Raises
    InputError."""
    known = {name: value for name, value in given.items() if value is not None}
    flags = {option.key: bool(known.get(option.key)) for option in OPTIONS if not option.metavar}
    numbers = {name: read_number(name, known[name]) for name in ("runs", "jobs", "depth") if name in known}
    read: dict[str, Any] = flags | numbers
    if numbers.get("jobs", 1) > MOST_JOBS:
        raise InputError(f"jobs are {MOST_JOBS} at most, found {numbers['jobs']}")
    if "for" in known:
        read["seconds"] = read_time("for", known["for"])
    if "limit" in known:
        read["limit"] = read_time("limit", known["limit"])
        if read["limit"] < LEAST_LIMIT:
            raise InputError(f"limit is at least {LEAST_LIMIT:g} s, found {read['limit']:g} s")
    if "faults" in known:
        read["classes"] = read_classes(known["faults"])
    if "only" in known:
        read["only"] = known["only"]
        place_filter(read["only"])
    if "baseline" in known:
        read["baseline"] = Path(known["baseline"])
    elif flags["update"]:
        raise InputError("update writes the baseline, and there is none: name its file")
    read["reports"] = tuple(Path(file) for file in known.get("report", ()))
    for file in read["reports"]:
        if file.suffix not in REPORTS:
            raise InputError(f"a report ends in {' or '.join(REPORTS)}, found {file}")
    return ExploreOptions(**read, seed=known.get("seed"))


def read_number(name: str, value: object) -> int:
    """Return a number from 1 on. Raises InputError, which names the option."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is a number from 1 on, found {value!r}")
    return value


def read_time(name: str, text: str | float) -> float:
    """Return a time in seconds. Raises InputError, which names the option."""
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def read_classes(given: object) -> tuple[FaultClass, ...]:
    """Return the classes of faults in a list such as `transient,fatal`. Raises InputError."""
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InputError(f"faults are a list such as transient,fatal, found {given!r}")
    named = [word.strip() for word in words if word.strip()]
    unknown = [word for word in named if word not in FAULT_CLASSES]
    if unknown or not named:
        raise InputError(f"faults are of {', '.join(FAULT_CLASSES)}, found {', '.join(unknown) or 'none'}")
    return tuple(one for one in FAULT_CLASSES if one in named)
