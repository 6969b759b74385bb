"""Rules, captures and files in the page: looked at, written, made of an exchange, switched, opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kproxy.admin.editor import check, kinds_shown
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import check_documents, read_document
from kproxy.rules.document.store import RuleStore
from kproxy.rules.values.source import Source
from tests.admin.page.conftest import OpenPage, expect, tab_to, wait_for_notice
from tests.admin.page.test_access import THEMES, violations
from tests.admin.page.test_page import HOSTILE, shown
from tests.support.fake_view import FakeView, problem
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

USUAL: dict[str, Any] = {
    "name": "slow sometimes", "kind": "delay", "family": "fault", "fault": True, "origin": "api",
    "position": "<api>:2:5",
    "rule": {"name": "slow sometimes", "kind": "delay", "delay": "5ms", "match": {"topic": "a*"}}, "enabled": True,
    "in_force": True, "stage": None, "binds": "frame", "mode": "enforce", "matched": 3310, "fired": 641, "applied": 641,
    "held": 0, "problems": 0, "problem": None, "seed": "7", "since": "2026-11-21T14:02:51.000+00:00",
    "ttl_left": 540.0, "warnings": [],
}  # fmt: skip


def rules(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return what `GET /api/rules` says of these rules."""
    return {
        "version": "5f2c9a01b7e4", "seed": 1, "faults_disabled": False, "rules": [{**USUAL, **one} for one in given],
        "scenarios": [], "loaded": {}, "rejected": {}, "last_rejection": None, **more,
    }  # fmt: skip


FILE = {"name": "lives elsewhere", "kind": "rename_topic", "origin": "file", "position": "a.yaml:2:5",
        "binds": "connection", "matched": None, "fired": None, "applied": None, "held": None, "ttl_left": None,
        "rule": {"name": "lives elsewhere", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}}  # fmt: skip


def judged(text: str) -> dict[str, Any]:
    """Return what kproxy says of a document, and that half of ten exchanges would match."""
    said, raws = check(Source("<api>", text), RuleStore(), False)
    matches = {"of": 10, "kept": 12, "unfit": 2, "matched": 5, "fired": 5, "rules": []}
    return said.model_dump() | {"matches": None if raws is None else matches}


@pytest.fixture
def writing(fake: FakeView) -> FakeView:
    """One that judges rules as kproxy does."""
    fake.answers |= {
        "/api/rules": rules(USUAL, FILE),
        "POST /api/check": judged,
        "/api/kinds": kinds_shown().model_dump(),
        "POST /api/rules": rules(USUAL, FILE),
    }
    return fake


def text_of(page: Page) -> str:
    return page.locator("dialog textarea").input_value()


def test_rules_are_listed_and_switched(writing: FakeView, open_page: OpenPage) -> None:
    """With what they have counted since; one of a file is not removed, and says where it stands."""
    writing.answers |= {"POST /api/rules/slow sometimes/disable": {}, "DELETE /api/rules/slow sometimes": {}}
    page = open_page(f"{writing.page}#/rules")
    page.wait_for_selector("main table tbody tr >> nth=1")
    writing.answers["/api/rules"] = rules({"matched": 3320, "fired": 645, "applied": 645, "held": 2}, FILE)
    writing.tick(rules={"slow sometimes": [10, 4, 4, 2]})
    page.wait_for_selector("text=3,320")
    first = " ".join(page.locator("main tbody tr >> nth=0").inner_text().split())
    assert first.startswith("1 slow sometimes delay api on 3,320 645 645 2"), first
    page.locator("main [role=switch] >> nth=0").click()
    wait_for_notice(page, "turned off")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.wait_for_selector("text=it is in a file, at a.yaml:2:5")
    page.keyboard.press("k")
    page.keyboard.press("x")
    page.wait_for_selector("dialog[open] .last:focus")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    wait_for_notice(page, "removed")

    assert [one[:2] for one in writing.changes] == [
        ("POST", "/api/rules/slow sometimes/disable"), ("DELETE", "/api/rules/slow sometimes"),
    ]  # fmt: skip


def test_rules_are_judged_while_they_are_written(writing: FakeView, open_page: OpenPage) -> None:
    """Mistakes have their line, a correction is taken by a button, and nothing is added before it is right."""
    page = open_page(f"{writing.page}#/rules")
    page.wait_for_selector("main tbody tr")
    page.keyboard.press("+")
    page.wait_for_selector("text=Of the 10 exchanges here 5 would match, 5 would fire. 2 were not kept whole.")
    page.locator("dialog textarea").fill(text_of(page).replace("kind: delay", "kind: dela"))
    page.wait_for_selector(".said .bad")
    add = page.get_by_role("button", name="Add", exact=True)
    expect(add).to_be_disabled()
    expect(page.locator(".numbers .bad")).to_have_text("3")
    page.get_by_role("button", name="Take it").click()
    page.wait_for_selector("text=5 would match")
    add.click()
    page.wait_for_selector("dialog", state="detached")
    method, path, body = writing.changes[-1]

    assert (method, path) == ("POST", "/api/rules?replace=false")
    assert "kind: delay\n" in body


def test_a_rule_is_changed_as_it_was_written(writing: FakeView, open_page: OpenPage) -> None:
    """Its text comes from what was written, and one of a file can only be read."""
    page = open_page(f"{writing.page}#/rules")
    page.wait_for_selector("main tbody tr >> nth=1")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog textarea")
    text = text_of(page)
    parsed = read_document(Source("x", text)).parsed_rules
    assert [one.raw for one in parsed] == [USUAL["rule"]]
    page.wait_for_selector("text=5 would match")
    page.get_by_role("button", name="Change as dry run").click()
    page.wait_for_selector("dialog", state="detached")
    assert writing.changes[-1][1].startswith("/api/rules?replace=true&ttl=")
    assert read_document(Source("x", writing.changes[-1][2])).parsed_rules[0].raw["mode"] == "dry_run"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog textarea[readonly]")

    assert page.get_by_role("button", name="Change").count() == 0


def test_a_rule_is_made_of_an_exchange(writing: FakeView, open_page: OpenPage) -> None:
    """kproxy takes it without a change; the line for pytest says the same."""
    writing.rows_kept = [writing.row(1, topic="orders", partition=3, principal="User:etl", about="orders[3]")]
    page = open_page(writing.page)
    shown(page, 1)
    page.keyboard.press("j")
    page.keyboard.press("m")
    page.wait_for_selector("text=5 would match")
    page.get_by_label("client_id").check()
    page.locator("dialog input[placeholder=any]").fill("3")
    for part in ("client_id: etl-3", "times: 3"):
        expect(page.locator("dialog textarea")).to_have_value(re.compile(part))
    page.wait_for_selector("text=5 would match")
    rule = read_document(Source("x", text_of(page))).parsed_rules[0].raw
    line = page.get_by_role("button", name="Copy for pytest").get_attribute("title")
    assert rule["match"] == {"api": "Produce", "topic": "orders", "partition": 3, "client_id": "etl-3"}
    assert (rule["kind"], rule["when"]) == ("error", {"times": 3})
    injected: dict[str, Any] = {}

    class Kproxy:
        def inject(self, kind: str, **params: Any) -> None:
            injected.update(kind=kind, **params)

    eval(line or "", {"kproxy": Kproxy()})
    assert injected == rule
    page.locator("dialog textarea").fill(text_of(page) + "    mode: dry_run\n")
    page.wait_for_selector("text=The text says more than the form can show.")
    expect(page.get_by_label("client_id")).to_be_disabled()
    page.wait_for_selector("text=5 would match")
    page.get_by_role("button", name="Add", exact=True).click()
    page.wait_for_selector("dialog", state="detached")

    assert writing.changes[-1][1] == "/api/rules?replace=false&ttl=10m"
    assert "mode: dry_run" in writing.changes[-1][2]


def test_every_kind_makes_a_rule_that_is_right(writing: FakeView, open_page: OpenPage) -> None:
    """For each API that it says to act on first, whatever the exchange is called."""
    page = open_page(writing.page)
    found = page.evaluate(
        """async ([row, all]) => {
            const m = await import('/view/make_rule.mjs');
            const texts = [];
            for (const api of ["Produce", "Fetch", "JoinGroup", "Metadata"]) {
                const kinds = m.inOrder(all, api);
                const form = new m.RuleForm({...row, api}, all, null);
                for (const kind of kinds.filter((one) => one.apis?.includes(api))) {
                    form.kind = kind;
                    form.match = new Set(["api"]);
                    texts.push([api, kind.kind, form.text]);
                }
            }
            return texts;
        }""",
        [{"topic": HOSTILE, "client": "a*b?[c]", "id": "0-1"}, kinds_shown().model_dump()["kinds"]],
    )
    wrong = {}
    for api, kind, text in found:
        source = Source("x", text)
        document = read_document(source, from_api=True)
        check_documents([document], None)
        if mistakes := source.lines():
            wrong[api, kind] = mistakes
        elif never := [str(one) for one in lint_rules(document.parsed_rules) if "does nothing with" in str(one)]:
            wrong[api, kind] = never

    assert len(found) > 60
    assert wrong == {}


def test_names_are_selected_as_they_are(writing: FakeView, open_page: OpenPage) -> None:
    """Signs of patterns in them mean themselves, and nothing leaves the line of its value."""
    names = [
        "a*b?[c]",
        "/x/",
        "yes",
        "null",
        "1",
        HOSTILE,
        "a: b #c",
        "-",
        "\u0007\u0085\u2028",
        "ü 中",
        "{a}",
        "!x",
        "a\\d",
    ]
    page = open_page(writing.page)
    texts = page.evaluate(
        """async (names) => {
            const [m, y] = [await import('/view/make_rule.mjs'), await import('/view/yaml.mjs')];
            return names.map((name) => y.document_of([{name: "r", kind: "delay", delay: "1ms",
                match: Object.fromEntries(m.selectable({api: "Fetch", topic: name}))}]));
        }""",
        names,
    )
    for name, text in zip(names, texts, strict=True):
        source = Source("x", text)
        (parsed,) = read_document(source).parsed_rules
        assert parsed.rule is not None, source.lines()
        holds = parsed.rule.match._entity["topic"]
        assert [holds(Topic(other)) for other in (name, name + "x", "axbxc", "x")] == [True, False, False, False], text


class Topic:
    """Entity with a topic's name only."""

    def __init__(self, topic: str) -> None:
        self.topic = topic


def test_whoever_may_only_look_changes_nothing(writing: FakeView, open_page: OpenPage) -> None:
    """Buttons and keys that change something are not there; a rule can be made to be copied."""
    writing.may_write = False
    writing.answers["/api/captures"] = {"folder": "/captures", "captures": [CAPTURE]}
    writing.rows_kept = [writing.row(1)]
    page = open_page(f"{writing.page}#/rules")
    page.wait_for_selector("main tbody tr >> nth=1")
    for key in ("+", "j", "t", "x", "L"):
        page.keyboard.press(key)
    assert page.locator("dialog").count() == 0
    expect(page.locator("main .tools button")).to_have_text(["Textenter"])
    assert page.locator("[role=switch]:not([disabled])").count() == 0
    page.goto(f"{writing.page}#/captures")
    page.wait_for_selector("text=incident.pcapng")
    expect(page.locator("main button")).to_have_text(["Download"])
    page.goto(f"{writing.page}#/exchanges")
    page.wait_for_selector(".list .row")
    page.keyboard.press("j")
    page.wait_for_selector(".row.selected")
    page.keyboard.press("m")
    page.wait_for_selector("text=5 would match")

    assert page.get_by_role("button", name="Add").count() == 0
    assert writing.changes == [] or {path.partition("?")[0] for _, path, _ in writing.changes} == {"/api/check"}


CAPTURE = {
    "name": "incident.pcapng", "file": "/captures/incident.pcapng", "state": "stopped", "stopped": "asked",
    "error": None, "filter": "topic ~ orders", "payload": "full", "side": "both",
    "since": "2026-11-21T14:02:51.000+00:00",
    "seconds": 12.0, "exchanges": 812, "broker_exchanges": 4, "connections": 3, "size": 18_200_000, "dropped": 2,
    "unknown": 1,
}  # fmt: skip


def test_captures_are_started_stopped_and_saved(writing: FakeView, open_page: OpenPage) -> None:
    """By keys alone, with the filter of the bar; a refusal stays in the dialog."""
    writing.answers |= {
        "/api/captures": {
            "folder": "/captures", "captures": [CAPTURE, {**CAPTURE, "name": "b.pcapng", "state": "running"}],
        },
        "/api/captures/incident.pcapng/file": {"bytes": "of the file"},
        "POST /api/captures": (409, problem("capture_exists", "file: it is there")),
        "DELETE /api/captures/b.pcapng": CAPTURE,
    }  # fmt: skip
    page = open_page(f"{writing.page}#/exchanges?f=~t%20orders")
    page.goto(f"{writing.page}#/captures")
    page.wait_for_selector("main >> text=incident.pcapng")
    with page.expect_download() as download:
        tab_to(page, "main tbody tr:nth-child(1) td button")
        page.keyboard.press("Enter")
    tab_to(page, "main tbody tr:nth-child(2) td button")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=b.pcapng was stopped")
    assert download.value.suggested_filename == "incident.pcapng"
    page.keyboard.press("s")
    page.wait_for_selector("dialog .last:focus")
    page.locator("dialog input").first.fill("mine")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog >> text=file: it is there")
    asked = writing.changes[-1][1]

    assert ("DELETE", "/api/captures/b.pcapng", None) in writing.changes
    assert asked.startswith("/api/captures?file=mine&filter=~t+orders&payload=full"), asked


def test_a_file_is_opened_by_dropping_it(writing: FakeView, open_page: OpenPage) -> None:
    """It takes the place of what passes, its gaps are named, and closing it leads back."""
    source = {"source": "s1", "name": HOSTILE, "size": 9, "exchanges": 812, "written_by": "", "counts": {},
              "missing": ["1,448 bytes missing in 1 place"], "since": "", "ttl_left": 3600.0}  # fmt: skip
    opened = {"sources": [source], "most": 4, "live": True, "may_open": True}
    writing.answers["POST /api/sources"] = (201, source)
    page = open_page(writing.page)
    page.wait_for_selector("text=Open a file…")
    writing.answers["/api/sources"] = opened
    page.evaluate("""() => {
        const data = new DataTransfer();
        data.items.add(new File(["a capture"], "x.pcap"));
        for (const name of ["dragenter", "dragover", "drop"])
            dispatchEvent(new DragEvent(name, {dataTransfer: data, bubbles: true, cancelable: true}));
    }""")
    page.wait_for_selector("text=1,448 bytes missing in 1 place")
    page.wait_for_selector(".stream.source")
    until(lambda: writing.changes[-1] == ("POST", "/api/sources?name=x.pcap", b"a capture"))
    assert any("source=s1" in path for path in writing.seen)
    expect(page.locator(".sources")).to_contain_text(HOSTILE[:20])
    writing.answers["/api/sources"] = {**opened, "sources": []}
    tab_to(page, ".sources [aria-label^=Close]")
    page.keyboard.press("Enter")

    until(lambda: writing.changes[-1][:2] == ("DELETE", "/api/sources/s1"))


def test_where_there_are_only_files_the_first_is_shown(writing: FakeView, open_page: OpenPage) -> None:
    """As with `kproxy view --web`, whose address has no stream."""
    source = {"source": "s1", "name": "a.pcap", "size": 9, "exchanges": 1, "written_by": "", "counts": {},
              "missing": [], "since": "", "ttl_left": None}  # fmt: skip
    writing.answers |= {
        "/api/sources": {"sources": [source], "most": 4, "live": False, "may_open": True},
        "/api/view": (404, {}),
    }
    writing.rows_kept = [writing.row(1)]
    page = open_page(writing.page, live=False)
    page.wait_for_selector(".stream.source")
    shown(page, 1)

    expect(page.locator(".sources li")).to_have_count(1)


def test_where_there_are_only_files_no_view_is_about_a_proxy(writing: FakeView, open_page: OpenPage) -> None:
    """Nothing leads to one, by link, key or address, and nothing is asked that is not there."""
    writing.answers |= {
        "/api/sources": {"sources": [], "most": 4, "live": False, "may_open": True}, "/api/view": (404, {}),
        **{f"/api/{path}": (404, {}) for path in ("connections", "connections/ended", "topology", "rules", "captures")},
    }  # fmt: skip
    page = open_page(f"{writing.page}#/topology", live=False)
    expect(page.locator("nav a")).to_have_text(["Exchanges"])
    writing.seen.clear()
    for way in ("connections", "charts", "held"):
        page.evaluate("way => { location.hash = `#/${way}`; }", way)
        page.wait_for_selector("#page.view-exchanges")
    page.keyboard.press("2")
    page.keyboard.press("?")
    page.wait_for_selector("dialog >> text=Views: Exchanges, Lanes.")

    assert not page.locator("[role=status]", has_text="404").count()
    assert not [path for path in writing.seen if path.startswith(("/api/connections", "/api/topology"))]


def test_axe_finds_nothing_on_rules_and_captures(writing: FakeView, open_page: OpenPage) -> None:
    """On the lists, in the editor of rules with mistakes, and for a rule made from an exchange."""
    writing.answers["/api/rules"] = rules(USUAL, FILE, {"name": "off", "enabled": False, "in_force": False,
                                                        "warnings": ["it never acts"]})  # fmt: skip
    writing.answers["/api/captures"] = {"folder": "/captures", "captures": [CAPTURE, {**CAPTURE, "state": "running"}]}
    writing.rows_kept = [writing.row(1)]
    page = open_page(f"{writing.page}#/rules", bypass_csp=True)
    page.wait_for_selector("main tbody tr >> nth=2")
    page.keyboard.press("j")
    found: dict[str, list[str]] = {}
    for theme in THEMES:
        page.goto(f"{writing.page}#/rules")
        page.wait_for_selector("main tbody tr >> nth=2")
        found[f"rules {theme}"] = violations(page)
        page.keyboard.press("+")
        page.wait_for_selector("text=5 would match")
        page.locator("dialog textarea").fill("rules: [{name: a, kind: dela}]")
        page.wait_for_selector(".said .bad")
        found[f"write {theme}"] = violations(page)
        page.keyboard.press("Escape")
        page.goto(f"{writing.page}#/captures")
        page.wait_for_selector("main tbody tr >> nth=1")
        found[f"captures {theme}"] = violations(page)
        page.keyboard.press("s")
        page.wait_for_selector("dialog[open]")
        found[f"start {theme}"] = violations(page)
        page.keyboard.press("Escape")
        page.goto(f"{writing.page}#/exchanges?x=0-1")
        page.wait_for_selector(".details")
        page.keyboard.press("m")
        page.wait_for_selector("text=5 would match")
        found[f"make {theme}"] = violations(page)
        page.keyboard.press("Escape")
        page.keyboard.press("D")

    assert {name: one for name, one in found.items() if one} == {}
