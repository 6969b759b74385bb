"""The options of `kproxy audit`, without Spark."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kproxy.lake.commands import JOBS, group
from kproxy.lake.commands import lake as common

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", JOBS)
def test_every_job_explains_itself_without_spark(name: str) -> None:
    """Help needs neither Spark nor Java."""
    program = (
        "import sys; from kproxy.lake.commands import group\n"
        f"try: group([{name!r}, '--help'])\n"
        "except SystemExit: print('pyspark' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "--lake" in printed or name == "list"
    assert printed.endswith("False\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run --conf spark.x", "--conf: expected NAME=VALUE, got spark.x"),
        ("report -o nowhere/report.html", "expected a file in a writable folder, got 'nowhere'"),
        ("run --from audit --report nowhere/report.html", "expected a file in a writable folder, got 'nowhere'"),
        ("run --from audit --report /", "is a directory"),
        ("rum", 'unknown command "rum", did you mean "run"?'),
        ("run --every 30s --from audit", "--every: expected --until bronze, got gold"),
        ("run --until silver --report a.html", "--report: expected --until gold, got silver"),
        ("run --until silver --rebuild gold", "--rebuild: expected silver or an earlier layer, got gold"),
        ("run --until bronze", "expected --from or --kafka"),
        ("run --from a --kafka b:1", "expected --from or --kafka"),
        ("run --kafka b:1 --option a", "--option: expected NAME=VALUE, got a"),
        ("report --from 2026-01-02 --to 2026-01-01", "--from: expected a day until 2026-01-01, got 2026-01-02"),
        ("clean", "expected --keep or --delete-consumed"),
        ("clean --keep soon", "--keep: expected a number of days such as 90d, got soon"),
    ],
)
def test_mistakes_are_told_before_spark_starts(arguments: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2 is for usage."""
    monkeypatch.setattr(common, "opened", None)
    result = CliRunner().invoke(group, arguments.split())

    assert result.exit_code == 2
    assert words in result.output


def test_the_commands_of_the_pipeline_page_are_right() -> None:
    """Jobs and options that the page names exist."""
    page = (DOCS / "audit-reports.md").read_text().replace("\\\n", " ")
    commands = [re.split("[#>]", line)[0] for line in re.findall(r"kproxy audit ([^\n`]+)", page)]

    assert len(commands) > 8
    for words in commands:
        name, *arguments = shlex.split(words)
        if name not in JOBS:
            continue
        command = group.get_command(click.Context(group), name)
        assert command is not None
        command.make_context(name, arguments)


def test_little_is_told_from_much_by_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all folders together, and whatever is not on this machine's disks may be much."""
    monkeypatch.setattr(common, "LITTLE", 100)
    for name, size in (("lake/silver/a", 60), ("audit/b", 39), ("audit/dt=1/c", 1)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    lake, audit = f"{tmp_path}/lake", f"{tmp_path}/audit"

    assert common.hold_little([lake]) and common.hold_little([audit, f"{tmp_path}/nothing"])
    assert not common.hold_little([lake, audit]) and not common.hold_little([f"file:{lake}", f"file:{audit}"])
    assert not common.hold_little([lake, "s3a://bucket/audit"])
