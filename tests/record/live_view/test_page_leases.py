"""Rules that end with the pages of the view that added them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from kproxy.admin.backend import GRACE
from kproxy.base.errors import NotEverywhere
from tests.record.live_view.stream_reader import viewing

pytestmark = pytest.mark.trio
BODY = {"kind": "intercept", "filter": "~k produce"}


class LeaseClock:
    """Clock and timers of leases, moved by the test."""

    def __init__(self, api: Any) -> None:
        self.leases, self.now = api.backend.leases, 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.removals: list[tuple[Any, ...]] = []
        self.leases.clock = lambda: self.now

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        self.timers.append((when, call))

    def spawn(self, *task: Any) -> None:
        self.removals.append(task)

    async def advance(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        self.now += seconds
        due = [call for when, call in self.timers if when <= self.now]
        self.timers = [one for one in self.timers if one[0] > self.now]
        for call in due:
            call()
        for task, *arguments in self.removals:
            await task(*arguments)
        self.removals.clear()


@pytest.fixture
def clock(api: Any, monkeypatch: pytest.MonkeyPatch) -> LeaseClock:
    clock = LeaseClock(api)
    reactor = api.backend.keeper.reactor
    monkeypatch.setattr(reactor, "call_at", clock.call_at)
    monkeypatch.setattr(reactor, "spawn", clock.spawn)
    return clock


async def put(api: Any, page: str = "", name: str = "hold") -> None:
    answer = await api("PUT", f"/api/rules/{name}?ttl=10m" + (f"&page={page}" if page else ""), BODY)
    assert answer.status == 200


async def names(api: Any) -> list[str]:
    """Return the names of the rules that came over the API."""
    rules = (await api("GET", "/api/rules")).json["rules"]
    return [one["name"] for one in rules if one["origin"] == "api"]


async def test_rule_of_a_page_ends_after_the_grace_period(api: Any, clock: LeaseClock) -> None:
    async with viewing(api.app, "page=p1"):
        await put(api, "p1")
        await clock.advance(10 * GRACE)
        assert await names(api) == ["hold"]
    await clock.advance(GRACE - 1)
    assert await names(api) == ["hold"]
    await clock.advance(1)
    assert await names(api) == []
    assert (clock.leases.rules, clock.leases.left, clock.leases.streams) == ({}, {}, {})


async def test_reload_within_the_grace_period_keeps_the_rule(api: Any, clock: LeaseClock) -> None:
    async with viewing(api.app, "page=p1"):
        await put(api, "p1")
    await clock.advance(GRACE - 1)
    async with viewing(api.app, "page=p1"):
        await clock.advance(GRACE)
        assert await names(api) == ["hold"]
    await clock.advance(GRACE)
    assert await names(api) == []


async def test_rule_of_two_pages_ends_with_the_last_one(api: Any, clock: LeaseClock) -> None:
    """Both added it under the same name; the second one has two streams, as a tab that was duplicated."""
    async with viewing(api.app, "page=p2"):
        async with viewing(api.app, "page=p2"), viewing(api.app, "page=p1"):
            await put(api, "p1")
            await put(api, "p2")
        await clock.advance(GRACE)
        assert await names(api) == ["hold"]
    await clock.advance(GRACE)
    assert await names(api) == []


async def test_rule_of_a_page_without_a_stream_ends(api: Any, clock: LeaseClock) -> None:
    await put(api, "gone")
    await clock.advance(GRACE)
    assert await names(api) == []


@pytest.mark.parametrize("change", ["replaced", "removed", "added again"])
async def test_lease_ends_with_the_rule_it_is_of(api: Any, clock: LeaseClock, change: str) -> None:
    """A rule of the same name that no page has added stays."""
    async with viewing(api.app, "page=p1"):
        await put(api, "p1")
        if change != "replaced":
            await api("DELETE", "/api/rules/hold")
        if change == "replaced":
            await put(api)
        elif change == "added again":
            await api("POST", "/api/rules", {"rules": [{"name": "hold", **BODY}]})
    await clock.advance(GRACE)
    assert await names(api) == ([] if change == "removed" else ["hold"])
    assert not clock.leases.rules


async def test_leases_are_bounded_by_the_rules(api: Any, clock: LeaseClock) -> None:
    """Whatever names and pages were used before."""
    for number in range(50):
        await put(api, f"p{number}", f"rule{number}")
        await api("DELETE", f"/api/rules/rule{number}")
    await put(api, "p1")
    assert list(clock.leases.rules) == ["hold"]
    await clock.advance(GRACE)
    assert (clock.leases.rules, clock.leases.left) == ({}, {})
    for number in range(50):
        async with viewing(api.app, f"page=idle{number}"):
            pass
    assert not clock.leases.left
    await trio.lowlevel.checkpoint()


async def test_rules_of_a_page_end_in_one_operation(
    api: Any, clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rules. Each operation checks all rules, and changes of operators wait for it."""
    rules = [{"name": f"hold{number}", **BODY} for number in range(200)]
    assert (await api("POST", "/api/rules?page=p1", {"rules": rules})).status == 201
    await put(api, name="hold7")  # another client replaces one of them
    await api("DELETE", "/api/rules/hold8")
    keeper, operations = api.backend.keeper, list[tuple[str, str | None]]()
    do_everywhere = keeper.do_everywhere

    async def counted(what: str, operation: Any, *, rule: str | None = None) -> Any:
        operations.append((what, rule))
        return await do_everywhere(what, operation, rule=rule)

    monkeypatch.setattr(keeper, "do_everywhere", counted)
    await clock.advance(GRACE)
    assert await names(api) == ["hold7"]
    assert operations == [("198 rules removed with their page", None)]


@pytest.mark.parametrize("page", ["a b", "x" * 65, "%2e"])
async def test_page_id_is_checked(api: Any, page: str) -> None:
    answer = await api("PUT", f"/api/rules/hold?page={page.replace(' ', '%20')}", BODY)
    assert (answer.status, answer.code) == (422, "invalid_query")


async def test_rule_not_removed_everywhere_is_tried_again(
    api: Any, clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker did not take the change; the next try removes the rule."""
    keeper = api.backend.keeper

    async def refused(*given: Any, **more: Any) -> None:
        raise NotEverywhere("a worker has ended")

    await put(api, "gone")
    with monkeypatch.context() as failing:
        failing.setattr(keeper, "do_everywhere", refused)
        await clock.advance(GRACE)
        await clock.advance(GRACE)
    assert await names(api) == ["hold"]
    await clock.advance(GRACE)
    assert await names(api) == []
    assert all(when > clock.now + GRACE for when, _ in clock.timers)


async def test_grace_period_begins_again_with_a_new_rule(api: Any, clock: LeaseClock) -> None:
    """The stream of the page is broken, and the page adds another rule before it is open again."""
    await put(api, "p1")
    await clock.advance(GRACE - 1)
    await put(api, "p1", "other")
    await clock.advance(GRACE - 1)
    assert await names(api) == ["hold", "other"]
    await clock.advance(1)
    assert await names(api) == []


async def test_scenario_of_a_page_is_refused(api: Any, clock: LeaseClock) -> None:
    """Its rules cannot be removed one by one."""
    scenario = {"name": "s", "stages": [{"name": "one", "for": "1s", "rules": [{"name": "held", **BODY}]}]}
    answer = await api("POST", "/api/rules?page=p1", {"scenario": scenario})
    assert (answer.status, answer.code) == (422, "invalid_query")
    assert (await api("POST", "/api/rules", {"scenario": scenario})).status == 201
