"""One Spark session for all tests of a process, a lake for each test, and a folder of event files."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kproxy.lake.commands import group
from kproxy.lake.commands import lake as common
from kproxy.lake.lake import Lake
from kproxy.lake.spark import Run, session
from kproxy.lake.tables import LakeTable

HERE = "tests/lake/"
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
"""Tests have few rows: a task costs more than what it does."""
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The quick compiler and the small collector, for this JVM and those that tests start: they run for a short time."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two tasks at a time, the Kafka connector, and everything that it writes in a folder of the test run."""
    place = tmp_path_factory.mktemp("spark")
    settings = {"spark.sql.warehouse.dir": str(place), "spark.local.dir": str(place), **SMALL}
    started = session("local[2]", settings, kafka=True)
    yield started
    started.stop()


@pytest.fixture(scope="session", autouse=True)
def quick_jvm() -> Iterator[None]:
    """Spark's scripts take options of the JVM from here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", JVM)
        yield


INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""Plans are not compiled to Java, which takes longer than a plan for a few rows. In `COMPILED` files, and with
KPROXY_TEST_ALL=1, plans are compiled."""
COMPILED = frozenset({"test_numbers_agree.py"})


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set `INTERPRETED` during a test that uses Spark."""
    compiled = os.environ.get("KPROXY_TEST_ALL") or request.path.name in COMPILED
    if "spark" not in request.fixturenames or compiled:
        yield
        return
    conf = request.getfixturevalue("spark").conf
    before = {name: conf.get(name, None) for name in INTERPRETED}
    for name, value in INTERPRETED.items():
        conf.set(name, value)
    yield
    for name, was in before.items():
        if was is None:
            conf.unset(name)
        else:
            conf.set(name, was)


@pytest.fixture
def audit_command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """audit_command("run", "--from", …): `kproxy audit` in this process, on the session of the tests."""

    @contextmanager
    def opened(lake: str, *_: Any, quiet: bool = False, **__: Any) -> Iterator[Run]:
        yield Run(spark, Lake(spark, lake), common.silent if quiet else common.to_stderr)

    monkeypatch.setattr(common, "opened", opened)
    return lambda *words: CliRunner().invoke(group, [str(word) for word in words])


@dataclass
class AuditFolder:
    """Event files as kproxy publishes them. `event` makes a line, `publish` a file of lines."""

    path: Path
    source: str = "kp/boot/0"
    files: int = 0

    def event(self, number: int, short: str = "request", time: str = "2026-11-21T10:00:00Z", **data: Any) -> str:
        """The line of one event, of type kproxy.<short>.v1."""
        event = {"specversion": "1.0", "id": str(number), "source": self.source, "type": f"kproxy.{short}.v1",
                 "time": time, "datacontenttype": "application/json", "data": data}  # fmt: skip
        return json.dumps(event, separators=(",", ":"))

    def publish(self, *lines: str, day: str = "2026-11-21") -> Path:
        """A file of these lines."""
        self.files += 1
        folder = self.path / f"dt={day}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"kp-boot-0-{self.files:012d}.ndjson.gz"
        file.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
        return file


@pytest.fixture(scope="session")
def audit_folder() -> Callable[[Path], AuditFolder]:
    def make(path: Path) -> AuditFolder:
        path.mkdir()
        return AuditFolder(path)

    return make


@pytest.fixture
def audit(audit_folder: Callable[[Path], AuditFolder], tmp_path: Path) -> AuditFolder:
    return audit_folder(tmp_path / "audit")


@pytest.fixture(scope="session")
def rows_in_files() -> Callable[[Lake, LakeTable], list[str]]:
    """The rows of a table with their days, as its files have them, sorted: without Spark, which plans each reading."""

    def found(lake: Lake, table: LakeTable) -> list[str]:
        files = Path(lake.table_path(table).removeprefix("file:")).glob("dt=*/batch=*/**/*.parquet")
        rows = ((file, row) for file in files for row in pq.read_table(file, partitioning=None).to_pylist())
        return sorted(f"{re.findall('dt=[0-9-]+', str(file))} {row}" for file, row in rows)

    return found


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    """A run on an empty lake, which tells nobody."""
    return Run(spark, Lake(spark, str(tmp_path / "lake")), lambda _: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves the sockets over which rows came to the garbage collector."""
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
