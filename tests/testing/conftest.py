"""A suite of somebody else's tests, run as they would run it; and a client that is quick to try again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka import Producer

QUICK = {"linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 10, "log_level": 0}


@dataclass
class Ran:
    """How a run of pytest ended: `passed=3, failed=1, …`, and all that it wrote."""

    counts: dict[str, int]
    text: str


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., Ran]:
    """`suite(test_file, *arguments, conftest=…)` runs pytest on these files, in a process and a folder of its own."""

    def run(tests: str, *arguments: str, conftest: str = "", ini: str = "") -> Ran:
        (tmp_path / "test_suite.py").write_text(dedent(tests))
        (tmp_path / "conftest.py").write_text(dedent(conftest))
        (tmp_path / "pytest.ini").write_text("[pytest]\n" + dedent(ini))
        unused = [word for name in ("cacheprovider", "hypothesispytest", "anyio") for word in ("-p", f"no:{name}")]
        command = [sys.executable, "-m", "pytest", *unused, *arguments]
        # pytest repeats long messages in its summary if it finds itself in CI.
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
        )
        last = ran.stdout.splitlines()[-1] if ran.stdout else ""
        found = re.findall(r"(\d+) (passed|failed|errors?|skipped|warnings?)", last)
        return Ran({word.removesuffix("s"): int(number) for number, word in found}, ran.stdout + ran.stderr)

    return run


@pytest.fixture
def produce() -> Callable[..., None]:
    """`produce(bootstrap, topic, *values)`: each acknowledged before the next is sent."""

    def send(bootstrap: str, topic: str, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, **QUICK})
        for value in values:
            producer.produce(topic, value)
            assert producer.flush(20) == 0, "not acknowledged"

    return send
