"""Held frames in the page: shown as they come, let go, edited and answered, by keys alone."""

from __future__ import annotations

import re
from base64 import b64encode
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from kproxy.admin.editor import kinds_shown
from kproxy.rules.document.read import read_document
from kproxy.rules.values.source import Source
from kproxy.tools.rehearse.dialogue import request
from tests.admin.page.conftest import OpenPage, expect
from tests.admin.page.test_access import THEMES, violations
from tests.admin.page.test_rules_page import judged
from tests.support.fake_view import FakeView
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

HEARTBEAT = 12
FRAME = request(HEARTBEAT, 4, 1, group_id="billing")[4:]
AT = FRAME.index(b"billing")
STEPS = [
    [0, 2, 1, "header.request_api_key", "value", "INT16", 12, "Heartbeat"],
    [AT - 1, AT + 7, 0, "group_id", "value", "COMPACT_STRING", "billing"],
    [AT + 7, AT + 11, 0, "generation_id", "value", "INT32", 0],
]
HOSTILE = "<img src=x onerror=alert(1)>"


def held(number: str = "17-1", **more: Any) -> dict[str, Any]:
    """Return a held frame as the API lists it."""
    exchange = {"connection": 17, "listener": "main", "client_address": "10.1.4.22", "client": "etl-3",
                "principal": None, "api": "Heartbeat", "version": 4, "correlation_id": 1}  # fmt: skip
    usual = {"id": number, "rule": "hold", "at": "request", "exchange": exchange, "since": "2026-11-21T14:02:51.000Z",
             "ends_in": 19.0, "on_timeout": "pass", "revision": 1, "behind": 2, "bytes": len(FRAME) + 4,
             "editable": True, "why_not": None, "claimed_by": None, "gone": None, "client_ended": False}  # fmt: skip
    return {**usual, **more}


def shown(number: str = "17-1", **more: Any) -> dict[str, Any]:
    """Return it as it is asked for alone."""
    frame = {"side": "client", "bytes": len(FRAME) + 4, "kept": len(FRAME), "form": "whole", "withheld": "",
             "data": b64encode(FRAME).decode(), "steps": STEPS, "decode_error": ""}  # fmt: skip
    return {**held(number), "frame": frame, "broker": None, "records": [], **more}


@pytest.fixture
def page(fake: FakeView, open_page: OpenPage) -> Page:
    """With nothing held so far."""
    fake.answers["/api/held"] = {"held": [], "max_frames": 20, "passed_over": 0}
    page = open_page(fake.page)
    page.wait_for_selector(".stream.live + span")
    return page


def hold(fake: FakeView, page: Page, *all_: dict[str, Any]) -> None:
    """Have these frames be held."""
    fake.answers["/api/held"] = {"held": list(all_), "max_frames": 20, "passed_over": 0}
    fake.tell("held", {"added": list(all_), "changed": [], "gone": []})
    page.wait_for_selector(".held-frame")


def to_frame(page: Page) -> None:
    """Move the focus to the first held frame, where its keys act."""
    page.locator(".held-frame:visible").first.focus()


def sent(fake: FakeView, page: Page, path: str) -> Any:
    """Return the body of the first change that was sent to this path, once it has been."""
    for _ in range(100):
        for _, where, body in fake.changes:
            if where == path:
                return body
        page.wait_for_timeout(50)
    raise AssertionError(f"nothing was sent to {path}: {fake.changes}")


def test_a_held_frame_is_shown_and_let_go(fake: FakeView, page: Page) -> None:
    """With what waits behind it, and what is left of its time; all who look are told how it went."""
    hold(fake, page, held(), held("18-1", rule=HOSTILE, client_ended=True))
    fake.answers["/api/held/17-1/resume"] = held(gone="resumed")
    text = page.locator("aside").inner_text()
    ended = page.locator(".held-frame", has_text="its client sends no more")
    assert [HOSTILE in one for one in ended.all_inner_texts()] == [True]
    assert "Heartbeat v4" in text
    assert "2 behind it" in text
    assert "left, then forwarded" in text
    assert HOSTILE in text
    fake.answers["/api/held"] = {"held": [], "max_frames": 20, "passed_over": 0}
    to_frame(page)
    page.keyboard.press("a")
    assert sent(fake, page, "/api/held/17-1/resume") == {"revision": 1}
    fake.tell("held", {"added": [], "changed": [], "gone": [{"id": "18-1", "how": "resumed", "who": "mara"},
                                                            {"id": "17-1", "how": "resumed", "who": ""}]})  # fmt: skip
    page.wait_for_selector(".held-frame", state="detached")
    page.keyboard.press("A")
    assert not [one for one in fake.changes if one[1] == "/api/held/resume"], "nothing is held"


def test_an_edit_is_checked_before_it_is_sent(fake: FakeView, page: Page) -> None:
    """What does not fit is marked at its field; then the frame goes on with it."""
    hold(fake, page, held())
    fake.answers["/api/held/17-1"] = shown()
    fake.refused["/api/held/17-1/preview"] = 422, {"error": {
        "code": "invalid_edit", "message": "nothing was changed: 1 mistake",
        "mistakes": [{"where": "generation_id", "message": "expected a whole number"}]}}  # fmt: skip
    to_frame(page)
    page.keyboard.press("e")
    page.wait_for_selector("dialog .tree")
    page.locator("dialog [role=treeitem]", has_text="generation_id").click()
    page.locator("dialog .value input").fill("soon")
    page.wait_for_selector("dialog .value .bad >> text=expected a whole number")
    expect(page.locator("dialog button.primary")).to_be_disabled()
    del fake.refused["/api/held/17-1/preview"]
    fake.answers["/api/held/17-1/preview"] = shown()
    page.locator("dialog .value input").fill("7")
    page.wait_for_selector("dialog button.primary:not([disabled])")
    fake.answers["/api/held/17-1/resume"] = held(gone="edited")
    page.locator("dialog button.primary").click()
    assert sent(fake, page, "/api/held/17-1/resume") == {
        "revision": 1, "set": [{"path": "generation_id", "value": 7}], "who": "",
    }  # fmt: skip
    page.wait_for_selector("dialog", state="detached")


def test_open_editor_extends_the_hold_and_shows_its_time(fake: FakeView, page: Page) -> None:
    """By claims, also without a name; they end with the dialog. A frame that is gone cannot be resumed."""
    fake.answers |= {"/api/held/17-1": shown(), "/api/held/17-1/claim": held(ends_in=30.0, longest=580.0)}
    page.clock.install()
    hold(fake, page, held(longest=600.0))
    to_frame(page)
    page.keyboard.press("e")
    expect(page.locator("dialog .note")).to_contain_text(
        "left, then forwarded, extended while this is open, 10 min at most"
    )
    assert sent(fake, page, "/api/held/17-1/claim") == {"who": ""}
    page.clock.run_for(31_000)
    until(lambda: len([one for one in fake.changes if one[1].endswith("/claim")]) >= 4)
    page.locator("dialog .last").click()
    page.wait_for_selector("dialog", state="detached")
    count = len(fake.changes)
    page.clock.run_for(31_000)
    assert len(fake.changes) <= count + 1, "one may have been under way"
    to_frame(page)
    page.keyboard.press("e")
    page.wait_for_selector("dialog .note")
    fake.answers["/api/held"] = {"held": [], "max_frames": 20, "passed_over": 0}
    fake.tell("held", {"added": [], "changed": [], "gone": [{"id": "17-1", "how": "client_left", "who": ""}]})
    expect(page.locator("dialog [role=alert]")).to_have_text("It is not held any more.")
    expect(page.locator("dialog button.primary")).to_be_disabled()


def test_frame_that_two_rules_hold_is_one_card(fake: FakeView, page: Page) -> None:
    """It stays the same card when the first rule lets go."""
    hold(fake, page, held(rules=["hold", "other"]))
    expect(page.locator(".held-frame")).to_contain_text("hold, other")
    other = held("17-2", rule="other", rules=["other"])
    fake.answers["/api/held"] = {"held": [other], "max_frames": 20, "passed_over": 0}
    fake.tell("held", {"added": [other], "changed": [], "gone": [{"id": "17-1", "how": "timed_out", "who": ""}]})
    expect(page.locator(".held-frame")).to_have_count(1)
    expect(page.locator(".held-frame")).not_to_contain_text("hold, other")
    expect(page.locator("footer [role=status]")).not_to_contain_text("timed out")


def test_page_keeps_its_id_over_a_reload(fake: FakeView, page: Page) -> None:
    """The stream has it, so that rules of the page go on; another page has another one."""
    page.reload()
    page.wait_for_selector(".stream.live + span")
    found = {re.search(r"page=([0-9a-f]{32})", one)[1] for one in fake.seen if one.startswith("/api/view?")}
    assert len(found) == 1


def test_names_and_parts_of_records_are_offered(fake: FakeView, page: Page) -> None:
    """Groups that the proxy has met for a field, errors for an answer; a record has key, value and headers, each by its
    name. A key that is pressed twice opens one dialog."""
    fake.answers["/api/names"] = {"errors": ["UNKNOWN_MEMBER_ID"], "kept": {"groups": ["billing", "audit"]}}
    step = [AT - 1, AT + 7, 0, "records", "value", "RECORDS", {"bytes": 8}]
    record = {"offset": 7, "time": 0, "key": "aw==", "value": None, "headers": [["trace", "YTE="]]}
    part = {"topic": "orders", "partition": 3, "bytes": 8, "why": "", "batches": [{"records": [record], "omitted": 2}]}
    one = shown(records=[part])
    one["frame"] = {**one["frame"], "steps": [*STEPS, step]}
    fake.answers["/api/held/17-1"] = one
    hold(fake, page, held())
    page.evaluate("""() => { for (let times = 0; times < 2; times++) {
        document.querySelector(".held-frame")
          .dispatchEvent(new KeyboardEvent("keydown", { key: "e", bubbles: true })); } }""")
    page.wait_for_selector("dialog fieldset")
    expect(page.locator("dialog")).to_have_count(1)
    assert page.locator("dialog legend").inner_text() == "orders[3] · record 7"
    assert page.locator("dialog fieldset .value > span:first-child").all_inner_texts() == ["key", "value", "headers"]
    assert page.locator("dialog fieldset input").nth(2).input_value() == '[{"key":"trace","value":"a1"}]'
    expect(page.locator("dialog .note").last).to_contain_text("2 records more")
    page.locator("dialog .field", has_text="group_id").click()
    expect(page.locator("dialog datalist option[value=audit]")).to_have_count(1)
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    to_frame(page)
    page.keyboard.press("s")
    expect(page.locator("dialog datalist option[value=UNKNOWN_MEMBER_ID]")).to_have_count(1)


def test_what_is_held_while_the_page_asks_stays_in_sight(fake: FakeView, open_page: OpenPage) -> None:
    """An answer from before does not take away what was told since."""
    asked, told = Event(), Event()
    answers = [{"held": [], "max_frames": 20, "passed_over": 0}, {"held": [held()], "max_frames": 20, "passed_over": 0}]

    def late(query: dict[str, str]) -> dict[str, Any]:
        asked.set()
        told.wait(60)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    fake.answers["/api/held"] = late
    page = open_page(fake.page)
    assert asked.wait(60)
    fake.tell("held", {"added": [held()], "changed": [], "gone": []})
    page.wait_for_selector(".held-frame")
    told.set()
    until(lambda: fake.seen.count("/api/held") >= 2)
    page.wait_for_timeout(200)
    expect(page.locator(".held-frame")).to_have_count(1)


def test_bytes_are_edited_and_an_edit_undone(fake: FakeView, page: Page) -> None:
    """V takes all of it back."""
    hold(fake, page, held())
    fake.answers["/api/held/17-1"] = shown()
    fake.answers["/api/held/17-1/preview"] = shown()
    to_frame(page)
    page.keyboard.press("e")
    page.wait_for_selector("dialog .tree")
    page.locator("dialog summary").click()
    page.locator("dialog textarea").fill("00 0c 00 04")
    assert sent(fake, page, "/api/held/17-1/preview")["bytes"] == b64encode(b"\0\x0c\0\4").decode()
    page.locator("dialog .tree").focus()
    page.keyboard.press("V")
    page.wait_for_selector("dialog button[disabled] >> text=Undo")
    expect(page.locator("dialog button.primary")).to_have_text("Resume")


def test_the_row_of_a_held_frame_is_marked_and_no_other(fake: FakeView, page: Page) -> None:
    """Of two that are under way on its connection, by the same API, the one of its exchange; H shows no other."""
    under_way = {"api": "Heartbeat", "outcome": None, "latency": None, "response": None, "connection": 17}
    fake.rows([fake.row(number, correlation=number, **under_way) for number in (1, 2)])
    hold(fake, page, held())
    expect(page.locator(".list .row.waiting")).to_have_count(1)
    expect(page.locator(".list .row.waiting")).to_contain_text("held · request")
    expect(page.locator(".list [data-place]").first).to_have_class("row waiting")
    page.keyboard.press("H")
    expect(page.locator(".list [data-place]")).to_have_count(1)
    expect(page.get_by_role("button", name="held", exact=True)).to_have_attribute("aria-pressed", "true")
    fake.answers["/api/held"] = {"held": [], "max_frames": 20, "passed_over": 0}
    fake.tell("held", {"added": [], "changed": [], "gone": [{"id": "17-1", "how": "client_left", "who": ""}]})
    page.wait_for_selector("text=Nothing that the filter holds for is held now.")
    page.keyboard.press("H")
    expect(page.locator(".list [data-place]")).to_have_count(2)
    assert page.locator(".row.waiting").count() == 0


def test_whoever_decides_has_a_name(fake: FakeView, page: Page) -> None:
    """Given once, by a key; it goes with all that is changed, and stays when the page is opened again."""
    hold(fake, page, held())
    fake.answers["/api/held/17-1/resume"] = held(gone="resumed")
    fake.answers["/api/faults/disable"] = {"faults": [], "disabled": True}
    page.keyboard.press("W")
    page.wait_for_selector("dialog input:focus")
    page.keyboard.type("Mára")
    page.keyboard.press("Enter")
    page.wait_for_selector("aside >> text=as Mára")
    to_frame(page)
    page.keyboard.press("a")
    sent(fake, page, "/api/held/17-1/resume")
    page.reload()
    page.wait_for_selector(".stream.live + span")
    page.keyboard.press("K")
    page.wait_for_selector("dialog button.last:focus")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    sent(fake, page, "/api/faults/disable")
    assert fake.names == ["Mára", "Mára"]


@pytest.mark.parametrize("answers", [False, True])
def test_an_edit_becomes_a_rule(fake: FakeView, page: Page, answers: bool) -> None:
    """The frame goes on with it, or is answered, and a rule is proposed that does the same to the next ones, which
    kproxy takes."""
    fake.answers |= {"/api/kinds": kinds_shown().model_dump(), "POST /api/check": judged}
    hold(fake, page, held())
    if answers:
        fake.answers["/api/held/17-1/answer"] = held(gone="answered")
        to_frame(page)
        page.keyboard.press("s")
        page.wait_for_selector("dialog input:focus")
        page.keyboard.type("REBALANCE_IN_PROGRESS")
    else:
        fake.answers |= {
            "/api/held/17-1": shown(),
            "/api/held/17-1/preview": shown(),
            "/api/held/17-1/resume": held(gone="edited"),
        }
        to_frame(page)
        page.keyboard.press("e")
        page.locator("dialog [role=treeitem]", has_text="generation_id").click()
        assert page.get_by_role("button", name="Like this from now on").count() == 0
        page.locator("dialog .value input").fill("7")
    page.get_by_role("button", name="Like this from now on").click()
    page.wait_for_selector("dialog textarea")
    page.wait_for_selector("text=5 would match")
    rule = read_document(Source("x", page.locator("dialog textarea").input_value())).parsed_rules[0].raw
    assert rule["match"] == {"api": "Heartbeat", "client_id": "etl-3"}
    if answers:
        assert sent(fake, page, "/api/held/17-1/answer")["error"] == "REBALANCE_IN_PROGRESS"
        assert (rule["kind"], rule["error"], rule["at"]) == ("error", "REBALANCE_IN_PROGRESS", "request")
    else:
        assert sent(fake, page, "/api/held/17-1/resume")["set"] == [{"path": "generation_id", "value": 7}]
        assert (rule["kind"], rule["fields"], rule["at"]) == ("set", {"generation_id": 7}, "request")


def test_an_answer_is_given_in_the_brokers_place(fake: FakeView, page: Page) -> None:
    """By the name of an error."""
    hold(fake, page, held())
    to_frame(page)
    page.keyboard.press("s")
    page.locator("dialog input").fill("REBALANCE_IN_PROGRESS")
    fake.answers["/api/held/17-1/answer"] = held(gone="answered")
    page.keyboard.press("Enter")
    assert sent(fake, page, "/api/held/17-1/answer") == {"revision": 1, "error": "REBALANCE_IN_PROGRESS", "who": ""}


def test_what_the_filter_holds_for_is_intercepted(fake: FakeView, open_page: OpenPage) -> None:
    """After the page has named whom that is about."""
    fake.answers["/api/held"] = {"held": [], "max_frames": 20, "passed_over": 0}
    fake.answers["PUT /api/rules/intercept *"] = {"version": "5f2c9a01b7e5"}
    fake.rows_kept = [fake.row(1), fake.row(2, client="billing-2", connection=5)]
    page = open_page(f"{fake.page}#/exchanges?f=~k%20produce")
    page.wait_for_function("() => document.querySelectorAll('.list .row:not(.head)').length === 2")
    page.keyboard.press("i")
    page.wait_for_selector("dialog")
    words = " ".join(page.locator("dialog").inner_text().split())
    assert "The rows in sight are of 2 connections, of etl-3, billing-2" in words
    page.locator("dialog button.primary").click()
    page.wait_for_selector("dialog", state="detached")
    ((method, path, body),) = fake.changes
    assert method == "PUT"
    assert re.fullmatch(r"/api/rules/intercept ~k produce\?ttl=10m&page=[0-9a-f]{32}", path)
    assert body == {"kind": "intercept", "at": "request", "hold_for": "20s", "on_timeout": "pass", "max_frames": 20,
                    "filter": "~k produce"}  # fmt: skip


def test_who_may_only_look_decides_nothing(fake: FakeView, open_page: OpenPage) -> None:
    """Neither by keys nor by buttons."""
    fake.may_write = False
    fake.answers["/api/held"] = {"held": [held()], "max_frames": 20, "passed_over": 0}
    page = open_page(fake.page)
    page.wait_for_selector(".held-frame")
    page.locator(".held-frame").focus()
    for key in "aAexX+iI":
        page.keyboard.press(key)
    assert page.locator(".held-frame button, dialog").count() == 0
    assert fake.changes == []


def test_axe_finds_nothing_on_what_is_held(fake: FakeView, open_page: OpenPage) -> None:
    """On the view, and in each dialog that decides."""
    frames = [held(), held("18-1", editable=False, why_not="not all of it is here", claimed_by="mara", ends_in=None)]
    fake.answers |= {"/api/held": {"held": frames, "max_frames": 20, "passed_over": 3}, "/api/held/17-1": shown()}
    fake.refused["/api/held/17-1/preview"] = 422, {"error": {
        "code": "invalid_edit", "message": "nothing was changed: 1 mistake",
        "mistakes": [{"where": "generation_id", "message": "expected a whole number"}]}}  # fmt: skip
    page = open_page(f"{fake.page}#/held", bypass_csp=True)
    found: dict[str, list[str]] = {}
    for theme in THEMES:
        page.wait_for_selector(".page .held-frame >> nth=1")
        found[f"held {theme}"] = violations(page)
        for key in "esxXi":
            to_frame(page)
            page.keyboard.press(key)
            page.wait_for_selector("dialog[open]")
            if key == "e":
                page.locator("dialog [role=treeitem]", has_text="generation_id").click()
                page.locator("dialog .value input").fill("soon")
                page.wait_for_selector("dialog .value .bad >> text=expected a whole number")
            found[f"{key} {theme}"] = violations(page)
            page.keyboard.press("Escape")
            page.wait_for_selector("dialog", state="detached")
        page.keyboard.press("D")

    assert {name: one for name, one in found.items() if one} == {}
