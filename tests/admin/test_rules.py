"""The API's operations on rules, and what each of them refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.holding import LetGo

TINY = {"kind": "tiny"}
YAML = "application/yaml"


async def names(api: Any) -> list[str]:
    return [rule["name"] for rule in (await api("GET", "/api/rules")).json["rules"]]


# ---- list and get


@pytest.mark.trio
async def test_the_list_has_all_rules_in_order(api: Any) -> None:
    """With the version in force, the seed, and how they came in."""
    assert (await api("POST", "/api/rules/extra", TINY)).status == 201
    found = (await api("GET", "/api/rules")).json

    assert [rule["name"] for rule in found["rules"]] == ["base", "extra"]
    assert (found["version"], found["seed"], found["faults_disabled"]) == (api.proxy.rules.id, 7, False)
    assert (found["loaded"], found["rejected"], found["last_rejection"]) == ({"file": 1, "api": 1}, {}, None)


@pytest.mark.trio
async def test_a_rule_shows_itself_and_what_it_did(api: Any) -> None:
    """Where it stands, its fields as they were written, its counters, its seed."""
    api.running("base").count(fired=True)
    api.running("base").count(fired=False)
    shown = (await api("GET", "/api/rules/base")).json

    assert shown.pop("since").startswith("20")
    assert shown == {
        "name": "base", "kind": "tiny", "origin": "file", "position": "a.yaml:2:5", "rule": {"name": "base", **TINY},
        "enabled": True, "in_force": True, "stage": None, "binds": "frame", "mode": "enforce",
        "family": "fault", "fault": True, "matched": 2, "fired": 1,
        "applied": 0, "held": 0, "problems": 0, "problem": None, "seed": 7, "ttl_left": None, "warnings": [],
    }  # fmt: skip


@pytest.mark.trio
async def test_a_rule_that_binds_connections_counts_nothing(make_api: Callable[..., Any]) -> None:
    """Its counters are null, and waiting for them is refused."""
    api = make_api("rules:\n  - {name: r, kind: rename_topic, topics: {a: b}}\n")
    shown = (await api("GET", "/api/rules/r")).json

    assert (shown["binds"], shown["matched"], shown["seed"]) == ("connection", None, None)
    for action in ("wait", "resume", "reset"):
        refused = await api("POST", f"/api/rules/r/{action}")
        assert (refused.status, refused.code) == (409, "not_counted")


@pytest.mark.trio
async def test_a_rule_that_is_not_there(api: Any) -> None:
    """404 with the nearest name, whatever is wanted of it."""
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("POST", "/enable"), ("POST", "/disable"), ("POST", "/reset"),
        ("POST", "/resume"), ("POST", "/wait"),
    ):  # fmt: skip
        refused = await api(method, f"/api/rules/bass{path}")
        assert (refused.status, refused.code) == (404, "no_such_rule")
        assert refused.json["error"]["message"] == 'unknown rule "bass", did you mean "base"?'


# ---- add, replace, remove


@pytest.mark.trio
async def test_a_rule_is_added_replaced_and_removed(api: Any) -> None:
    """Its name stands in the path; in the body it may stand, too."""
    added = await api("POST", "/api/rules/x", {"name": "x", "size": 1, **TINY})
    assert (added.status, added.json["origin"], added.json["position"]) == (201, "api", "<api>:1:1")
    replaced = await api("PUT", "/api/rules/x", {"size": 2, **TINY})
    assert (replaced.status, replaced.json["rule"]) == (200, {"name": "x", "size": 2, "kind": "tiny"})
    assert api.running("x").rule.size == 2

    assert (await api("DELETE", "/api/rules/x", kind=None)).status == 200
    assert await names(api) == ["base"]


@pytest.mark.trio
async def test_a_replaced_rule_in_yaml(api: Any) -> None:
    """PUT and POST take both."""
    assert (await api("PUT", "/api/rules/x", "kind: tiny\nsize: 3\n", kind=YAML)).json["rule"]["size"] == 3


@pytest.mark.trio
async def test_names_with_slashes_spaces_and_letters_of_all_sorts(api: Any) -> None:
    """They are encoded in the path."""
    assert (await api("PUT", "/api/rules/a%2Fb%20%C3%A9%25", TINY)).json["name"] == "a/b é%"
    assert (await api("POST", "/api/rules/a%2fb%20%C3%A9%25/disable")).json["enabled"] is False


@pytest.mark.trio
async def test_no_other_name_is_one_with_a_slash(api: Any) -> None:
    """Whatever a client writes between its letters."""
    await api("PUT", "/api/rules/a%2Fb", TINY)
    for other in ("a%00b", "a%00b%2F", "a%ffb", "a%252Fb"):
        assert (await api("DELETE", f"/api/rules/{other}")).code == "no_such_rule"
    assert (await api("GET", "/api/rules/a%2Fb")).json["name"] == "a/b"


@pytest.mark.trio
async def test_a_parameter_that_is_there_twice_is_a_mistake(api: Any) -> None:
    """Else one of its values would be left out in silence."""
    await api("PUT", "/api/rules/x", TINY)
    refused = await api("POST", "/api/rules/x/wait?hits=1&hits=2&timeout=0s")
    assert (refused.status, refused.code) == (422, "invalid_query")
    assert "hits: given 2 times" in refused.json["error"]["message"]


@pytest.mark.trio
async def test_all_the_apis_rules_are_replaced_at_once(api: Any) -> None:
    """Those of files stay; unchanged ones go on counting."""
    await api("POST", "/api/rules", "rules:\n  - {name: x, kind: tiny}\n  - {name: y, kind: tiny}\n", kind=YAML)
    api.running("x").count(fired=True)
    answer = await api("PUT", "/api/rules", {"rules": [{"name": "z", **TINY}, {"name": "x", **TINY}]})

    assert [(rule["name"], rule["matched"]) for rule in answer.json["rules"]] == [("base", 0), ("z", 0), ("x", 1)]
    assert [rule["name"] for rule in (await api("DELETE", "/api/rules")).json["rules"]] == ["base"]


@pytest.mark.trio
async def test_rules_of_a_test_stand_last_and_go_by_themselves(api: Any) -> None:
    """They always have a time to live."""
    assert (await api("POST", "/api/rules/t?origin=test", TINY)).code == "invalid_query"
    added = await api("POST", "/api/rules/t?origin=test&ttl=30s", TINY)
    await api("POST", "/api/rules/x", {"ttl": "5s", **TINY})

    assert 29 < added.json["ttl_left"] <= 30
    assert await names(api) == ["base", "x", "t"]
    assert 4 < (await api("GET", "/api/rules/x")).json["ttl_left"] <= 5
    assert [rule["name"] for rule in (await api("DELETE", "/api/rules?origin=test")).json["rules"]] == ["base", "x"]


@pytest.mark.trio
async def test_what_belongs_to_others_is_left_alone(api: Any) -> None:
    """409 with the place; nothing has changed."""
    await api("POST", "/api/rules/x", TINY)
    for method, path in (("PUT", "base"), ("POST", "base"), ("DELETE", "base"), ("POST", "x")):
        refused = await api(method, f"/api/rules/{path}", None if method == "DELETE" else TINY)
        assert (refused.status, refused.code) == (409, "rule_in_use")
    assert "a.yaml:2:5" in (await api("DELETE", "/api/rules/base")).json["error"]["message"]
    assert await names(api) == ["base", "x"]


@pytest.mark.trio
async def test_every_mistake_of_a_body_has_its_place(api: Any, logged: list[dict[str, Any]]) -> None:
    """422, nothing has changed, and the list shows it until something is accepted."""
    body = '{\n "rules": [\n  {"name": "x", "kind": "tiny", "sise": 1},\n  {"name": "base", "kind": "tinny"}\n ]\n}'
    refused = await api("PUT", "/api/rules", body)
    mistakes = refused.json["error"]["mistakes"]

    assert (refused.status, refused.code) == (422, "invalid_document")
    assert [one["where"] for one in mistakes] == ["<api>:3:33", "<api>:4:28"]
    assert 'did you mean "size"' in mistakes[0]["message"]
    found = (await api("GET", "/api/rules")).json
    assert (found["rejected"], found["last_rejection"]["mistakes"]) == ({"api": 1}, mistakes)
    assert [rule["name"] for rule in found["rules"]] == ["base"]
    assert [line["mistake"][:10] for line in logged if line.get("mistake")] == ["<api>:3:33", "<api>:4:28"]
    await api("PUT", "/api/rules", {"rules": []})
    assert (await api("GET", "/api/rules")).json["last_rejection"] is None


@pytest.mark.parametrize(
    ("body", "kind", "where"),
    [
        ('{"rules": [}', "application/json", "<api>:1:12"),
        ("rules: [", YAML, "<api>:2:1"),
        ("", "application/json", "<api>:1:1"),
        ("[" * 100_000, "application/json", "<api>:1:"),
        ('{"rules": NaN}', "application/json", "<api>:1:1"),
        ('{"rules": [{"name": "a", "kind": "deny", "match": {"topic": "\\ud800"}}]}', "application/json", "<api>:1:61"),
        ("\ufeff[]".encode("utf-16").decode("latin-1"), "application/json", "<api>:1:1"),
    ],
)
@pytest.mark.trio
async def test_bodies_that_are_no_documents(api: Any, body: str, kind: str, where: str) -> None:
    """The place where it stops being one."""
    refused = await api("PUT", "/api/rules", body, kind=kind)

    assert (refused.status, refused.code) == (422, "invalid_document")
    assert refused.json["error"]["mistakes"][0]["where"].startswith(where)


@pytest.mark.trio
async def test_the_body_may_not_name_another_rule(api: Any) -> None:
    """The place of the other name is shown."""
    refused = await api("PUT", "/api/rules/x", {"name": "y", **TINY})

    assert refused.json["error"]["mistakes"] == [
        {"where": "<api>:1:10", "message": 'expected the rule "x" of the path, got "y"'}
    ]


@pytest.mark.trio
async def test_rules_that_run_code_are_refused(api: Any) -> None:
    """With the reason, before anything of them is looked at."""
    refused = await api("PUT", "/api/rules/x", {"kind": "tiny_code", "nonsense": 1})

    assert refused.status == 422
    assert [one["message"][:48] for one in refused.json["error"]["mistakes"]] == [
        "rules of the kind tiny_code run code in this pro"
    ]


@pytest.mark.trio
async def test_whole_numbers_as_keys(api: Any) -> None:
    """JSON has text for keys only; a broker's id may be one."""
    added = await api("PUT", "/api/rules/x", {"kind": "advertise", "nodes": {"1": "b1:9093"}})

    assert added.status == 200
    assert (await api("PUT", "/api/rules/x", added.json["rule"])).status == 200


# ---- on and off


@pytest.mark.trio
async def test_a_rule_is_turned_off_and_on(api: Any) -> None:
    """Its counters stay; the version follows."""
    version = api.proxy.rules.id
    api.running("base").count(fired=True)
    off = (await api("POST", "/api/rules/base/disable")).json
    assert (off["enabled"], off["in_force"], off["matched"]) == (False, False, 1)
    assert api.proxy.rules.id != version
    on = (await api("POST", "/api/rules/base/enable")).json
    assert (on["enabled"], on["in_force"], on["matched"], api.proxy.rules.id) == (True, True, 1, version)


@pytest.mark.trio
async def test_faults_are_disabled_and_enabled(api: Any) -> None:
    """All faults off, what is added afterwards too; then as they were."""
    disabled = (await api("POST", "/api/faults/disable")).json
    await api("POST", "/api/rules/x", TINY)
    shown = (await api("GET", "/api/rules")).json

    assert disabled["disabled"] is True
    assert [(rule["enabled"], rule["in_force"]) for rule in shown["rules"]] == [(True, False)] * 2
    assert len(api.proxy.rules.live) == 0
    assert (await api("POST", "/api/faults/enable")).json["disabled"] is False
    assert len(api.proxy.rules.live) == 2


@pytest.mark.trio
async def test_counters_are_reset(api: Any) -> None:
    """Of one rule or of all."""
    await api("POST", "/api/rules/x", TINY)
    for name in ("base", "x"):
        api.running(name).count(fired=True)

    assert (await api("POST", "/api/rules/x/reset")).json["matched"] == 0
    assert api.running("base").matched == 1
    assert (await api("POST", "/api/reset")).json == {"reset": 2}
    assert api.running("base").matched == 0


@pytest.mark.trio
async def test_held_requests_are_released(api: Any) -> None:
    """By the rule's own release, and when the rule goes."""
    let_go: list[int] = []
    api.running("base").held = [LetGo(let_go, 1), LetGo(let_go, 2)]
    assert (await api("GET", "/api/rules/base")).json["held"] == 2
    assert (await api("POST", "/api/rules/base/resume")).json == {"resumed": 2}
    api.running("base").held = [LetGo(let_go, 3)]
    await api("POST", "/api/faults/disable")

    assert let_go == [1, 2, 3]


# ---- waiting


@pytest.mark.trio
async def test_waiting_ends_when_the_number_is_reached(api: Any, autojump_clock: trio.testing.MockClock) -> None:
    """At once, without looking again and again."""
    answers = []

    async def wait() -> None:
        answers.append(await api("POST", "/api/rules/base/wait?hits=2&timeout=60"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        running = api.running("base")
        running.count(fired=True)
        running.count(fired=False)
        await wait_all_tasks_blocked()
        assert answers == []
        running.count(fired=True)

    assert trio.current_time() < 1
    assert [(one.json["reached"], one.json["rule"]["fired"]) for one in answers] == [(True, 2)]
    assert running.on_count is None


@pytest.mark.trio
async def test_waiting_for_what_is_there_already(api: Any) -> None:
    api.running("base").count(fired=False)
    assert (await api("POST", "/api/rules/base/wait?count=matched&timeout=60")).json["reached"] is True


@pytest.mark.trio
async def test_waiting_has_an_end(api: Any, autojump_clock: trio.testing.MockClock) -> None:
    """After ten seconds, or as said."""
    assert (await api("POST", "/api/rules/base/wait")).json["reached"] is False
    assert trio.current_time() == pytest.approx(10)
    assert (await api("POST", "/api/rules/base/wait?timeout=500ms&count=applied")).json["reached"] is False
    assert trio.current_time() == pytest.approx(10.5)


@pytest.mark.trio
async def test_who_goes_away_waits_for_no_rule(api: Any) -> None:
    """Its wait ends at once, so that a rule that counts has only those to look at who are there."""
    gone, statuses = trio.Event(), []

    async def wait() -> None:
        parts = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        statuses.append((await api("POST", "/api/rules/base/wait?hits=9&timeout=1h", receive=receive)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert len(api.proxy.keeper.waiters.waiters["base"]) == 3
        gone.set()
    assert statuses == [408] * 3
    assert api.proxy.keeper.waiters.waiters == {}


@pytest.mark.trio
async def test_waiting_follows_a_changed_rule_and_ends_with_a_removed_one(api: Any) -> None:
    """Several may wait for one rule."""
    await api("POST", "/api/rules/x", TINY)
    answers: dict[int, Any] = {}

    async def wait(hits: int) -> None:
        answers[hits] = await api("POST", f"/api/rules/x/wait?hits={hits}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 1)
        nursery.start_soon(wait, 2)
        await wait_all_tasks_blocked()
        await api("PUT", "/api/rules/x", {"size": 9, **TINY})
        await wait_all_tasks_blocked()
        api.running("x").count(fired=True)
        await wait_all_tasks_blocked()
        assert list(answers) == [1]
        await api("DELETE", "/api/rules/x")

    assert answers[1].json["rule"]["rule"]["size"] == 9
    assert (answers[2].status, answers[2].code) == (404, "no_such_rule")


# ---- scenarios


@pytest.mark.trio
async def test_a_scenario_shows_its_stage(api: Any) -> None:
    """By name, with the time that is left; its rules say which stage they belong to."""
    stages = [
        {"name": "calm", "for": "1h", "rules": []},
        {"rules": [{"name": "storm", **TINY}]},
    ]
    answer = await api("POST", "/api/rules", {"scenario": {"name": "weather", "stages": stages}})
    shown = answer.json["scenarios"][0]

    assert answer.status == 201
    assert 3599 < shown.pop("ends_in") <= 3600
    assert shown == {
        "name": "weather", "origin": "api", "file": "<api>", "stages": ["calm", "2"], "stage": "calm", "round": 1,
    }  # fmt: skip
    storm = (await api("GET", "/api/rules/storm")).json
    assert (storm["stage"], storm["enabled"], storm["in_force"], storm["matched"]) == ("2", True, False, 0)
