"""Commands of `kproxy audit`, which are those of `python -m kproxy.lake`: options in, jobs called, lines out.

Spark is imported inside of them, so that help needs neither Spark nor Java.
"""

from __future__ import annotations

from kproxy.base.terminal import LazyGroup

_LAKE = "kproxy.lake.commands.lake"
_ANSWERS = "kproxy.lake.commands.answers"

JOBS = {
    "bronze": (f"{_LAKE}:bronze_command", "Take events over into the lake as they were written."),
    "silver": (f"{_LAKE}:silver_command", "Type them: one table per kind of thing."),
    "gold": (
        f"{_LAKE}:gold_command",
        "Make the answers: who writes and reads, what is slow, what fails, who would break.",
    ),
    "report": (f"{_ANSWERS}:report_command", "Tell the answers: headlines here, all of it on an HTML page."),
    "list": ("kproxy.lake.commands.show:list_command", "List the gold tables that show prints."),
    "show": ("kproxy.lake.commands.show:show_command", "Print rows of one gold table, without Spark."),
    "whatif": (f"{_ANSWERS}:whatif_command", "Say what rules would have done to captured traffic."),
    "all": (f"{_LAKE}:all_command", "Bronze, silver and whatever follows from them, once."),
    "completeness": (f"{_LAKE}:completeness_command", "Say which events are missing, or came twice."),
    "compact": (f"{_LAKE}:compact_command", "Bring the files of a day together, and take out duplicates exactly."),
    "clean": (f"{_LAKE}:clean_command", "Delete days that are too old, and event files that have been taken over."),
}
"""Jobs by name: each is (`module:command`, description in one line)."""

group = LazyGroup(
    "audit",
    table=JOBS,
    help="Turn what kproxy recorded into answers, with Spark.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
