"""`kproxy audit show` prints the rows that Spark has, in the report's order, without Spark."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from kproxy.lake.answers import GoldAnswer
from kproxy.lake.commands import group
from kproxy.lake.commands.show import NAMED, conditions
from kproxy.lake.gold_lake import GoldLake
from kproxy.lake.gold_tables import ANSWERS, answer_named
from kproxy.lake.lake import Lake
from kproxy.lake.report.report_builder import _order
from kproxy.record.events.column import Column

NAMES = ["orders", "orders.eu", "a*b", "x", "ü\u202e", "=1+1", 'say "yes",\nno', ""]
ROWS = 40


def show(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(group, ["show", *words, "--lake", str(lake)])


def told(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def made_up(random: Random, column: Column, answer: GoldAnswer, number: int) -> Any:
    """A value of this column; `number` makes rows differ."""
    if column.array:
        return [random.choice(NAMES) for _ in range(random.randrange(3))]
    if column.name in ("verdict", "kind", "level") and answer.worst_first:
        return random.choice(answer.worst_first)
    values: dict[str, Callable[[], Any]] = {
        "string": lambda: random.choice([*NAMES, None]),
        "int": lambda: random.choice((None, -1, 0, 7, 2**31 - 1)),
        "long": lambda: number,
        "double": lambda: random.choice((None, 0.0, 1.5, 1e9, 1234567.875, 0.1234567)),
        "boolean": lambda: random.choice((True, False, None)),
        "timestamp": lambda: datetime(2026, 11, random.randrange(1, 28), tzinfo=UTC),
    }
    return values[column.type]()


TYPES = {
    "string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip


def arrow_type(column: Column) -> pa.DataType:
    return pa.list_(TYPES[column.type]) if column.array else TYPES[column.type]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with rows in all gold tables, in two files each."""
    random, lake = Random(1), tmp_path_factory.mktemp("show") / "lake"
    for answer in ANSWERS:
        schema = pa.schema([(column.name, arrow_type(column)) for column in answer.columns])
        rows = [
            {column.name: made_up(random, column, answer, number) for column in answer.columns}
            for number in range(ROWS)
        ]
        folder = lake / "gold" / answer.name
        folder.mkdir(parents=True)
        for half in range(2):
            pq.write_table(pa.Table.from_pylist(rows[half::2], schema), folder / f"part-{half}.parquet")
    return lake


def as_told(row: Row) -> dict[str, Any]:
    return {
        name: value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else value
        for name, value in row.asDict().items()
    }


@pytest.fixture
def gold(spark: SparkSession, lake: Path) -> GoldLake:
    """The same as Spark sees it."""
    return GoldLake(Lake(spark, str(lake)))


def test_the_rows_of_every_table_are_those_of_spark(gold: GoldLake, lake: Path) -> None:
    """In the report's order, as far as that says it; cut where so many are wanted."""
    for answer in ANSWERS:
        keys = [name for name, _ in answer.sort_keys()]
        spark = [as_told(row) for row in gold.read(answer).orderBy(*_order(answer)).collect()]
        rows = told(show(lake, answer.name, "-o", "json"))
        assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in spark]
        assert sorted(map(repr, rows)) == sorted(map(repr, spark))
        few = show(lake, answer.name, "-o", "json", "--rows", "3")
        assert told(few) == rows[:3]
        assert few.stderr == f"{ROWS - 3} more rows: --rows N prints more\n"


def test_rows_are_chosen_as_spark_chooses_them(gold: GoldLake, lake: Path) -> None:
    """By a name, by the beginning of one, by several, by numbers, by truth, and by what a list has."""

    def of(name: str, *words: str) -> list[int]:
        return sorted(row["long"] for row in spread(told(show(lake, name, "-o", "json", *words)), name))

    def spread(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        long = next(column.name for column in answer_named(name).columns if column.type == "long")
        return [row | {"long": row[long]} for row in rows]

    def spark(name: str, condition: Any) -> list[int]:
        long = next(column.name for column in answer_named(name).columns if column.type == "long")
        return sorted(row[long] for row in gold.read(answer_named(name)).where(condition).collect())

    topic, client = F.col("topic"), F.col("client_id")
    assert of("topic_producers", "--topic", "orders") == spark("topic_producers", topic == "orders") != []
    assert of("topic_producers", "--topic", "orders*") == spark("topic_producers", topic.startswith("orders")) != []
    assert of("topic_producers", "--topic", "*") == spark("topic_producers", topic.isNotNull())
    assert of("topic_producers", "--topic", "x", "--topic", "orders") == spark(
        "topic_producers", topic.isin("x", "orders")
    )
    assert of("topic_producers", "--topic", "x*", "--client-id", "a*b") == spark(
        "topic_producers", (topic == "x") & client.rlike("(?s)^a.*b$")
    )
    assert of("topic_producers", "--topic", ".*") == []  # no regular expression
    assert of("group_lag", "--where", "partition=07") == spark("group_lag", F.col("partition") == 7) != []
    assert of("group_lag", "--where", "partition=-1") == spark("group_lag", F.col("partition") == -1)
    assert of("storms", "--where", "storm=true") == spark("storms", F.col("storm")) != []
    assert of("storms", "--where", "storm=false") == spark("storms", ~F.col("storm")) != []
    found = F.array_contains("findings", "x")
    assert of("producer_hygiene", "--where", "findings=x") == spark("producer_hygiene", found) != []
    assert of("topic_producers", "--where", "topic=ü\u202e") == spark("topic_producers", topic == "ü\u202e") != []


def test_other_forms(lake: Path) -> None:
    """CSV has a line of names and is read back; the table has the columns in which there is something."""
    rows = told(show(lake, "topic_producers", "-o", "json"))
    text = show(lake, "topic_producers", "-o", "csv").stdout
    read = list(csv.DictReader(io.StringIO(text)))
    assert [row["topic"] for row in read] == [(row["topic"] or "").replace("\u202e", "\\u202e") for row in rows]
    assert [row["records"] for row in read] == [str(row["records"]) for row in rows]
    table = show(lake, "topic_producers", "--topic", "orders")
    assert table.stdout.split()[0] == "cluster"
    assert show(lake, "topic_producers", "--topic", "nobody's").stdout == "no rows of topic_producers\n"
    assert show(lake, "topic_producers", "--topic", "nobody's", "-o", "json").stdout == ""
    assert "\u202e" not in show(lake, "topic_producers").stdout


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)
def test_csv_has_the_numbers_that_json_has(lake: Path, answer: GoldAnswer) -> None:
    """With all of their digits; the table has no exponents."""
    names = [column.name for column in answer.columns if column.type in ("int", "long", "double") and not column.array]
    rows = told(show(lake, answer.name, "-o", "json"))
    read = list(csv.DictReader(io.StringIO(show(lake, answer.name, "-o", "csv").stdout)))
    assert [[row[name] and float(row[name]) for name in names] for row in read] == [
        ["" if row[name] is None else row[name] for name in names] for row in rows
    ]
    assert not re.search(r"\de\+\d", show(lake, answer.name).stdout)


def test_it_needs_no_spark(lake: Path) -> None:
    """Nor Java; in a process of its own it takes a second or so."""
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.argv = ['kproxy', 'audit', 'show', 'topic_producers', '-o', "
        f"'csv', '--lake', {str(lake)!r}]; from kproxy.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={"PATH": "", "JAVA_HOME": ""}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("cluster,topic,")


def test_a_table_that_is_being_replaced_is_waited_for(lake: Path) -> None:
    """Gold puts a table in the place of another in two steps."""
    place = lake / "gold" / "topic_producers"
    aside = place.rename(lake / "gold" / "aside")
    putting_back = threading.Thread(target=lambda: (time.sleep(0.5), aside.rename(place)))
    putting_back.start()
    assert len(told(show(lake, "topic_producers", "-o", "json"))) == ROWS
    putting_back.join()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "'nothing' is not one of 'traffic', 'zones'"),
        (["traffic", "--topic", "a"], "--topic: traffic has no column 'topic', it has cluster, hour, api"),
        (["traffic", "--where", "api"], "--where api: COLUMN=VALUE is expected"),
        (["traffic", "--where", "=a"], "--where =a: traffic has no column ''"),
        (["traffic", "--where", "hour=1"], "--where hour=1: rows cannot be chosen by hour, which is a timestamp"),
        (["latency", "--where", "p50_ms=1"], "rows cannot be chosen by p50_ms, which is a double"),
        (["latency", "--where", "node=x"], "--where node=x: node is a whole number up to 2147483647"),
        (["latency", "--where", "node=2147483648"], "node is a whole number up to 2147483647"),
        (["storms", "--where", "storm=1"], "--where storm=1: storm is true or false"),
        (["traffic", "--rows", "0"], "0 is not in the range"),
        (["traffic", "-o", "xml"], "expected text, json or csv, got xml"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, words: list[str], says: str) -> None:
    done = show(tmp_path, *words)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_lake_without_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, one without gold, one without this table, one whose files are no tables, and an address of nothing."""
    monkeypatch.setattr("kproxy.lake.commands.show.PATIENCE", 0.1)
    gold = tmp_path / "gold"
    gold.mkdir()
    for place, says in [
        (tmp_path / "none", "no gold tables; build them with `kproxy audit run`"),
        (tmp_path, "no table traffic; build it with `kproxy audit run`"),
    ]:
        done = show(place, "traffic")
        assert done.exit_code == 1
        assert f"{place}: {says}" in done.output
    (gold / "traffic").mkdir()
    (gold / "traffic" / "a.parquet").write_bytes(b"no table")
    done = show(tmp_path, "traffic")
    assert f"{tmp_path}: traffic cannot be read: " in done.output
    (gold / "traffic" / "a.parquet").unlink()
    assert f"{tmp_path}: traffic has no files; build it again" in show(tmp_path, "traffic").output
    pq.write_table(pa.table({"cluster": ["main"]}), gold / "traffic" / "a.parquet")
    done = show(tmp_path, "traffic")
    assert f"{tmp_path}: traffic lacks api, " in done.output and "another version of kproxy has made it" in done.output
    done = CliRunner().invoke(group, ["show", "traffic", "--lake", "nothing://there"])
    assert "nothing://there: traffic cannot be read: " in done.output


def test_the_commands_of_pages_are_right(lake: Path) -> None:
    """Tables, options and columns that pages ask for are there."""
    docs = Path(__file__).parents[3] / "docs"
    pages = ("audit-reports.md", "networks.md")
    commands = [
        (page, line)
        for page in pages
        for line in re.findall(r"^ *kproxy audit (show [^>\n]*)", (docs / page).read_text(), re.MULTILINE)
    ]
    for page, command in commands:
        done = show(lake, *shlex.split(command)[1:])
        assert done.exit_code == 0, f"{page}: {command}: {done.output}"
    assert {page for page, _ in commands} == set(pages)


def test_show_options_choose_by_brokers_names_without_others() -> None:
    """`violations` has no clients' names, `topic_producers` has both."""
    named: dict[str, tuple[str, ...]] = dict.fromkeys(NAMED, ()) | {"topic": ("a",)}

    assert [column.name for column in conditions(answer_named("violations"), (), named)] == ["broker_topic"]
    assert [column.name for column in conditions(answer_named("topic_producers"), (), named)] == ["topic"]


def test_list_prints_each_table() -> None:
    """A row for each gold table; `show` without a table names the command."""
    listed = CliRunner().invoke(group, ["list"])
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    assert [(row[0], row[1]) for row in rows] == [(answer.name, answer.question) for answer in ANSWERS]
    found = json.loads(CliRunner().invoke(group, ["list", "--json"]).stdout)
    assert [one["table"] for one in found] == [answer.name for answer in ANSWERS]
    missing = CliRunner().invoke(group, ["show"])
    assert missing.exit_code == 2 and "`kproxy audit list` prints the tables." in missing.stderr
