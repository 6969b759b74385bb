"""Entry point of the jobs of `kproxy audit`: `python -m kproxy.lake JOB …`, and the script for spark-submit."""

from __future__ import annotations

from kproxy.lake.commands import group

if __name__ == "__main__":
    group(prog_name="kproxy audit")
