"""The pages of the conformance report, over made-up runs."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kproxy.tools.verify.finding import checks
from tests.lab.conformance import kept, page, run
from tests.lab.conformance.cell import Run, broken
from tests.lab.conformance.faults import NO_FAULT, faults
from tests.lab.pages import END

EVIL = "</pre><script>alert(1)</script> | `x` [a](b)"
GOOD = Run(
    "librdkafka",
    "2.16",
    NO_FAULT,
    "recovered",
    "fine",
    day="2026-11-24",
    counts={"sent": 30},
    story=[["0.100", "", "p", "node 1", "Produce v7", "9 ms", "TOPIC[0]"], ["… 7 exchanges in all"]],
)
BAD = replace(
    GOOD,
    fault="error.write-too-large",
    outcome="lied",
    text=EVIL,
    notes=[EVIL],
    story=[["0.200", "FAULT", EVIL, "node 1", EVIL, "no answer", EVIL], [EVIL]],
    proved=[EVIL],
    ended=EVIL,
)
RUNS = {
    (one.client, one.fault): one
    for one in (GOOD, BAD, replace(BAD, client="sarama", version=EVIL, outcome="not exercised"))
}


class Reader(HTMLParser):
    """Reader of a page: its tags, the ids and the links in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down a tag."""
        self.tags.add(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []


def test_the_matrix_is_one_page_without_scripts() -> None:
    """Each cell leads to a run on the page, and nothing that a client said is markup."""
    found = Reader(page.html(RUNS, faults()))

    assert not found.tags & {"script", "img", "link", "iframe", "object", "form"}
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids)) == len(RUNS) + 1


def test_a_run_has_its_rule_its_story_and_the_heading_that_repeats_it() -> None:
    """The command with a run's heading names exactly that run."""
    text = page.html_fault(BAD.fault, faults()[BAD.fault], [BAD])
    (heading,) = re.findall(r"<h3 [^>]*>(.*?)</h3>", text)
    (words,) = re.findall(r"-k (\S+) --again", page.repeat(heading))

    assert escape(page.repeat("CLIENT/FAULT")) in page.html(RUNS, faults())
    assert "MESSAGE_TOO_LARGE" in text and "&lt;script&gt;" in text
    assert "at close" in page.html_run(replace(BAD, outcome="hung", words="at close"))
    assert kept.wanted(faults(), words) == [(BAD.client, BAD.fault)]


def test_the_page_tells_the_matrix_and_what_was_harm() -> None:
    """Outcomes by client, what was more than an error with the client's version, and who was not run."""
    text = page.markdown(RUNS, faults())

    assert "- librdkafka 2.16: 1 lied" in text
    assert "- not run: java, " in text
    assert "| `no-fault` | [recovered](../../../docs/conformance-matrix.html#librdkafka--no-fault) |  |" in text
    assert "### librdkafka 2.16" in text and "- `error.write-too-large`: lied: ‹/pre›" in text
    assert "<script" not in text and "`x`" not in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("| `")}) == 1


def test_pages_have_no_folders_of_the_machine_that_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks keep the names of files and their lines; what only looks like a path stays."""
    stack = f'File "{tmp_path}/lib/threading.py", line 3; at read (/srv/me/x-1/kafkajs/decoder.js:52:31)'
    kept_texts = "https://kafka.apache.org/a/b and 1/2/3 and group/topic node:internal/streams/readable:561"
    said = f"{stack} {kept_texts}"
    run = replace(BAD, text=said, notes=[said], words=said, story=[[said]], proved=[said], outcome="died")
    monkeypatch.setattr(kept, "kept", lambda: {(run.client, run.fault): run})
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "MATRIX", tmp_path / "matrix.html")
    page.PAGE.write_text(f"before\n{page.BEGIN}{END}after\n")
    page.write()

    for text in (page.PAGE.read_text(), page.MATRIX.read_text()):
        assert "/srv/me" not in text and str(tmp_path) not in text
        assert "…/threading.py" in text and "…/decoder.js:52:31" in text
    assert page.MATRIX.read_text().count(kept_texts) == 5
    assert page.PAGE.read_text().startswith("before\n") and page.PAGE.read_text().endswith("after\n")


def test_matrix_shows_only_checks_that_prove() -> None:
    """The page is made of kept runs: a check that is renamed, or proves nothing any more, must leave the page."""
    line = re.compile(r"^(?:<p>kproxy verify:</p><pre>)?([a-z-]+), as [a-z ]+ saw it: (.*)", re.MULTILINE)
    findings = line.findall(page.MATRIX.read_text())
    assert len(findings) > 50
    for name, text in findings:
        assert checks()[name].level == "proved", name
        # A producer without idempotence that sends a batch twice may have meant to: such copies are suspect.
        assert not (name == "duplicate" and "sent twice" in text), text


def test_pages_of_nothing() -> None:
    """Before anything was run they say so."""
    assert "0 runs of" in page.markdown({}, faults()) and "0 runs" in page.html({}, faults())


def test_runs_are_kept_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run of the same takes the place of an earlier one; half a file is none."""
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path))
    kept.keep(BAD)
    kept.keep(replace(BAD, outcome="raised"))
    kept.keep(GOOD)
    (kept.folder() / "librdkafka x.part").write_text("{")

    assert {pair: one.outcome for pair, one in kept.kept().items()} == {
        ("librdkafka", NO_FAULT): "recovered",
        ("librdkafka", "error.write-too-large"): "raised",
    }
    assert broken("sarama", "x", ValueError("oh")).text == "ValueError: oh"


def test_a_client_that_fails_without_a_fault_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its runs with faults would say nothing."""
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path))
    monkeypatch.setattr(run, "command", lambda client: [])
    monkeypatch.setattr(run, "run", lambda *given: replace(GOOD, outcome="hung"))
    conformance = run.Conformance(None, faults(), 1, float("inf"))
    conformance.client("librdkafka", ["drop_commit"])

    assert list(kept.kept()) == [("librdkafka", NO_FAULT)]
    assert "left out: without a fault: hung, fine" in capsys.readouterr().err


def test_a_run_that_fails_itself_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is run again the next time; when the time is up nothing is begun."""
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path))
    monkeypatch.setattr(run, "command", lambda client: [])
    kept.keep(GOOD)

    def fails(*given: object) -> Run:
        raise OSError("no room")

    monkeypatch.setattr(run, "run", fails)
    run.Conformance(None, faults(), 2, float("inf")).client("librdkafka", ["drop_commit", "hide_topic"])
    run.Conformance(None, faults(), 2, 0).client("librdkafka", ["add_node"])

    assert {fault: one.outcome for (_, fault), one in kept.kept().items()} == {
        NO_FAULT: "recovered", "drop_commit": "broken", "hide_topic": "broken",
    }  # fmt: skip


def test_a_run_that_hung_is_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine may have brought about is told as that, and stays what it was if it comes again."""
    monkeypatch.setenv("KPROXY_CACHE", str(tmp_path))
    monkeypatch.setattr(run, "command", lambda client: [])
    hung, raised = replace(GOOD, outcome="hung", text="stood still"), replace(GOOD, outcome="raised")
    for second, outcome, note in (
        (raised, "raised", "in one of two runs: hung: stood still"),
        (hung, "hung", "hung in two of two runs"),
    ):
        runs = iter([hung, second])
        monkeypatch.setattr(run, "run", lambda *given, runs=runs: next(runs))
        found = run.Conformance(None, faults(), 1, float("inf")).one("librdkafka", "drop_commit")
        assert (found.outcome, found.notes) == (outcome, [note])


def test_a_story_is_as_wide_as_it_needs_and_marks_the_fault() -> None:
    """The client is told where there are several."""
    first = ["9.100", "", "p", "node 1", "Produce v7", "9 ms", "TOPIC[0]"]
    second = ["10.000", "FAULT", "p", "bootstrap", "Metadata v12", "no answer", "<b>"]

    assert page.html_story([first, second, ["… 7 exchanges"]]).split("\n") == [
        " 9.100 node 1    Produce v7        9 ms TOPIC[0]",
        "<mark>10.000 bootstrap Metadata v12 no answer &lt;b&gt;</mark>",
        "… 7 exchanges",
    ]
    assert " p        node 1 " in page.html_story([first, [*second[:2], "consumer", *second[3:]]])
    assert page.html_story([["nothing passed"]]) == "nothing passed"
