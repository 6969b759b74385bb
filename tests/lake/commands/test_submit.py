"""spark-submit with the entry file, as on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from kproxy.lake import __main__ as entry
from kproxy.lake.lake import Lake
from kproxy.lake.tables import REQUESTS


@pytest.mark.deep
@pytest.mark.timeout(400)  # Spark starts as a process of its own, on a machine that may be busy
def test_spark_submit_runs_the_jobs(spark: SparkSession, audit: Any, audit_command: Any, tmp_path: Path) -> None:
    """The master is the one that it was given. By default only bronze is submitted: a start of Spark takes its time."""
    audit.publish(audit.event(1))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    lake = tmp_path / "lake"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for arguments in (["run", "--until", "bronze", "--from", str(audit.path)], ["run", "--until", "silver"]):
        if "silver" in arguments and not os.environ.get("KPROXY_TEST_ALL"):
            assert audit_command(*arguments, "--lake", lake).exit_code == 0
            continue
        done = subprocess.run(
            [str(submit), "--master", "local[2]", "--conf", "spark.ui.enabled=false", str(entry.__file__), *arguments,
             "--lake", str(lake)],
            capture_output=True, text=True, timeout=250, check=False, env=environment, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    assert [row.event_id for row in Lake(spark, str(lake)).read(REQUESTS).collect()] == [1]
