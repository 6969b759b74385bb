"""`kproxy verify`: its files, its options, its exit codes, and what it prints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.cli.verify_input import by_time, over, recordings
from kproxy.protocol.records import Record, encode_batch
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.record.exchange import ObservedExchange
from kproxy.record.filters import Filter
from kproxy.tools.verify import checks
from kproxy.tools.verify.options import fail_on
from tests.support.exchange_factory import NOON, Somebody, event_lines, exchange, write_capture
from tests.tools.verify.history import History
from tests.tools.verify.history import batch as history_batch

GOLDEN = Path(__file__).parents[1] / "record" / "captures" / "golden" / "loopback.pcapng"
WRITER = Somebody(3, client_id="writer")


def run(*words: object, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, words)], input=given)


def write(number: int, base: int, *, at: float = NOON, who: Somebody = WRITER, value: bytes = b"x") -> ObservedExchange:
    """Return a write of one record that is acknowledged at this offset."""
    batch = encode_batch([Record(0, 1_000_000, None, value + b"%d" % number)])
    told = {"index": 0, "error_code": 0, "base_offset": base, "log_append_time_ms": -1, "log_start_offset": 0}
    asked = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    return exchange(
        "Produce", 8, {"acks": -1, "topic_data": asked},
        {"responses": [{"name": "orders", "partition_responses": [told]}]}, who=who, at=at, number=number,
    )  # fmt: skip


def told_names(who: Somebody = WRITER, at: float = NOON - 5, name: str = "orders") -> ObservedExchange:
    """Return a CreateTopics: its response has the id and the configs that a proof needs before and after."""
    values = {"cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
    configs = [{"name": name, "value": value} for name, value in values.items()]
    body = {"topics": [{"name": name, "topic_id": UUID(int=7), "configs": configs}]}
    return exchange("CreateTopics", 7, {"topics": [{"name": name}]}, body, who=who, at=at, number=99)


def led_names(who: Somebody = WRITER, at: float = NOON - 5, name: str = "orders") -> ObservedExchange:
    """Return a Metadata: its response has the id and the leader epoch, which excludes an election in between."""
    parts = [{"partition_index": 0, "leader_id": 1, "leader_epoch": 0}]
    body = {"brokers": [], "topics": [{"name": name, "topic_id": UUID(int=7), "partitions": parts}]}
    return exchange("Metadata", 12, {"topics": None}, body, who=who, at=at, number=99)


def twice(start: float = NOON, names: Callable[..., ObservedExchange] = told_names) -> list[ObservedExchange]:
    """Return two writes that are acknowledged at the same offset."""
    return [names(at=start - 5), write(1, 5, at=start), write(2, 5, at=start + 1), names(at=start + 60)]


def right(start: float = NOON) -> list[ObservedExchange]:
    """Return two writes, one behind the other."""
    return [told_names(at=start - 5), write(1, 5, at=start), write(2, 6, at=start + 1)]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_capture(tmp_path / "broken.pcapng", twice(names=led_names))


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return write_capture(tmp_path / "sound.pcapng", right())


def test_what_is_found(broken: Path) -> None:
    """One finding with its two exchanges, whose brokers' view is the same; exit code 1."""
    ran = run(broken)

    assert ran.exit_code == 1, ran.output
    lines = ran.stdout.splitlines()
    assert lines[0] == f"{broken}: 4 exchanges of 1 connection, all read whole"
    assert lines[1].startswith("checked   2 acknowledged writes, ")
    assert lines[3] == "PROVED   offset-given-twice · orders[0]"
    assert [line.split()[:6] for line in lines[5:7]] == [
        ["2", "12:00:00.000", "writer", "→", "node", "1"], ["3", "12:00:01.000", "writer", "→", "node", "1"],
    ]  # fmt: skip
    assert "Brokers' view: the same" in ran.stdout
    assert "1 finding (1 proved); clean: " in ran.stdout


def test_nothing_is_found(sound: Path) -> None:
    """Exit code 0."""
    ran = run(sound)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "\nnothing found; clean: " in ran.stdout


def test_several_files_are_one_history(tmp_path: Path) -> None:
    """Several files are merged by time. Their order is known with `--skew`, and topic ids tie their clusters."""
    folder = tmp_path / "captures"
    folder.mkdir()
    first = write_capture(folder / "b.pcapng", [led_names(), write(1, 5, at=NOON), led_names(at=NOON + 60)])
    other = Somebody(3, client_id="other")
    second = write_capture(folder / "a.pcapng", [led_names(other), write(2, 5, at=NOON + 1, who=other)])
    (folder / "notes.txt").write_text("none")

    for words in ((folder,), (second, first), (first, second, first)):
        ran = run(*words, "--skew", "1ms")
        assert ran.exit_code == 1
        assert "the opposite order of exchanges of several recordings" in " ".join(run(*words).stdout.split())
        found = [line.split()[2] for line in ran.stdout.splitlines() if "Produce 8" in line]
        assert found == ["writer", "other"]
    assert run(first).exit_code == 0
    assert "5 exchanges of 2 connections" in run(folder).stdout
    assert run(first, second).stdout.startswith(f"{first} and 1 more: ")


def test_files_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    """Whatever the number of files, each is read once and as it is needed."""
    paths = []
    for number in range(5):
        exchanges = [write(step, step, at=NOON + step + number / 10) for step in range(20)]
        paths.append(str(write_capture(tmp_path / f"{number}.pcapng", exchanges)))
    times = [over(pair) for pair in by_time(recordings(paths), Filter())]
    assert len(times) == 100
    assert times == sorted(times)


def test_standard_input(broken: Path) -> None:
    """Is a capture, too."""
    ran = run("-", given=broken.read_bytes())
    assert ran.exit_code == 1
    assert ran.stdout.startswith("standard input: 4 exchanges")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 1),
        (["--only", "offset-given-twice"], 1),
        (["--without", "offset-given-twice"], 0),
        (["--only", "lost-write,order"], 0),
        (["--view", "brokers"], 1),
        (["--filter", "correlation_id == 1"], 0),
        (["--fail-on", "note", "--level", "proved"], 1),
    ],
)
def test_options_choose(broken: Path, words: Sequence[str], code: int) -> None:
    """Checks, view, exchanges; what is not told may make the exit code 1."""
    ran = run(broken, *words)
    assert ran.exit_code == code, ran.output
    if "--filter" in words:
        assert "only exchanges that fit correlation_id == 1 were looked at" in ran.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "lost-writes"], "--only: expected a check that `kproxy verify --list` prints, got 'lost-writes'"),
        (
            ["--without", "order,nonsense"],
            "--without: expected a check that `kproxy verify --list` prints, got 'nonsense'",
        ),
        (["--retention", "orders"], "--retention: expected TOPIC=DURATION such as orders=7d, got orders"),
        (["--retention", "orders=soon"], "expected a duration"),
        (["--skew", "soon"], "expected a duration"),
        (["--memory", "much"], "expected a size"),
        (["--filter", "~k nonsense"], 'unknown API "nonsense"'),
        (["--level", "sure"], "'sure' is not one of"),
        (["--fail-on", "sure"], "--fail-on: expected a level or CHECK=LEVEL, with a level of proved, suspect, note"),
        (["--fail-on", "order=sure"], "--fail-on: expected one of proved, suspect, note, got 'sure' (at order=sure)"),
        (["--fail-on", "orders=note"], "--fail-on: expected a check that `kproxy verify --list` prints, got 'orders'"),
        (["--fail-on", "note,proved"], "--fail-on: expected one level for all checks, got note, proved"),
        (["--html", "/nowhere/x.html"], "/nowhere/x.html: no such file or directory"),
    ],
)
def test_bad_options(sound: Path, words: Sequence[str], message: str) -> None:
    """Exit code 2, and what is wrong, in one line."""
    ran = run(sound, *words)
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


def test_bad_files(tmp_path: Path, sound: Path) -> None:
    """Exit code 2: none, not there, no capture, events, a folder without any; one bad one among good ones."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    for words, message in (
        ((), "name a capture or an event file, or - for standard input"),
        ((tmp_path / "x.pcapng",), "x.pcapng cannot be read: no such file or directory"),
        ((tmp_path / "text",), "text is neither a capture nor an event file"),
        ((tmp_path / "empty",), "is a folder without captures and event files"),
        ((sound, tmp_path / "text"), "text is neither a capture"),
    ):
        ran = run(*words)
        assert (ran.exit_code, ran.stdout) == (2, ""), ran.output
        assert message in ran.stderr


def test_a_file_that_is_cut_off_or_damaged(tmp_path: Path, broken: Path) -> None:
    """Is judged by what can be read, and says what is missing."""
    data = broken.read_bytes()
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(data[:-10])
    ran = run(cut)
    assert ran.exit_code == 1
    assert "not all of it could be read:\nmissing   its last packet is not all there" in ran.stdout

    cut.write_bytes(data + b"\x06\0\0\0\xff\xff\xff\x7f" + bytes(100))
    ran = run(cut)
    assert ran.exit_code == 1
    assert "missing   it was read up to where it is damaged: " in ran.stdout


def test_event_files(tmp_path: Path) -> None:
    """Event files have the same finding as clients saw it. It is suspect, since events do not have configs."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(event_lines(twice()))
    ran = run(path, "--fail-on", "suspect")
    assert ran.exit_code == 1, ran.output
    assert ran.stdout.startswith(f"{path}: 4 exchanges of 1 connection, all read whole")
    assert "SUSPECT  offset-given-twice · orders[0]" in ran.stdout
    assert "events do not tell" in ran.stdout
    made = json.loads(run("-", "-o", "json", given=path.read_bytes()).stdout)
    assert (made["views"], [one["check"] for one in made["findings"]]) == (["clients"], ["offset-given-twice"])
    assert run(path, "--filter", "correlation_id == 1").exit_code == 0
    refused = run(path, "--view", "brokers")
    assert (refused.exit_code, "has only what clients saw" in refused.stderr) == (2, True)
    (tmp_path / "none").write_bytes(b"")
    assert "none has no events" in run(tmp_path / "none").stderr


def test_a_folder_of_event_files(tmp_path: Path) -> None:
    """Of two processes, each with several files, beside a capture: one history, in the order of time."""
    told, first, second, again = twice()
    lines = event_lines([right(NOON + 9)[2], again], "host/5b0c1e2f/1").splitlines(keepends=True)
    for name, data in (
        ("dt=2026-11-24/host-5b0c1e2f-0-000000000001.ndjson", event_lines([told, first], "host/5b0c1e2f/0")),
        ("dt=2026-11-24/host-5b0c1e2f-1-000000000001.ndjson", lines[0]),
        (".host-5b0c1e2f-1-000000000002.ndjson.tmp", lines[1]),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    write_capture(tmp_path / "late.pcapng", [replace(second, who=replace(WRITER, cluster="main", number=9))])
    assert "5 exchanges of " in run(tmp_path).stdout
    assert run(tmp_path, "--fail-on", "suspect").exit_code == 1
    times = [over(one) for one in by_time(recordings([str(tmp_path)]), Filter())]
    assert times == sorted(times)


def test_what_event_files_lack_is_told(tmp_path: Path) -> None:
    """Lines that cannot be read, events that are missing, and requests that are told by the minute only."""
    lines = event_lines([*twice(), *right(NOON + 60)]).splitlines(keepends=True)
    minute = json.loads(lines[0]) | {"id": "7", "type": "kproxy.summary.v1", "data": {"api": "Fetch", "count": 40}}
    path = tmp_path / "events.ndjson"
    path.write_bytes(b"".join([*lines[:3], lines[2], b"{nonsense\n", lines[5], json.dumps(minute).encode() + b"\n"]))
    ran = run(path)
    assert "1 line could not be read, first" in ran.stdout
    assert "2 events missing between others" in ran.stdout
    assert "40 Fetch were not kept" in ran.stdout
    assert ran.stdout.startswith(f"{path}: 4 exchanges of")
    assert "clean: none" in ran.stdout


def test_what_tcpdump_recorded() -> None:
    """Has one side, which stands for both: a write, its reading and commits on a real cluster are clean."""
    ran = run(GOLDEN)
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[:2] == [
        f"{GOLDEN}: 34 exchanges of 7 connections, all read whole",
        "checked   1 acknowledged write, all of them read afterwards · 4 commits of 1 group · 0 transactions",
    ]
    assert "\nnothing found; clean: inconsistent-offset, " in ran.stdout
    assert "not checked: lost-write, thinned-batch (it is not known that the topic is not compacted" in ran.stdout
    assert "clean: lost-write, " in run(GOLDEN, "--not-compacted", "orders,other,test").stdout


@pytest.mark.parametrize("own", [False, True])
def test_damaged_bytes_anywhere(tmp_path: Path, broken: Path, own: bool) -> None:
    """A verdict, or a file that cannot be read; never an error of kproxy's own."""
    data = (broken if own else GOLDEN).read_bytes()
    path, random, codes = tmp_path / "damaged.pcapng", Random(7), set()
    for _ in range(40):
        damaged = bytearray(data)
        for _ in range(random.choice([1, 5, 40])):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        path.write_bytes(damaged)
        ran = run(path)
        assert ran.exception is None or isinstance(ran.exception, SystemExit), random
        codes.add(ran.exit_code)
    assert codes <= {0, 1, 2}
    assert len(codes) > 1


def one_sided(path: Path, side: str) -> Path:
    """Write a capture that says that it has this side only."""
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"), about={"side": side})
        for seen in right():
            writer.write(seen, WRITER.server)
        writer.finish(NOON + 60, "asked")
    return path


def test_captures_of_one_side(tmp_path: Path) -> None:
    """Of the client's side there is no brokers' view; the broker's alone cannot be judged."""
    client, broker = (one_sided(tmp_path / side, side) for side in ("client", "broker"))
    made = json.loads(run(client, "-o", "json").stdout)
    assert made["views"] == ["clients"]
    assert run(client, "--view", "brokers").exit_code == 2
    assert "captures with --side both have more" in run(client, "--view", "brokers").stderr
    assert "has only what was something else at the broker" in run(broker).stderr


def test_what_a_capture_left_out_is_told(tmp_path: Path) -> None:
    """Its filter, frames of which it has the beginning, and what was dropped."""
    path = tmp_path / "part.pcapng"
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("head"), about={"side": "both", "filter": "api == Produce"})
        for seen in right():
            writer.write(seen, WRITER.server)
        writer.finish(NOON + 60, "asked", 3)
    said = run(path).stdout
    assert "its writer had no time for 3 exchanges" in said
    assert "it has only what fits the filter api == Produce" in said
    assert "of long frames it has only the beginning (--payload head)" in said


def test_numbers_are_those_of_show(tmp_path: Path) -> None:
    """Exchanges are counted as clients saw them, whatever kproxy asked between; and their order is the file's."""
    path = tmp_path / "own.pcapng"
    exchanges = [told_names(), write(1, 4), write(2, 5, at=NOON + 1), write(3, 5, at=NOON + 2)]
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"), about={"side": "both"})
        for number, seen in enumerate(exchanges):
            writer.write(seen, WRITER.server)
            if number == 2:
                writer.write_broker(write(2, 5, at=NOON + 1, value=b"other"), ("kafka-1", 9092))
            if number == 0:
                writer.write_broker(told_names(replace(WRITER, client_id="kproxy")), ("kafka-1", 9092))
                writer.write_broker(write(77, 9, at=NOON - 1), ("kafka-1", 9092))
        writer.finish(NOON + 60, "asked")

    (finding,) = json.loads(run(path, "--view", "clients", "-o", "json").stdout)["findings"]
    for one, correlation_id in zip(finding["evidence"], (2, 3), strict=True):
        shown = CliRunner().invoke(main, ["show", str(path), str(one["number"]), "-o", "json"])
        assert json.loads(shown.stdout)["request"]["header"]["correlation_id"] == correlation_id
        assert one["correlation_id"] == correlation_id


def commits(told: int) -> list[ObservedExchange]:
    """Return the configs of the coordinator's log, a commit of 30, and an OffsetFetch."""
    asked = {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 30}]}
    done = {"name": "orders", "partitions": [{"partition_index": 0, "error_code": 0}]}
    found = {"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": told, "error_code": 0}]}
    return [
        told_names(name="__consumer_offsets"),
        exchange("OffsetCommit", 5, {"group_id": "g", "topics": [asked]}, {"topics": [done]}, at=NOON, number=1),
        exchange(
            "OffsetFetch", 5, {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]},
            {"topics": [found], "error_code": 0}, at=NOON + 1, number=2,
        ),
    ]  # fmt: skip


def test_a_record_with_gaps_is_not_complete(tmp_path: Path) -> None:
    """With --assume-complete, what nobody has seen proves; not where the file says itself that something is missing."""
    path = write_capture(tmp_path / "commits.pcapng", commits(25))
    levels = []
    for words in (("--assume-complete",), (), ("--assume-complete", "--filter", "connection == 1")):
        made = json.loads(run(path, *words, "--only", "lost-commit", "-o", "json").stdout)
        levels += [one["level"] for one in made["findings"]]
        assert made["exit_code"] == 1
    path.write_bytes(path.read_bytes()[:-10])
    ran = run(path, "--assume-complete", "--only", "lost-commit", "-o", "json")
    levels += [one["level"] for one in json.loads(ran.stdout)["findings"]]
    assert levels == ["proved", "suspect", "suspect", "suspect"]
    assert ran.exit_code == 1
    assert run(path, "--fail-on", "proved").exit_code == 0


def lost() -> list[ObservedExchange]:
    """Return the exchanges of a write that a later Fetch lacks. The policy of the topic is not in them."""
    history = History(compacted=None)
    history.write(1, history_batch(b"a"), 0)
    history.write(2, history_batch(b"b"), 1)
    history.read(3, 0, (1, history_batch(b"b")))
    history.close()
    return [pair.front for pair in history.pairs if pair.front is not None]


FOUND = "1 suspect finding of lost-write (--fail-on {})"
NOT_FOUND = "no finding of --fail-on proved"
OWN = len(fail_on().own(checks()))


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ([], 1, FOUND.format("lost-write=suspect")),
        (["--level", "proved"], 1, FOUND.format("lost-write=suspect")),
        (["--without", "lost-write"], 0, f"{NOT_FOUND}, with another level for {OWN} checks"),
        (["--fail-on", "proved"], 0, NOT_FOUND),
        (["--fail-on", "suspect"], 1, FOUND.format("suspect")),
        (["--fail-on", "proved, lost-write=suspect"], 1, FOUND.format("lost-write=suspect")),
        (["--fail-on", "lost-write=proved"], 0, f"{NOT_FOUND}, with another level for {OWN - 1} checks"),
    ],
)
def test_verify_suspect_lost_write_ends_with_reason(
    tmp_path: Path, words: Sequence[str], code: int, reason: str
) -> None:
    """The reason of the exit code is in text, JSON and page. A failing finding is shown whatever `--level` is."""
    path, page = write_capture(tmp_path / "lost.pcapng", lost()), tmp_path / "page.html"
    ran = run(path, *words, "--html", page)
    assert ran.exit_code == code
    assert " ".join(ran.stdout.split()).endswith(f" exit code {code}: {reason}")
    assert f"<p>Exit code {code}: {reason}</p>" in page.read_text()
    assert ("SUSPECT  lost-write" in ran.stdout) == ("--without" not in words)
    made = json.loads(run(path, *words, "-o", "json").stdout)
    assert (made["exit_code"], made["reason"]) == (code, reason)


def test_findings_are_explained(tmp_path: Path) -> None:
    """By records, where these are in the file: what one of two batches at an offset has, and the other has not."""
    path = write_capture(tmp_path / "x.pcapng", twice())
    sketch = write_capture(tmp_path / "y.pcapng", twice(), "sketch")
    (whole,), (sketched,) = (json.loads(run(one, "-o", "json").stdout)["findings"] for one in (path, sketch))
    assert sketched["details"] == []
    assert whole["details"] == ["changed at 5: value of the record with no key"]


def test_json_and_a_page(broken: Path, tmp_path: Path) -> None:
    """The verdict for programs, and for browsers; the exit codes are the same."""
    page = tmp_path / "verdict.html"
    ran = run(broken, "-o", "json", "--html", page)
    made: dict[str, Any] = json.loads(ran.stdout)

    assert ran.exit_code == 1
    assert (made["schema"], made["files"], made["exchanges"]) == ("kproxy.verify/1", [str(broken)], 4)
    assert [one["check"] for one in made["findings"]] == ["offset-given-twice"]
    assert "offset-given-twice" in page.read_text()


def test_the_list_of_checks() -> None:
    """Each with its level and definition."""
    said = run("--list").stdout
    for one in checks().values():
        assert f"{one.name:22}{one.level:9}{one.definition}\n" in said


def test_hostile_names(tmp_path: Path) -> None:
    """A file, a topic and a client that would command a terminal are text."""
    evil = Somebody(3, client_id="\x1b[31mred\u202e")
    twice_written = write(1, 5, who=evil), write(2, 5, at=NOON + 1, who=evil)
    path = write_capture(tmp_path / "evil.pcapng", [led_names(evil), *twice_written, led_names(evil, NOON + 60)])
    shutil.copy(path, tmp_path / "\x1b[2J.pcapng")
    ran = run(tmp_path / "\x1b[2J.pcapng")
    assert ran.exit_code == 1
    assert "\\u001b[31mred\\u202e → node 1" in ran.stdout
    assert not set(ran.output) & {"\x1b", "\u202e"}


HERE, THERE = Somebody(1, client_port=50001, cluster="main"), Somebody(2, client_port=50002, cluster="main")


def given(producer: int, at: float) -> ObservedExchange:
    """A producer is given its id, and fences all that have it, at that many seconds as the clock tells it."""
    asked = {"transactional_id": f"t{producer}", "transaction_timeout_ms": 1000}
    told = {"producer_id": producer, "producer_epoch": 3}
    return History(known=False, compacted=None).add(NOON + at, "InitProducerId", 4, asked, told, who=HERE)


def fenced(at: float) -> list[ObservedExchange]:
    """Producer 7 is fenced at one connection, and writes at another, at that many seconds as the clock tells it."""
    history = History(known=False, compacted=None)
    history.write(NOON + at, history_batch(b"x", producer=(7, 0, 0), transactional=True), 0, who=THERE)
    return [given(7, 0), *(pair.front for pair in history.pairs if pair.front is not None)]


@pytest.mark.parametrize("ahead", [2, 5, 3600, 86400])
def test_a_clock_that_goes_back_proves_no_order(tmp_path: Path, ahead: float) -> None:
    """A process writes exchanges as they end: this write was before the fence, though its time is later.

    The same times in their order leave no doubt about the clock.
    """
    path = tmp_path / "events.ndjson"
    fence, zombie = fenced(ahead)
    path.write_bytes(event_lines([fence, zombie]))
    made = json.loads(run(path, "-o", "json").stdout)
    assert [one["check"] for one in made["findings"]] == ["zombie-write"]
    assert "the clock of the record" not in json.dumps(made["findings"])

    path.write_bytes(event_lines([zombie, fence]))
    ran = run(path, "-o", "json", "--fail-on", "proved")
    made = json.loads(ran.stdout)
    assert [(one["check"], one["level"]) for one in made["findings"]] == [("zombie-write", "suspect")]
    assert "the clock of the record went back" in json.dumps(made["findings"])
    assert any("the clock went back by" in one for one in made["incomplete"])
    assert ran.exit_code == 0

    late = [*fenced(3 * ahead), given(8, 3 * ahead + 1), given(9, 2 * ahead + 1)]
    path.write_bytes(event_lines(late))
    found = json.loads(run(path, "-o", "json", "--only", "zombie-write").stdout)["findings"]
    assert "the clock of the record" not in json.dumps(found)
