"""`GET /api/exchanges`: after a place, waiting for a number, and with `view: {record_from_start: true}`."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.admin.guard import AdminTokens
from kproxy.admin.responses import MOST_LISTENERS
from kproxy.record.live_view.config import ViewConfig
from tests.record.live_view.stream_reader import StreamReader, produced, viewing
from tests.record.live_view.test_exchanges import fanout_of, kept, listed, watch_of
from tests.support.exchange_factory import exchange

pytestmark = pytest.mark.trio


async def until(fact: Callable[[], Any]) -> None:
    while not fact():  # noqa: ASYNC110  # it is the inside of a request that is looked at
        await trio.sleep(0.01)


async def awaited(api: Any, query: str, into: list[Any]) -> None:
    into.append(await listed(api, query))


async def test_behind_a_place_is_what_came_later(api: Any) -> None:
    """The place of an answer is behind all that was kept then; a filter and pages go with it."""
    await kept(api, *(produced("orders", number) for number in range(1, 4)))
    first = await listed(api, "limit=1")
    assert (await listed(api, f"after={first['place']}"))["rows"] == []
    await kept(api, *(produced("bills" if number % 2 else "orders", number) for number in range(4, 8)))

    later = await listed(api, f"after={first['place']}&limit=3")
    rest = await listed(api, f"after={first['place']}&limit=3&before={later['next']}")
    bills = await listed(api, f"after={first['place']}&filter=~t+bills")
    assert [row["id"] for row in (*later["rows"], *rest["rows"])] == ["0-7", "0-6", "0-5", "0-4"]
    assert [row["id"] for row in bills["rows"]] == ["0-7", "0-5"]
    assert (bills["gone"], bills["reached"], bills["place"]) == (0, None, later["place"])


async def test_what_is_over_later_came_later(api: Any) -> None:
    """An exchange that was told as under way before the place is there again when it is over."""
    seen = produced("orders", 1)
    async with viewing(api.app):
        watch_of(api).sink.under_way(seen)
        fanout_of(api).take(produced("orders", 2))
        place = (await listed(api, "limit=1"))["place"]
        assert (await listed(api, f"after={place}"))["rows"] == []
        fanout_of(api).take(seen)

        assert [row["correlation"] for row in (await listed(api, f"after={place}"))["rows"]] == [1]


async def test_what_is_gone_is_counted(api: Any) -> None:
    async with viewing(api.app):
        watch_of(api).ring.most = 2
        for number in range(1, 4):
            fanout_of(api).take(produced("orders", number))
        place = (await listed(api, "limit=1"))["place"]
        assert (await listed(api, f"after={place}"))["gone"] == 0
        for number in range(4, 9):
            fanout_of(api).take(produced("orders", number))
        found = await listed(api, f"after={place}")

    assert ([row["correlation"] for row in found["rows"]], found["gone"]) == ([8, 7], 3)


async def test_a_place_of_a_process_that_has_ended_is_before_all_places(api: Any) -> None:
    """As after the restart of a worker, whose numbers begin behind those of the one before: how many are gone is not
    known."""
    await kept(api, produced("orders", 1))
    stream = api.backend.stream
    found = await listed(api, f"after={stream}.0-1000000")
    assert ([row["id"] for row in found["rows"]], found["gone"]) == (["0-1"], None)


@pytest.mark.parametrize(
    "after", ["x", "0-1", "{stream}.0", "00000000.0-1", "{stream}.0-1.", "{stream}" + ".0-1" * 3000]
)
async def test_bad_places(api: Any, after: str) -> None:
    """Among them those of a kproxy that ran before."""
    refused = await api("GET", f"/api/exchanges?after={after.replace('{stream}', api.backend.stream)}")
    assert (refused.status, refused.code) == (422, "invalid_query")
    assert "expected a `place` of this kproxy" in refused.json["error"]["message"]


@pytest.mark.parametrize(
    ("query", "says"),
    [("wait=61s", "wait"), ("wait=-1s", "wait"), ("wait=soon", "wait"), ("wait=1s&count=0", "count"),
     ("wait=1s&count=1001", "count"), ("wait=1s&source=s1", "about a capture"), ("after=x&source=s1", "a capture")],
)  # fmt: skip
async def test_bad_waits(api: Any, query: str, says: str) -> None:
    """Each is a refusal at once that says what is wrong."""
    refused = await api("GET", f"/api/exchanges?{query}")
    assert (refused.status, refused.code) == (422, "invalid_query")
    assert says in refused.json["error"]["message"]


async def test_a_wait_ends_with_the_exchange_that_is_waited_for(api: Any) -> None:
    """Not with others, nor with one that is only under way."""
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(awaited, api, "filter=~t+bills&wait=30s&count=2", answers)
        with trio.fail_after(60):
            await until(lambda: watch_of(api).sink.viewers)
            fanout_of(api).take(produced("orders", 1))
            fanout_of(api).take(produced("bills", 2))
            last = produced("bills", 3)
            watch_of(api).sink.under_way(last)
            await trio.sleep(0.3)
            assert answers == []
            fanout_of(api).take(last)
            await until(lambda: answers)
    assert [row["correlation"] for row in answers[0]["rows"]] == [3, 2]
    assert (answers[0]["reached"], api.backend.listeners, watch_of(api).sink.viewers) == (True, set(), [])


async def test_what_is_kept_counts_for_a_wait(api: Any) -> None:
    """At once, however long it might have waited; but not what is before the place that it names."""
    await kept(api, *(produced("orders", number) for number in range(1, 4)))
    with trio.fail_after(60):
        found = await listed(api, "filter=~k+produce&wait=60s&count=3")
    assert (len(found["rows"]), found["reached"]) == (3, True)
    late = await listed(api, f"filter=~k+produce&wait=50ms&after={found['place']}")
    assert (late["rows"], late["reached"]) == ([], False)


async def test_a_wait_that_is_not_reached_tells_what_there_is(api: Any) -> None:
    """After its time, and no sooner; 0 is no time."""
    await kept(api, produced("orders", 1))
    began = monotonic()
    found = await listed(api, "wait=300ms&count=2")
    assert monotonic() - began >= 0.3
    assert (len(found["rows"]), found["reached"]) == (1, False)
    assert (await listed(api, "wait=0s"))["reached"] is False


async def test_so_many_wait_at_a_time(api: Any) -> None:
    """As many as may listen; they are counted until their time is over."""
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        for _ in range(MOST_LISTENERS):
            nursery.start_soon(awaited, api, "wait=60s", answers)
        with trio.fail_after(60):
            await until(lambda: len(api.backend.listeners) == MOST_LISTENERS)
            refused = await api("GET", "/api/exchanges?wait=1s")
            assert (refused.status, refused.code) == (429, "too_many_listeners")
            assert (await api("GET", "/api/exchanges")).status == 200
            fanout_of(api).take(produced("orders", 1))
            await until(lambda: len(answers) == MOST_LISTENERS)
    assert (await listed(api, "wait=1s"))["reached"] is True


async def test_who_goes_away_waits_no_longer(api: Any) -> None:
    """Its place among those who listen is free at once, and no viewer of its own is left."""
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.1"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/api/exchanges", "raw_path": b"/api/exchanges", "query_string": b"wait=60s",
        "root_path": "", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    reader = StreamReader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(api.app, scope, reader.receive, reader.send)
        with trio.fail_after(60):
            await until(lambda: watch_of(api).sink.viewers)
            assert len(api.backend.listeners) == 1
            reader.gone.set()
            await until(lambda: not api.backend.listeners)
    assert watch_of(api).sink.viewers == []


async def test_everything_is_kept_from_the_start_where_that_is_wished(
    make_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to look, no time that it costs ends it, and it does not end by itself."""
    monkeypatch.setattr("tests.admin.conftest.CONFIG", {**_config(), "view": ViewConfig(record_from_start=True)})
    api = make_api()
    watch = watch_of(api)
    assert (watch.attached, fanout_of(api).wanted) == (True, True)
    for _ in range(1000):
        watch.budget.spend(0.005)  # what would use up everybody else's
    watch.until = -1e9
    watch.tick()
    fanout_of(api).take(exchange("Metadata", 12, {"topics": []}, {}, at=monotonic()))

    assert (watch.attached, watch.budget.looking) == (True, True)
    assert [row["api"] for row in (await listed(api))["rows"]] == ["Metadata"]


def _config() -> dict[str, Any]:
    from tests.admin.conftest import CONFIG

    return CONFIG


async def test_nothing_is_kept_where_the_view_is_off(make_api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.admin.conftest.CONFIG", {**_config(), "view": ViewConfig(record_from_start=True, enabled=False)}
    )
    assert not fanout_of(make_api()).wanted


async def test_a_row_that_changes_while_it_is_told_is_told_once(api: Any) -> None:
    """What was kept as under way when a viewer came, and is over when its row is made, counts once."""
    (member,) = api.members
    seen = produced("orders", 1)
    async with viewing(api.app):
        watch_of(api).sink.under_way(seen)
        source = member.view("", 100, 0)
        await source.begin()
        fanout_of(api).take(seen)
        with trio.fail_after(60):
            part = await source.next()
        source.end()
    assert (part.matched, part.rows.count(b"0-1")) == (1, 1)


async def test_whoever_waited_with_a_token_of_before_hears_nothing(api: Any) -> None:
    """What has passed meanwhile is not for them any more."""
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await api("GET", "/api/exchanges?wait=50s&count=2", authorization="Bearer old"))

    api.backend.tokens.use(AdminTokens("old"))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await until(lambda: fanout_of(api).wanted)
            api.backend.tokens.use(AdminTokens("new"))
            for number in (1, 2):
                fanout_of(api).take(produced("orders", number))

    assert (answers[0].status, answers[0].code) == (401, "unauthorized")
