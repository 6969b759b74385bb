"""Table of the jobs that `kproxy audit` has as commands."""

from __future__ import annotations

from kproxy.lazy_group import LazyGroup

_HERE = "kproxy.pipeline.commands"

JOBS = {
    "bronze": (f"{_HERE}.bronze", "Take events over into the lake as they were written."),
    "silver": (f"{_HERE}.silver", "Type them: one table per kind of thing."),
    "gold": (f"{_HERE}.gold", "Make the answers: who writes and reads, what is slow, what fails, who would break."),
    "report": (f"{_HERE}.report", "Tell the answers: headlines here, all of it on an HTML page."),
    "whatif": (f"{_HERE}.whatif", "Say what rules would have done to captured traffic."),
    "all": (f"{_HERE}.all_jobs", "Bronze, silver and whatever follows from them, once."),
    "completeness": (f"{_HERE}.completeness", "Say which events are missing, or came twice."),
    "compact": (f"{_HERE}.compact", "Bring the files of a day together, and take out duplicates exactly."),
    "clean": (f"{_HERE}.clean", "Delete days that are too old, and event files that have been taken over."),
}
"""Name: (module with a click command called `command`, what it does in one line)."""

group = LazyGroup(
    "audit",
    table=JOBS,
    help="Turn what kproxy recorded into answers, with Spark.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
