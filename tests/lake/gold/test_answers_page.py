"""docs/audit-reports.md: its examples run, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.lake import gold_lake as job
from kproxy.lake.commands import group
from kproxy.lake.gold_tables import ANSWERS, answers, questions
from kproxy.lake.lake import Lake
from kproxy.lake.spark import Run
from kproxy.lake.tables import table_named

PAGE = (Path(__file__).parents[3] / "docs" / "audit-reports.md").read_text()


@pytest.mark.timeout(600)
def test_the_examples_run(spark, silver, tmp_path, monkeypatch, capsys):
    """On a lake with a few rows; each sees them. Answers that no example reads are not made."""
    writes = [{"api": "Produce", "topic": "orders", "partition": 0, "client_id": "shop", "records": 5, "bytes": 500}]
    requests = [
        {"api": "Produce", "version": 2, "client_id": "shop", "principal": "User:shop", "latency_ms": 3.0,
         "latency_max_ms": 3.0, "latency_buckets": [0, 0, 1] + [0] * 12},
    ]  # fmt: skip
    lake = Lake(spark, str(tmp_path / "lake"))
    for name, made in silver(produce_partitions=writes, requests=requests).items():
        lake.replace(table_named(name), made.drop("batch"), "b1")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"gold/(\w+)|answer_named\W+(\w+)", "".join(blocks)))
    monkeypatch.setattr(job, "ANSWERS", [answer for answer in ANSWERS if any(answer.name in one for one in named)])
    job.gold(Run(spark, lake, print))
    monkeypatch.chdir(tmp_path)

    # Spark would resolve `lake` against the folder that its JVM was started in.
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace('"lake', f'"{tmp_path}/lake'), "audit-reports.md", "exec"), names)
    shown = capsys.readouterr().out

    assert 4 == len(blocks)
    for seen in ("shop         500", "User:shop|shop     |Produce|2      |3", "2026-11-20 10:00:00|Produce|       1|",
                 "|Produce|NULL|   3.0|       1|"):  # fmt: skip
        assert " ".join(seen.split()) in " ".join(shown.split()), shown

    asked = [
        shlex.split(line.partition(">")[0]) for line in re.findall(r"^kproxy audit (show .*)$", PAGE, re.MULTILINE)
    ]
    for words in [words for words in asked if any(words[1] in one for one in named)]:
        done = CliRunner().invoke(group, [*words, "--lake", f"{tmp_path}/lake"])
        assert done.exit_code == 0 and "shop" in done.output, f"{words}: {done.output}"
    assert len(asked) == 5


def test_every_answer_has_a_question_and_a_chapter():
    """And every column a meaning."""
    for answer in ANSWERS:
        assert f"| {answer.question} | [`{answer.name}`](#{answer.name}) |" in questions()
        assert f"### {answer.name}\n" in answers()
        assert all(column.meaning for column in answer.columns)


def test_silver_tables_that_answers_name_are_declared():
    """A misspelt one would raise."""
    for answer in ANSWERS:
        assert answer.reads == tuple(table_named(name).name for name in answer.reads)
