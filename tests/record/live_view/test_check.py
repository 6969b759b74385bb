"""What the API says of rules and filters while they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from kproxy.admin import editor
from kproxy.admin.editor import KeptNamesShown, joined, names_in
from kproxy.record.exchange import Form, ObservedExchange
from kproxy.rules.document.read import read_document
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.source import json_source
from tests.admin import conftest as admin
from tests.support.exchange_factory import Somebody, exchange

api, logged, make_api = admin.api, admin.logged, admin.make_api  # fixtures

YAML = "application/yaml"
Kept = Callable[[Sequence[ObservedExchange]], None]


@pytest.fixture
def keep(api: Any, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """`keep(exchanges)`: the proxy has kept these, the latest first."""

    def set_kept(exchanges: Sequence[ObservedExchange]) -> None:
        monkeypatch.setattr("kproxy.admin.worker_api.Member.kept", lambda member: list(exchanges))

    return set_kept


def produce(number: int, topic: str, who: Somebody, form: Form = Form.WHOLE) -> ObservedExchange:
    """Return a write of nothing to partition 0 of a topic."""
    asked = {"transactional_id": None, "acks": 1, "timeout_ms": 1000,
             "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": None}]}]}  # fmt: skip
    partition = {"index": 0, "error_code": 0, "base_offset": 0, "log_append_time_ms": -1, "log_start_offset": 0}
    answer = {"responses": [{"name": topic, "partition_responses": [partition]}], "throttle_time_ms": 0}
    return exchange("Produce", 8, asked, answer, who=who, number=number, at=1000.0 + number, form=form)


FAIL = """\
rules:
  - name: every third write fails
    kind: error
    match: {api: Produce, topic: orders}
    when: {every: 3}
    error: NOT_LEADER_OR_FOLLOWER
"""


@pytest.mark.trio
async def test_mistakes_have_a_line_and_a_column(api: Any, logged: list[dict[str, Any]]) -> None:
    """With 200, since the question was answered; nothing is changed, and nothing is logged as refused."""
    before = (await api("GET", "/api/rules")).json["version"]
    text = "rules:\n  - name: a\n    kind: delay\n    dealy: 5ms\n    match: {api: Produc}\n"
    checked = await api("POST", "/api/check", text, kind=YAML)
    mistakes = {(one["line"], one["column"]): one["message"] for one in checked.json["mistakes"]}

    assert checked.status == 200
    assert 'unknown key "dealy"' in mistakes[4, 5]
    assert "Produc" in mistakes[5, 18]
    assert checked.json["matches"] is None
    assert (await api("GET", "/api/rules")).json["version"] == before
    assert not [one for one in logged if one["level"] == "error"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("rules: [", 2, "expected a value"),
        ("", 1, "the document is empty"),
        ("- a\n- b", 1, "expected a rule document"),
        ("rules:\n  - {name: a, kind: nothing_like_it}", 2, "unknown kind"),
        ("rules:\n  - {name: a, kind: tiny_code}", 2, "taken from files only"),
        ("rules:\n  - {name: a, kind: tiny}\n  - {name: a, kind: tiny}", 3, "a"),
        ("rules:\n  - {name: base, kind: tiny}", 2, "is in a file"),
        ("rules:\n  - {name: a, kind: tiny, ttl: never}", 2, "never"),
    ],
)
@pytest.mark.trio
async def test_every_sort_of_mistake_is_told(api: Any, text: str, line: int, message: str) -> None:
    """As adding it would tell."""
    mistakes = (await api("POST", "/api/check", text, kind=YAML)).json["mistakes"]

    assert mistakes
    assert any(one["line"] == line and message in one["message"] for one in mistakes), mistakes
    assert (await api("POST", "/api/rules", text, kind=YAML)).status in (409, 422)


@pytest.mark.trio
async def test_a_taken_name_is_a_mistake_unless_its_rule_is_replaced(api: Any) -> None:
    """By `?replace=true`, as when rules are added."""
    text = "rules: [{name: mine, kind: tiny}]"
    await api("POST", "/api/rules", text, kind=YAML)
    refused = (await api("POST", "/api/check", text, kind=YAML)).json["mistakes"]

    assert [(one["line"], one["column"]) for one in refused] == [(1, 16)]
    assert "is taken" in refused[0]["message"]
    assert (await api("POST", "/api/check?replace=true", text, kind=YAML)).json["mistakes"] == []


@pytest.mark.trio
async def test_warnings_have_a_line_and_a_column(api: Any) -> None:
    """As `kproxy check` prints them."""
    text = "rules:\n  - name: a\n    kind: delay\n    delay: 5ms\n    when: {first: 2, every: 3}\n"
    checked = (await api("POST", "/api/check", text, kind=YAML)).json

    assert checked["mistakes"] == []
    assert [(one["line"], one["column"]) for one in checked["warnings"]] == [(5, 5)]
    assert "can never act" in checked["warnings"][0]["message"]
    assert checked["rules"] == 1


@pytest.mark.trio
async def test_it_says_how_many_kept_exchanges_would_match(api: Any, keep: Kept) -> None:
    """Of all connections, and only those whose bytes are there."""
    one, other = Somebody(1), Somebody(2)
    kept = [produce(number, "orders" if number % 2 else "bills", one) for number in range(1, 13)]
    kept += [produce(number, "orders", other) for number in range(1, 4)]
    kept += [produce(20, "orders", other, Form.HEAD)]
    keep(kept[::-1])
    matches = (await api("POST", "/api/check", FAIL, kind=YAML)).json["matches"]

    assert matches == {
        "of": 15, "kept": 16, "unfit": 1, "matched": 9, "fired": 3,
        "rules": [{"name": "every third write fails", "kind": "error", "matched": 9, "fired": 3}],
    }  # fmt: skip


@pytest.mark.trio
async def test_rules_that_bind_connections_are_rehearsed_too(api: Any, keep: Kept) -> None:
    """They fire where a frame would be another one."""
    keep([produce(number, "orders" if number < 4 else "bills", Somebody()) for number in range(6, 0, -1)])
    text = "rules: [{name: elsewhere, kind: rename_topic, topics: {orders: prod.orders}}]"
    matches = (await api("POST", "/api/check", text, kind=YAML)).json["matches"]

    assert (matches["matched"], matches["fired"], matches["of"]) == (3, 3, 6)


@pytest.mark.trio
async def test_rules_in_force_are_left_alone(api: Any, keep: Kept) -> None:
    """Their counters and triggers are not touched by a check of the same rule."""
    await api("POST", "/api/rules", FAIL, kind=YAML)
    keep([produce(number, "orders", Somebody()) for number in range(6, 0, -1)])
    checked = (await api("POST", "/api/check?replace=true", FAIL, kind=YAML)).json

    assert checked["matches"]["fired"] == 2
    assert (await api("GET", "/api/rules/every third write fails".replace(" ", "%20"))).json["matched"] == 0


@pytest.mark.trio
async def test_many_rules_are_not_rehearsed(api: Any, keep: Kept) -> None:
    """That would take long."""
    keep([produce(1, "orders", Somebody())])
    rules = [{"name": f"r{number}", "kind": "tiny"} for number in range(60)]
    checked = (await api("POST", "/api/check", {"rules": rules})).json

    assert (checked["rules"], checked["matches"]) == (60, None)


def test_rehearsal_of_kept_exchanges_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock shows a millisecond more at each call. The two numbers show how many exchanges were left out."""
    monkeypatch.setattr(editor, "LONGEST_LOOK", 0.02)
    kept = [produce(number, "orders", Somebody()) for number in range(3000, 0, -1)]
    text = '{"rules": [{"name": "slow", "kind": "delay", "delay": "5ms", "match": {"topic": "orders"}}]}'
    editor.rehearsed(text, kept[:3])  # compiles what it needs
    clock = count()
    monkeypatch.setattr(editor, "monotonic", lambda: next(clock) / 1000)
    found = editor.rehearsed(text, kept)

    assert 0 < found.of < 100 < found.kept == 3000
    assert found.matched == found.of


def test_an_exchange_that_was_cut_in_the_middle_of_a_connection_is_no_trouble() -> None:
    """The first ones are gone from what is kept, and answers come in any order."""
    who = Somebody()
    kept = [produce(number, "orders", who) for number in (9, 7, 8)]
    found = editor.rehearsed(
        '{"rules": [{"name": "n", "kind": "error", "error": "UNKNOWN_SERVER_ERROR", "match": {"api": "Produce"}}]}',
        kept,
    )

    assert (found.of, found.matched, found.fired) == (3, 3, 3)


def test_several_processes_are_added_up() -> None:
    """Rule by rule."""
    text = '{"rules": [{"name": "slow", "kind": "delay", "delay": "5ms"}]}'
    parts = [editor.rehearsed(text, [produce(1, "orders", Somebody())]) for _ in range(3)]
    found = editor.together(parts)

    assert (found.of, found.kept, found.matched, found.fired, len(found.rules)) == (3, 3, 3, 3, 1)


@pytest.mark.parametrize(
    ("text", "long_form", "records"),
    [
        ("~k produce ~t ^orders", "api == Produce and topic ~ ^orders", False),
        ("", "", False),
        ("~val timeout", "value ~ timeout", True),
    ],
)
@pytest.mark.trio
async def test_a_right_filter_is_told_in_its_long_form(api: Any, text: str, long_form: str, records: bool) -> None:
    """As tails and captures tell it."""
    told = (await api("GET", "/api/filter?text=" + text.replace(" ", "%20"))).json

    assert told == {"filter": long_form, "column": None, "message": None, "needs_records": records}


@pytest.mark.parametrize(("text", "column"), [("~k prodxce", 4), ("topc == a", 1), ("(~q", 1), ("~t [", 4)])
@pytest.mark.trio
async def test_a_wrong_filter_is_told_with_its_place(api: Any, text: str, column: int) -> None:
    """From 1; the rest of the message is one line."""
    told = (await api("GET", "/api/filter?text=" + text.replace(" ", "%20"))).json

    assert (told["filter"], told["column"]) == (None, column), told
    assert "\n" not in told["message"]


@pytest.mark.trio
async def test_a_filter_has_a_length(api: Any) -> None:
    """Beyond it none is read."""
    refused = await api("GET", "/api/filter?text=" + "a" * 10_001)

    assert (refused.status, refused.code) == (422, "invalid_query")


@pytest.mark.trio
async def test_kinds_are_told_with_what_they_can_act_on(api: Any) -> None:
    """Each has a rule as an example that can be read."""
    told = {one["kind"]: one for one in (await api("GET", "/api/kinds")).json["kinds"]}

    assert set(told) == set(KINDS) - {"tiny", "tiny_code"} or set(told) == set(KINDS)
    assert "Produce" in told["error"]["apis"]
    assert told["rebalance"]["apis"] != told["error"]["apis"]
    assert (told["rename_topic"]["apis"], told["rename_topic"]["live"]) == (None, False)
    assert told["python"]["from_files_only"]
    assert any(one["name"] == "delay" for one in told["delay"]["fields"])


@pytest.mark.trio
async def test_names_come_from_the_tables_and_from_what_is_kept(api: Any, keep: Kept) -> None:
    """The latest first; those that are no topics are not."""
    etl, shop = Somebody(1, client_id="etl-3"), Somebody(2, client_id="shop", principal="alice")
    keep([produce(3, "bills", shop), produce(2, "orders", etl), produce(1, "x" * 300, etl)])
    told = (await api("GET", "/api/names")).json

    assert told["kept"]["topics"] == ["bills", "orders"]
    assert told["kept"]["client_ids"] == ["shop", "etl-3"]
    assert told["kept"]["principals"] == ["alice"]
    assert {"Produce", "JoinGroup"} <= set(told["apis"])
    assert "NOT_LEADER_OR_FOLLOWER" in told["errors"]
    assert {"api", "topic"} <= {field["name"] for field in told["fields"]}


@pytest.mark.trio
async def test_names_have_a_number_and_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each sort, in each process and of all."""
    monkeypatch.setattr("kproxy.admin.editor.MOST_NAMES", 5)
    kept = [produce(number, f"t{number}", Somebody(client_id=f"c{number}")) for number in range(20)]
    found = await names_in(kept)

    assert found.topics == found.client_ids == [] or (len(found.topics), len(found.client_ids)) == (5, 5)
    assert joined([found, KeptNamesShown(topics=["z", "t1"])]).topics == [
        *found.topics,
        *(["z"] if len(found.topics) < 5 else []),
    ]
    monkeypatch.setattr("kproxy.admin.editor.LONGEST_LOOK", -1.0)
    assert (await names_in(kept)).topics == []


def test_a_checked_document_is_the_one_that_is_rehearsed() -> None:
    """What was written of a rule, without its `ttl`, is a document."""
    document = read_document(json_source("<api>", b'{"rules": [{"name": "a", "kind": "delay", "delay": 1, "ttl": 5}]}'),
                             from_api=True)  # fmt: skip

    assert [dict(one.raw) for one in document.parsed_rules] == [{"name": "a", "kind": "delay", "delay": 1}]
