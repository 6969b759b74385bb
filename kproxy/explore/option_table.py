"""Options of an exploration as users meet them, the same in pytest and on the command line.

Both load this file at their start, so it imports nothing. What was given is read by `options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ExploreOption:
    """Option by its name without dashes. `metavar`: what stands for its value, empty for a flag; `several`: it may be
    given again."""

    name: str
    help: str
    metavar: str = ""
    type: type[str] | type[int] = str
    several: bool = False

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
    ExploreOption("limit", "Time after which a run is called a hang; learned if left out.", "TIME"),
    ExploreOption("report", "Report to write, .json or .html; may be given again.", "FILE", several=True),
    ExploreOption("baseline", "Known failures: they are told, and count as none.", "FILE"),
    ExploreOption("update", "Write the baseline instead of comparing with it."),
    ExploreOption("first", "Stop at the first failure that is certain."),
    ExploreOption("until-covered", "Stop when each fault has been applied once."),
    ExploreOption("drip", "Readers get one batch at a time, so that faults find more to act on."),
)
