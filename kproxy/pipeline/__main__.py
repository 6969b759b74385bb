"""`python -m kproxy.pipeline JOB …`, and what spark-submit is given: the jobs of `kproxy audit`."""

from __future__ import annotations

from kproxy.pipeline.commands import group

if __name__ == "__main__":
    group(prog_name="kproxy audit")
