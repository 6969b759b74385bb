"""`kproxy audit JOB`: the jobs of the pipeline."""

from __future__ import annotations

from kproxy.pipeline.commands.jobs import group

command = group
