"""Verdicts as text, JSON and pages, from verdicts that are made by hand."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from kproxy.tools.verify.facts import Witness
from kproxy.tools.verify.finding import LEVELS, Evidence, Finding, Verdict, checks
from kproxy.tools.verify.options import fail_on
from kproxy.tools.verify.report import SCHEMA, report_html, report_json, report_text
from tests.tools.verify.cases.table import cases

AT = 1_795_484_091.0
"""2026-11-24 01:34:51 UTC."""
EVIL = '\x1b[31m"><script>alert(1)</script>\u202e\n&'


def witness(number: int, at: float, api: str, version: int, client: str, **known: Any) -> Witness:
    """Return an exchange of 10 ms."""
    told: dict[str, Any] = {"node": 1, "ended": at + 0.01, "software": "librdkafka 2.16.0", **known}
    there = ("10.0.0.1:5000", 3, 0)
    return Witness(number=number, began=at, connection=there, client=client, api=api, version=version, **told)


def duplicate() -> Finding:
    """Return the finding of the design's example."""
    return Finding(
        "duplicate", "proved", "orders[0]",
        "1 batch of 14 records is at offsets 1 and 15: sent twice, acknowledged once",
        [
            Evidence(
                witness(6, AT + 0.175, "Produce", 10, "writer", ended=None, rules=("lost-answer",)), "[no answer]"
            ),
            Evidence(witness(10, AT + 0.228, "Produce", 10, "writer"), "base_offset 15"),
            Evidence(witness(31, AT + 0.542, "Fetch", 16, "reader-0"), "from 0: at 1 and at 15"),
        ],
        view="clients",
        else_="Brokers' view: clean. The producer (librdkafka/2.16.0) sent a batch without a producer id again after "
              "its answer was lost; idempotence would have prevented it.",
        rules=("lost-answer",),
    )  # fmt: skip


def verdict(*findings: Finding, **known: Any) -> Verdict:
    """Return a verdict with these findings."""
    counts = {"acknowledged writes": 5, "read afterwards": 5, "commits": 12, "groups": 1, "transactions": 0}
    clean = ["lost-write", "order"]
    return Verdict(list(findings), clean, known.pop("not_checked", {}), known.pop("counts", counts), 63, 10, **known)


def test_the_text() -> None:
    """As the page on verify has it."""
    assert (
        report_text(verdict(duplicate()), "captures/orders.pcapng")
        == """\
captures/orders.pcapng: 63 exchanges of 10 connections, all read whole
checked   5 acknowledged writes, all of them read afterwards · 12 commits of 1 group · 0 transactions

PROVED   duplicate · orders[0]
         1 batch of 14 records is at offsets 1 and 15: sent twice, acknowledged once
          6  01:34:51.175  writer → node 1    Produce 10  [no answer]    rule "lost-answer"
         10  01:34:51.228  writer → node 1    Produce 10  base_offset 15
         31  01:34:51.542  reader-0 ← node 1  Fetch 16    from 0: at 1 and at 15
         Brokers' view: clean. The producer (librdkafka/2.16.0) sent a batch without a producer id again after its
         answer was lost; idempotence would have prevented it.

1 finding (1 proved); clean: lost-write, order"""
    )


def test_nothing_found() -> None:
    """Is said in as few words, and what could not be checked in as many as it needs."""
    found = verdict(
        not_checked={"aborted-read": "nothing of it", "order": "frames are cut", "lost-commit": "nothing of it"},
        incomplete=["12 bytes missing in 2 places"],
        counts={"acknowledged writes": 2, "read afterwards": 1, "commits": 1, "transactions": 1},
    )
    assert (
        report_text(found, "x")
        == """\
x: 63 exchanges of 10 connections, not all of it could be read:
missing   12 bytes missing in 2 places
checked   2 acknowledged writes, 1 of them read afterwards · 1 commit · 1 transaction
nothing found; clean: lost-write, order
not checked: aborted-read, lost-commit (nothing of it); order (frames are cut)"""
    )


def test_many_findings_of_one_check() -> None:
    """So many are shown, the rest is a number; what is shown once has happened so many times."""
    found = [replace(duplicate(), about=f"orders[{number}]", times=3) for number in range(7)]
    other = replace(duplicate(), check="lost-write", level="suspect", view="both", details=["all moved by 1"])
    text = report_text(verdict(*found, other), "x", most=2)

    assert text.count("PROVED") == 2
    assert "PROVED   duplicate · orders[1] · 3 times\n" in text
    assert "         and 5 more of duplicate\n" in text
    assert "           all moved by 1\n         Brokers' view: clean. The producer" in text
    assert text.endswith("\n8 findings (7 proved, 1 suspect); clean: lost-write, order")


def test_an_answer_of_kproxys() -> None:
    """Is told from a broker's."""
    found = duplicate()
    found.evidence[1].witness.made_by_kproxy, found.evidence[2].witness.ended = True, None
    assert "Produce 10  [kproxy's answer] base_offset 15\n" in report_text(verdict(found), "x")
    assert "Fetch 16    [no answer] from 0: at 1 and at 15\n" in report_text(verdict(found), "x")


def test_exchanges_of_several_days_and_of_no_time() -> None:
    """They have a date; damaged times are numbers."""
    found = duplicate()
    found.evidence[0].witness.began = 1e20
    text = report_text(verdict(found), "x")
    assert "  100000000000000000000.000  writer" in text
    assert "  2026-11-24 01:34:51.228  writer" in text
    assert report_json(verdict(found), ["x"])["findings"][0]["evidence"][0]["began"] is None


def hostile() -> Verdict:
    """Return a verdict with hostile text at all places that have text."""
    seen = witness(1, AT, EVIL, 1, EVIL, rules=(EVIL,))
    found = Finding(EVIL, "proved", EVIL, EVIL, [Evidence(seen, EVIL)], "both", EVIL, (EVIL,), [EVIL])
    return Verdict([found], [EVIL], {EVIL: EVIL}, {EVIL: 7}, 1, 1, [EVIL])


def test_hostile_text_is_text() -> None:
    """Names command neither a terminal nor a page, wherever they stand."""
    text = report_text(hostile(), EVIL)
    assert not set(text) & {"\x1b", "\u202e"}

    class Tags(HTMLParser):
        tags: set[str] = set()
        said = ""

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.tags.add(tag)

        def handle_data(self, data: str) -> None:
            self.said += data

    page, parser = report_html(hostile(), EVIL), Tags()
    parser.feed(page)
    assert not set(page) & {"\x1b", "\u202e"}
    assert not parser.tags & {"script", "img", "link", "iframe", "a", "form"}
    assert parser.said.count("<script>alert(1)</script>") >= 10
    assert json.loads(json.dumps(report_json(hostile(), [EVIL])))["findings"][0]["about"] == EVIL


def test_the_page_loads_nothing() -> None:
    """It has all that it needs in it, and its policy allows its own style only."""
    page = report_html(verdict(duplicate()), "captures/orders.pcapng")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert policy is not None and style is not None
    rules = policy[1].replace("&#39;", "'")
    allowed = re.search(r"style-src 'sha256-([^']*)'", rules)

    assert rules.startswith("default-src 'none';")
    assert allowed is not None and b64decode(allowed[1]) == sha256(style[1].encode()).digest()
    assert not re.search(r"https?:|//|src=|href=|style=|\bon\w+=|url\(|@import", page)
    assert "rule &quot;lost-answer&quot;" in page
    assert "<title>captures/orders.pcapng: 1 finding (1 proved)</title>" in page


def test_the_json() -> None:
    """It names its schema, and has all of the verdict."""
    made = report_json(verdict(duplicate(), not_checked={"order": "why"}), ["a", "b"])

    assert json.loads(json.dumps(made)) == made
    assert (made["schema"], made["files"], made["exchanges"], made["connections"]) == (SCHEMA, ["a", "b"], 63, 10)
    assert SCHEMA == "kproxy.verify/1"
    (finding,) = made["findings"]
    assert {name: finding[name] for name in ("check", "level", "about", "view", "rules", "times")} == {
        "check": "duplicate", "level": "proved", "about": "orders[0]", "view": "clients", "rules": ["lost-answer"],
        "times": 1,
    }  # fmt: skip
    assert finding["evidence"][0] == {
        "number": 6, "began": "2026-11-24T01:34:51.175000Z", "ended": None, "connection": 3, "correlation_id": 0,
        "client_address": "10.0.0.1:5000", "client": "writer", "node": 1, "api": "Produce", "version": 10,
        "rules": ["lost-answer"], "responder": None, "software": "librdkafka 2.16.0", "says": "[no answer]",
    }  # fmt: skip
    assert (made["clean"], made["not_checked"]) == (["lost-write", "order"], {"order": "why"})


def test_fail_on_level_of_each_check_is_its_own_or_given() -> None:
    """The value that `FailOn` prints gives the same terms again."""
    own = fail_on()
    assert own.levels == {name: check.fails for name, check in checks().items()}
    assert (own.levels["lost-write"], own.levels["lost-commit"]) == ("suspect", "suspect")
    for given, level, of_order, of_lost in (
        (None, "proved", "proved", "suspect"),
        ("note", "note", "note", "note"),
        (["order=note", "proved"], "proved", "note", "proved"),
        ("order=note,order=note", "proved", "note", "suspect"),
    ):
        terms = fail_on(given)
        assert (terms.level, terms.levels["order"], terms.levels["lost-write"]) == (level, of_order, of_lost)
        assert fail_on(str(terms)) == terms


BROKEN = {check: case for case in cases() if case.level is not None for check in case.checks}
"""A broken history for each check."""


@pytest.mark.parametrize("check", sorted(checks()))
def test_fail_on_decides_by_check_and_level(check: str) -> None:
    """A finding fails if its level is that of its check, or a higher one. The reason names the deciding value."""
    case = BROKEN[check]
    verdict = case.history().verdict(**case.terms, only=frozenset((check,)))
    levels = {one.level for one in verdict.findings}
    for value, lowest in (
        (None, checks()[check].fails),
        *((level, level) for level in LEVELS),
        *((f"{check}={level}", level) for level in LEVELS),
        *((f"note,{check}={level}", level) for level in LEVELS),
    ):
        one = replace(verdict, findings=list(verdict.findings))
        fail_on(value).decide(one, "note")
        fails = any(LEVELS.index(level) <= LEVELS.index(lowest) for level in levels)
        assert one.exit_code == int(fails), value
        assert one.reason.startswith("1 " if fails else "no finding of --fail-on ")
        assert f"exit code {one.exit_code}: {one.reason}" in " ".join(report_text(one, "x").split())
        if fails and value is not None and "=" in value and lowest != value.partition(",")[0]:
            assert check in one.reason
