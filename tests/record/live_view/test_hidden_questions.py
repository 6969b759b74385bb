"""What nobody may see (`view: {records: false}`) can nobody find out by asking either, however often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kproxy.admin.api import OPERATIONS
from kproxy.protocol.records import Record, encode_batch
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule
from tests.record.live_view.stream_reader import produced, viewing
from tests.support.random_rules import example

UNLESS: dict[str, tuple[str, ...]] = {"set": ()}
"""Keys of a kind's example that are left out, of all others `match`: `set` is about the fields of one API."""
RECORDS = ("~key+x", "~val+x", "~h+x", "~keyless", "~tomb", "~t+orders+and+not+~val+x")


@pytest.fixture
def without_records(api: Any) -> Any:
    """The API of a proxy with `view: {records: false}`."""
    api.backend.view = api.backend.view.model_copy(update={"records": False})
    (member,) = api.members
    member.records = member.kept_exchanges.records = False
    return api


@pytest.mark.parametrize("text", RECORDS)
@pytest.mark.trio
async def test_no_filter_asks_about_hidden_records(without_records: Any, text: str) -> None:
    """Wherever one is taken by somebody who looks: what it holds for would tell what is in them."""
    taken = {one.name for one in OPERATIONS if one.method == "GET" and "filter" in one.query.model_fields}

    assert taken >= {"view", "tail", "list_exchanges"}
    for one in OPERATIONS:
        if one.name in taken:
            refused = await without_records("GET", f"{one.path}?filter={text}")
            assert (refused.status, refused.code) == (422, "invalid_query"), one.path
            assert "`view: {records: false}`" in refused.json["error"]["message"]


def written(value: bytes) -> bytes:
    """A batch of one record with this value."""
    return encode_batch([Record(0, 0, b"key", value, ())])


async def matches(api: Any, rule: dict[str, Any]) -> Any:
    """What a check says of a rule and the exchanges that are kept."""
    found = (await api("POST", "/api/check", json.dumps({"rules": [rule]}))).json
    assert found.get("mistakes") == [], found
    return found["matches"]


@pytest.mark.trio
async def test_no_rule_that_is_only_checked_asks_about_hidden_records(without_records: Any) -> None:
    """Of two writes that differ in what a user wrote, a check says the same, whatever the rule."""
    async with viewing(without_records.app) as reader:
        without_records.proxy.server.taps.fanout.take(produced("orders", 1, written(b"a secret")))
        await reader.rows(1)
    guessed = {"name": "a", "kind": "intercept", "filter": "~val '^a secret$'"}
    wrong = {"name": "a", "kind": "intercept", "filter": "~val '^a sekret$'"}

    assert await matches(without_records, guessed) == await matches(without_records, wrong)
    assert (await matches(without_records, {"name": "a", "kind": "intercept", "filter": "~t orders"}))["matched"] == 1


@pytest.mark.parametrize("kind", [name for name in KINDS if issubclass(KINDS[name], LiveRule) and name != "python"])
@pytest.mark.trio
async def test_no_kind_tells_records_apart(without_records: Any, kind: str) -> None:
    """In how often it would match or fire."""
    rule = {name: value for name, value in example(kind).items() if name not in ("when", *UNLESS.get(kind, ("match",)))}
    rule["name"] = "a"
    rule |= {"at": "produce"} if "at" in rule and rule["at"] == "fetch" else {}
    rule |= {"value": "a secret"} if kind == "set_record" else {}
    told = []
    for value in (b"a secret", b"x secret"):
        async with viewing(without_records.app) as reader:
            before = len(without_records.members[0].kept())
            without_records.proxy.server.taps.fanout.take(produced("orders", 1 + before, written(value)))
            await reader.rows(1)
        found = await matches(without_records, rule)
        told.append((found["matched"] - before * found["matched"] // (before + 1), found["fired"]))
        (member,) = without_records.members
        member.kept_exchanges.watch.ring.clear()

    assert told[0] == told[1]
