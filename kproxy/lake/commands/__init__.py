"""Commands of `kproxy audit`, which are those of `python -m kproxy.lake`: options in, jobs called, lines out.

Spark is imported inside of them, so that help needs neither Spark nor Java.
"""

from __future__ import annotations

from kproxy.base.terminal import LazyGroup

_LAKE = "kproxy.lake.commands.lake"
_ANSWERS = "kproxy.lake.commands.answers"

JOBS = {
    "run": (f"{_LAKE}:run_command", "Build bronze, silver and gold tables from audit events."),
    "report": (f"{_ANSWERS}:report_command", "Tell the answers: headlines here, all of it on an HTML page."),
    "list": ("kproxy.lake.commands.show:list_command", "List the gold tables that show prints."),
    "show": ("kproxy.lake.commands.show:show_command", "Print rows of one gold table, without Spark."),
    "completeness": (f"{_LAKE}:completeness_command", "Say which events are missing, or came twice."),
    "compact": (f"{_LAKE}:compact_command", "Bring the files of a day together, and take out duplicates exactly."),
    "clean": (f"{_LAKE}:clean_command", "Delete days that are too old, and event files that have been taken over."),
}
"""Jobs by name: each is (`module:command`, description in one line)."""

SIMULATE = (
    f"{_ANSWERS}:simulate_command",
    "Count what rules would do to captured traffic; needs the extra `pipeline`.",
)
"""The command `kproxy rules simulate`, also a job of `python -m kproxy.lake`."""

group = LazyGroup(
    "audit",
    table=JOBS,
    help="Turn what kproxy recorded into answers, with Spark.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
