"""Options of an exploration, the same for pytest and for the command line, read from what a user wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
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
    """Return the options by their names on the command line, where None is an option that was not given. Raises
    InputError."""
    known = {name: value for name, value in given.items() if value is not None}
    flags = {option.key: bool(known.get(option.key)) for option in OPTIONS if not option.metavar}
    numbers = {name: read_number(name, known[name]) for name in ("runs", "jobs", "depth") if name in known}
    read: dict[str, Any] = flags | numbers
    if numbers.get("jobs", 1) > MOST_JOBS:
        raise InputError(f"jobs: expected {MOST_JOBS} at most, got {numbers['jobs']}")
    if "for" in known:
        read["seconds"] = read_time("for", known["for"])
    if "limit" in known:
        read["limit"] = read_time("limit", known["limit"])
        if read["limit"] < LEAST_LIMIT:
            raise InputError(f"limit: expected at least {LEAST_LIMIT:g} s, got {read['limit']:g} s")
    if "faults" in known:
        read["classes"] = read_classes(known["faults"])
    if "only" in known:
        read["only"] = known["only"]
        place_filter(read["only"])
    if "baseline" in known:
        read["baseline"] = Path(known["baseline"])
    elif flags["update"]:
        raise InputError("update: expected a file in baseline, got none")
    read["reports"] = tuple(Path(file) for file in known.get("report", ()))
    for file in read["reports"]:
        if file.suffix not in REPORTS:
            raise InputError(f"report: expected a file name ending in {' or '.join(REPORTS)}, got {file}")
    options = ExploreOptions(**read, seed=known.get("seed"))
    check_written(options)
    return options


def check_written(options: ExploreOptions) -> None:
    """Raise InputError for files that cannot be written, and for an update that would lose known failures."""
    written = {"report": options.reports}
    if options.baseline is not None and options.update:
        written["baseline"] = (options.baseline,)
        if options.first:
            raise InputError("update: expected a whole exploration, got the option first")
        if options.baseline.resolve() in [file.resolve() for file in options.reports]:
            raise InputError(f"baseline: expected another file than the report, got {options.baseline}")
    for name, files in written.items():
        if folder := next((file for file in files if file.is_dir()), None):
            raise InputError(f"{name}: expected a file, got the folder {folder}")


def read_number(name: str, value: object) -> int:
    """Return a positive integer. Raises InputError, which names the option."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: expected a positive integer, got {value!r}")
    return value


def read_time(name: str, text: str | float) -> float:
    """Return a positive duration in seconds. Raises InputError, which names the option."""
    try:
        seconds = float(parse_duration(text))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise InputError(f"{name}: expected a time above 0 such as 60s or 2m, got {text!r}")
    return seconds


def read_classes(given: object) -> tuple[FaultClass, ...]:
    """Return the fault classes in a list such as `transient,fatal`. Raises InputError."""
    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InputError(f"faults: expected a list such as transient,fatal, got {given!r}")
    named = [word.strip() for word in words if word.strip()]
    unknown = [word for word in named if word not in FAULT_CLASSES]
    if unknown or not named:
        raise InputError(f"faults: expected {', '.join(FAULT_CLASSES)}, got {', '.join(unknown) or 'none'}")
    return tuple(one for one in FAULT_CLASSES if one in named)


def read_patterns(given: object) -> tuple[str, ...]:
    """Return the patterns of a marker's `ignore`: one text or a list. Raises InputError."""
    patterns = (given,) if isinstance(given, str) else given
    if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) and one for one in patterns):
        raise InputError(f'ignore: expected patterns such as ["TimeoutError: *"], got {given!r}')
    return tuple(patterns)
