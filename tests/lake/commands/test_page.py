"""Commands of docs/audit-reports.md in their order, in one folder.

The commands of the whole page are `deep`. A shorter test runs `run` with a report of few tables, and `completeness`.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from kproxy.lake import gold_lake
from kproxy.lake.commands import JOBS
from kproxy.lake.gold_tables import answer_named
from kproxy.lake.report import report_builder
from tests.support.report_page import without_drawings_ids

PAGE = Path(__file__).parents[3] / "docs" / "audit-reports.md"
EVENTS = PAGE.with_name("events.md")
NOT_HERE = ("--kafka", "--every", "s3a://")
"""What needs something else, or does not end; such commands have tests of their own."""
HEADED = ("traffic", "topic_producers", "topic_consumers", "dormant_clients")
"""Answers that the head of a report's page is made of."""


def commands() -> list[list[str]]:
    """The words of the page's commands, in its order, each once."""
    page = PAGE.read_text().replace("\\\n", " ")
    lines = [line.partition("#")[0].strip() for line in re.findall(r"kproxy audit ([^\n`]+)", page)]
    found = [shlex.split(line) for line in dict.fromkeys(lines) if not any(word in line for word in NOT_HERE)]
    return [words for words in found if words[0] in JOBS and words[0] != "show"]


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_the_commands_of_the_page_run(
    audit: Any, audit_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each exits with 0; completeness finds the event that is missing."""
    monkeypatch.setenv("KPROXY_LAKE", str(tmp_path / "lake"))
    places = {"lake/": str(tmp_path / "lake"), "audit/": str(audit.path)}
    audit.publish(audit.event(1, api="Fetch"), audit.event(3, api="Produce"))
    ran = {}
    monkeypatch.chdir(tmp_path)
    for words in commands():
        done = audit_command(*(places.get(word, word) for word in words))
        assert done.exit_code == 0, f"{words}: {done.output} {done.exception!r}"
        ran.setdefault(words[0], done.stdout)  # the first of a job's commands, without flags

    assert "2 events, 1 missing" in ran["completeness"]
    ranges = audit_command("completeness", "--ranges", "--json", "--lake", tmp_path / "lake")
    assert json.loads(ranges.stdout) == {"source": "kp/boot/0", "first": 2, "last": 2}


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_all_can_end_with_a_report(
    audit: Any, audit_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that `report` would write afterwards, of the same session. A few answers do for that."""
    some = tuple(map(answer_named, HEADED))
    for module in (gold_lake, report_builder):
        monkeypatch.setattr(module, "ANSWERS", some)
    audit.publish(audit.event(1, api="Fetch", client_id="shop"))
    lake, page = tmp_path / "lake", tmp_path / "report.html"
    done = audit_command("run", "--from", audit.path, "--lake", lake, "--report", page)
    again = audit_command("report", "-o", tmp_path / "again.html", "--lake", lake)

    assert (done.exit_code, again.exit_code) == (0, 0), f"{done.output} {done.exception!r} {again.output}"
    first, second = (without_drawings_ids(one.read_text()) for one in (page, tmp_path / "again.html"))
    assert f"{page}: " in done.stdout
    assert first == second and "shop" in first


@pytest.mark.timeout(300)
def test_a_report_has_what_clients_say_and_where_bytes_go(
    audit: Any, audit_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded events become sections of the page, with the client's own figures, its network and its broker's rack.
    `completeness` reports the event that is missing."""
    asked = tuple(map(answer_named, ("client_metrics", "zones")))
    some = (*map(answer_named, HEADED), *asked)
    for module in (gold_lake, report_builder):
        monkeypatch.setattr(module, "ANSWERS", some)
    [line] = re.findall(r'^\{.*"type":"kproxy.telemetry.v1".*\}$', EVENTS.read_text(), re.MULTILINE)
    said = json.loads(line)["data"]
    rack = {"node": said["node"], "host": "h", "port": 9092, "rack": "rack-seven"}
    audit.publish(
        audit.event(1, short="topology", cluster="main", nodes=[rack], topics=[], part=0, parts=1),
        audit.event(2, short="telemetry", **said),
        audit.event(4, api="Produce", cluster="main", node=said["node"], client_id="shop", client_address="10.7.7.9",
                    request_bytes=4321, response_bytes=17),
    )  # fmt: skip
    lake, page = tmp_path / "lake", tmp_path / "report.html"
    done = audit_command("run", "--from", audit.path, "--lake", lake, "--report", page)

    assert done.exit_code == 0, f"{done.output} {done.exception!r}"
    text = page.read_text()
    assert [answer.title for answer in asked if answer.title not in text] == []
    shown = ("confluent-kafka-python", "157.7", "10.7.7.0/24", "rack-seven")
    assert [one for one in shown if one not in text] == []
    assert {"run", "completeness"} <= {words[0] for words in commands()}
    assert "3 events, 1 missing" in audit_command("completeness", "--lake", lake).stdout
    ranges = audit_command("completeness", "--ranges", "--json", "--lake", lake)
    assert json.loads(ranges.stdout) == {"source": "kp/boot/0", "first": 3, "last": 3}
