"""Entry point of the Spark jobs: `python -m kproxy.lake JOB …`, and the script for spark-submit.

The jobs are those of `kproxy audit`, and `simulate` of `kproxy rules`.
"""

from __future__ import annotations

from kproxy.base.terminal import LazyGroup
from kproxy.lake.commands import JOBS, SIMULATE

jobs = LazyGroup("lake", table={**JOBS, "simulate": SIMULATE}, help="Spark jobs on audit events and captures.")

if __name__ == "__main__":
    jobs(prog_name="python -m kproxy.lake")
