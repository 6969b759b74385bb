"""`python -m kproxy.lake JOB …`, and what spark-submit is given: the jobs of `kproxy audit`."""

from __future__ import annotations

from kproxy.lake.commands import group

if __name__ == "__main__":
    group(prog_name="kproxy audit")
