"""Options of explorations, the same for pytest and for the command line.

Both load this module at their start, so it imports other modules of explorations only in functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kproxy.base.errors import InputError

    from .model import FaultClass


@dataclass(frozen=True, slots=True)
class ExploreOption:
    name: str  # without dashes
    help: str
    metavar: str = ""  # empty: a flag
    type: type[str] | type[int] = str
    several: bool = False  # accepted more than once

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    @property
    def of_argparse(self) -> dict[str, Any]:
        if not self.metavar:
            return {"help": self.help, "action": "store_true"}
        if self.several:
            return {"help": self.help, "metavar": self.metavar, "action": "append", "default": []}
        return {"help": self.help, "metavar": self.metavar, "type": self.type}

    @property
    def of_click(self) -> dict[str, Any]:
        if not self.metavar:
            return {"help": self.help, "is_flag": True}
        return {"help": self.help, "metavar": self.metavar, "type": self.type, "multiple": self.several}


OPTIONS = (
    ExploreOption("for", "Time for each exploration, with confirming and shrinking, such as 2m (60s).", "TIME"),
    ExploreOption("runs", "Runs of each exploration at most.", "N", int),
    ExploreOption("jobs", "Runs side by side (4 for each core).", "N", int),
    ExploreOption("faults", "Classes of faults: transient, fatal, lies; crash for programs (transient,fatal).", "LIST"),
    ExploreOption("depth", "Faults in one run at most (2).", "N", int),
    ExploreOption("only", "Where faults may be: api=Produce,client_id=app-*.", "MATCH"),
    ExploreOption("limit", "Time after which a run counts as a hang (default: learned).", "TIME"),
    ExploreOption("report", "Report to write, .json or .html; may be given again.", "FILE", several=True),
    ExploreOption("baseline", "File of known failures, which are reported and do not count.", "FILE"),
    ExploreOption("update", "Write the baseline instead of comparing with it."),
    ExploreOption("first", "Stop at the first failure that is certain."),
    ExploreOption("until-covered", "Stop when each fault has been applied once."),
    ExploreOption("one-batch-per-fetch", "Return one batch per fetch, so that more faults apply."),
)


LEAST_LIMIT = 0.1
MOST_JOBS = 200  # each takes four open files
REPORTS = (".json", ".html")


@dataclass(frozen=True, slots=True)
class ExploreOptions:
    seconds: float = 60.0
    runs: int | None = None
    jobs: int | None = None  # None: by the number of cores
    classes: tuple[FaultClass, ...] = ("transient", "fatal")
    depth: int = 2
    only: str = ""
    limit: float | None = None
    reports: tuple[Path, ...] = ()
    baseline: Path | None = None
    update: bool = False
    first: bool = False
    until_covered: bool = False
    one_batch_per_fetch: bool = False
    seed: int | None = None


def read_options(given: Mapping[str, Any]) -> ExploreOptions:
    """Return the options from values by name; None is an option that was not given. Raises InputError."""
    from .order import place_filter

    known = {name: value for name, value in given.items() if value is not None}
    flags = {option.key: bool(known.get(option.key)) for option in OPTIONS if not option.metavar}
    numbers = {name: read_number(name, known[name]) for name in ("runs", "jobs", "depth") if name in known}
    read: dict[str, Any] = flags | numbers
    if numbers.get("jobs", 1) > MOST_JOBS:
        raise input_error(f"jobs: expected {MOST_JOBS} at most, got {numbers['jobs']}")
    if "for" in known:
        read["seconds"] = read_time("for", known["for"])
    if "limit" in known:
        read["limit"] = read_time("limit", known["limit"])
        if read["limit"] < LEAST_LIMIT:
            raise input_error(f"limit: expected at least {LEAST_LIMIT:g} s, got {read['limit']:g} s")
    if "faults" in known:
        read["classes"] = read_classes(known["faults"])
    if "only" in known:
        read["only"] = known["only"]
        place_filter(read["only"])
    if "baseline" in known:
        read["baseline"] = Path(known["baseline"])
    elif flags["update"]:
        raise input_error("update: expected a file in baseline, got none")
    read["reports"] = tuple(Path(file) for file in known.get("report", ()))
    for file in read["reports"]:
        if file.suffix not in REPORTS:
            raise input_error(f"report: expected a file name ending in {' or '.join(REPORTS)}, got {file}")
    options = ExploreOptions(**read, seed=known.get("seed"))
    check_written(options)
    return options


def check_written(options: ExploreOptions) -> None:
    """Raise InputError for files that cannot be written, and for an update that would lose known failures."""
    written = {"report": options.reports}
    if options.baseline is not None and options.update:
        written["baseline"] = (options.baseline,)
        if options.first:
            raise input_error("update: expected a whole exploration, got the option first")
        if options.baseline.resolve() in [file.resolve() for file in options.reports]:
            raise input_error(f"baseline: expected another file than the report, got {options.baseline}")
    for name, files in written.items():
        if folder := next((file for file in files if file.is_dir()), None):
            raise input_error(f"{name}: expected a file, got the folder {folder}")


def input_error(text: str) -> InputError:
    from kproxy.base.errors import InputError

    return InputError(text)


def read_number(name: str, value: object) -> int:
    """Return a positive integer. Raises InputError, which names the option."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise input_error(f"{name}: expected a positive integer, got {value!r}")
    return value


def read_time(name: str, text: str | float) -> float:
    """Return a positive duration in seconds. Raises InputError, which names the option."""
    from kproxy.rules.values.quantities import parse_duration

    try:
        seconds = float(parse_duration(text))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise input_error(f"{name}: expected a time above 0 such as 60s or 2m, got {text!r}")
    return seconds


def read_classes(given: object) -> tuple[FaultClass, ...]:
    """Return the fault classes in a list such as `transient,fatal`. Raises InputError."""
    from .model import FAULT_CLASSES

    words = given.split(",") if isinstance(given, str) else given
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise input_error(f"faults: expected a list such as transient,fatal, got {given!r}")
    named = [word.strip() for word in words if word.strip()]
    unknown = [word for word in named if word not in FAULT_CLASSES]
    if unknown or not named:
        raise input_error(f"faults: expected {', '.join(FAULT_CLASSES)}, got {', '.join(unknown) or 'none'}")
    return tuple(one for one in FAULT_CLASSES if one in named)


def read_patterns(given: object) -> tuple[str, ...]:
    """Return the patterns of a marker's `ignore`: one text or a list. Raises InputError."""
    patterns = (given,) if isinstance(given, str) else given
    if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) and one for one in patterns):
        raise input_error(f'ignore: expected patterns such as ["TimeoutError: *"], got {given!r}')
    return tuple(patterns)
