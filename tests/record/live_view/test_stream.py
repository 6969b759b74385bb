"""`GET /api/view`: rows as they pass, what was left out, and going on after a break."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from time import monotonic
from typing import Any

import pytest
import trio

from kproxy.admin import responses
from kproxy.record.exchange import Form
from kproxy.record.fanout import Fanout
from kproxy.record.live_view import config
from kproxy.record.live_view.rows import COLUMNS
from kproxy.record.observer.summary_rows import bucket_of
from tests.record.live_view.stream_reader import produced, viewing
from tests.support.exchange_factory import exchange

pytestmark = pytest.mark.trio


def fanout_of(api: Any) -> Fanout:
    found: Fanout = api.proxy.server.taps.fanout
    return found


async def test_it_says_what_it_is(api: Any) -> None:
    """First of all: the columns of rows, and what whoever looks may do."""
    async with viewing(api.app, "filter=~k+produce&rows=50") as reader:
        (hello,) = await reader.until("hello")

    assert re.fullmatch("[0-9a-f]{8}", hello.data["stream"])
    assert hello.data["filter"] == "api == Produce"
    assert {name: hello.data[name] for name in ("workers", "rows", "may_write", "records")} == {
        "workers": 1, "rows": 50, "may_write": True, "records": True,
    }  # fmt: skip
    assert tuple(hello.data["columns"]) == COLUMNS
    assert hello.data["latency_step"] == 1.05
    headers = dict(reader.sent[0]["headers"])
    assert (headers[b"content-type"], headers[b"cache-control"]) == (b"text/event-stream; charset=utf-8", b"no-store")


async def test_what_fits_the_filter_comes_as_rows(api: Any) -> None:
    """Each with its id, by which its details are asked for."""
    async with viewing(api.app, "filter=~t+^orders") as reader:
        for topic in ("bills", "orders"):
            fanout_of(api).take(produced(topic))
        (row,) = await reader.rows(1)
        details = await api("GET", f"/api/exchanges/{row['id']}")

    assert {name: row[name] for name in ("id", "api", "version", "about", "client", "outcome", "topic", "kept")} == {
        "id": "0-2", "api": "Produce", "version": 9, "about": "orders[0]", "client": "tester", "outcome": "answered",
        "topic": "orders", "kept": True,
    }  # fmt: skip
    assert (details.status, details.json["event"]["topics"][0]["topic"]) == (200, "orders")


async def test_nobody_looks_when_nobody_is_there(api: Any) -> None:
    """What passes is kept for a minute more, so the sink stays; at the end of it nothing does."""
    async with viewing(api.app) as reader:
        assert len(fanout_of(api).samplers) == 1
    assert reader.sent
    (member,) = api.members
    watch = member.kept_exchanges.watch
    assert (watch.sink.viewers, len(fanout_of(api).samplers)) == ([], 1)

    watch.until = monotonic()
    watch.tick()
    assert (fanout_of(api).sinks, fanout_of(api).wanted) == ((), False)


async def test_stream_is_charged_to_the_view_budget(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that writes events and the one that makes rows pay for each wake-up. Only whole wake-ups are counted, so
    the machine's speed does not matter."""
    monkeypatch.setattr(config, "WAKE_UP", 1000.0)
    (member,) = api.members
    charges: list[float] = []
    monkeypatch.setattr(member.kept_exchanges.watch.budget, "spend", charges.append)
    async with viewing(api.app) as reader:
        await reader.until("hello")
        for number in range(1, 6):
            fanout_of(api).take(produced("orders", number))
            await reader.rows(number)

    wake_ups = sum(charge >= 1000.0 for charge in charges)
    assert wake_ups >= 10  # five parts made, five written


async def test_who_comes_back_goes_on_where_it_was(api: Any) -> None:
    """By the id of the event that it saw last: nothing twice, nothing missing, and no word of a gap."""
    async with viewing(api.app) as reader:
        fanout_of(api).take(produced("orders", 1))
        await reader.rows(1)
        last = (await reader.until("rows"))[-1].place
    for number in (2, 3):
        fanout_of(api).take(produced("orders", number))
    async with viewing(api.app, last=last) as reader:
        fanout_of(api).take(produced("orders", 4))
        rows = await reader.rows(3)

    assert [row["id"] for row in rows] == ["0-2", "0-3", "0-4"]
    assert [one.name for one in reader.events if one.name == "gap"] == []


async def test_what_is_gone_meanwhile_is_a_gap(api: Any) -> None:
    """With the number of exchanges that went; then comes what is left."""
    async with viewing(api.app) as reader:
        fanout_of(api).take(produced("orders", 1))
        await reader.rows(1)
        last = (await reader.until("rows"))[-1].place
    (member,) = api.members
    member.kept_exchanges.watch.ring.most = 2
    for number in range(2, 8):
        fanout_of(api).take(produced("orders", number))
    async with viewing(api.app, last=last) as reader:
        rows = await reader.rows(2)
        (gap,) = await reader.until("gap")

    assert gap.data == {"why": "too long away", "missing": 4}
    assert [row["id"] for row in rows] == ["0-6", "0-7"]
    assert [one.name for one in reader.events].index("gap") < [one.name for one in reader.events].index("rows")


async def test_what_goes_while_the_kept_are_told_is_a_gap(api: Any) -> None:
    """Who comes back and does not read keeps nothing for itself: the ring lets go of it, and it is told so."""
    async with viewing(api.app) as reader:
        fanout_of(api).take(produced("orders", 1))
        await reader.rows(1)
        last = (await reader.until("rows"))[-1].place
    for number in range(2, 6):
        fanout_of(api).take(produced("orders", number))
    (member,) = api.members
    watch = member.kept_exchanges.watch
    source = member.view("", 400, int(last.rpartition("-")[2]))
    await source.begin()
    watch.ring.most = 2
    fanout_of(api).take(produced("orders", 6))
    part = await source.next()
    source.end()

    assert part.missing == 3
    assert [row[0] for row in json.loads(part.rows)] == ["0-5", "0-6"]


@pytest.mark.parametrize("last", ["00000000.0-1", "nonsense", "0-1", "'; drop", "9" * 9000])
async def test_places_of_another_stream_are_a_gap(api: Any, last: str) -> None:
    """Nobody knows how much is missing; what comes from now on is told."""
    async with viewing(api.app, last=last) as reader:
        (gap,) = await reader.until("gap")
        fanout_of(api).take(produced("orders"))
        await reader.rows(1)

    assert gap.data == {"why": "kproxy has begun anew", "missing": None}


async def test_a_place_of_an_earlier_worker_is_a_gap(api: Any) -> None:
    """All that its successor has is told."""
    async with viewing(api.app) as reader:
        (hello,) = await reader.until("hello")
        fanout_of(api).take(produced("orders"))
        await reader.rows(1)
    async with viewing(api.app, last=f"{hello.data['stream']}.0-99999") as reader:
        (row,) = await reader.rows(1)
        (gap,) = await reader.until("gap")

    assert (row["id"], gap.data) == ("0-1", {"why": "worker 0 has begun anew", "missing": None})


async def test_who_does_not_read_is_told_how_much_it_missed(api: Any) -> None:
    """Traffic does not wait; at most two seconds' rows do."""
    async with viewing(api.app, "rows=4") as reader:
        (member,) = api.members
        (viewer,) = member.kept_exchanges.watch.sink.viewers
        reader.reads = trio.Event()
        viewer.bucket.take = lambda now, important: True
        for number in range(1, 31):
            fanout_of(api).take(produced("orders", number))
        reader.reads.set()
        rows = await reader.rows(8)
        left = await reader.until("left")

    assert [row["id"] for row in rows[:8]] == [f"0-{number}" for number in range(1, 9)]
    assert sum(one.data["too_slow"] for one in left) == 22


async def test_more_rows_than_may_come_are_counted(api: Any) -> None:
    """Errors and what rules did have a share of their own."""
    async with viewing(api.app, "rows=8") as reader:
        for number in range(1, 21):
            fanout_of(api).take(produced("orders", number))
        failed = exchange("Heartbeat", 4, {"group_id": "g"}, {"error_code": 27}, at=monotonic())
        fanout_of(api).take(failed)
        rows = await reader.rows(7)
        (left, *_) = await reader.until("left")

    assert rows[-1]["errors"] == ["REBALANCE_IN_PROGRESS"]
    assert (len(rows), left.data["too_many"]) == (7, 14)


async def test_what_the_filter_cannot_judge_is_counted(api: Any) -> None:
    """With the reason."""
    async with viewing(api.app, "filter=~key+x") as reader:
        seen = produced("orders")
        seen.request.data = seen.request.data[:12]
        fanout_of(api).take(seen)
        (left,) = await reader.until("left")

    assert (left.data["unknown"], left.data["why"][:27]) == (1, "the request cannot be read:")


async def test_each_second_it_says_what_passed(
    api: Any, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that did by what the metrics count; what was matched; the counters of rules."""
    monkeypatch.setattr("kproxy.admin.backend.FRESH", -1.0)
    async with viewing(api.app, "filter=~t+orders") as reader:
        tally = api.proxy.tallies.of(0, 9, "Produce", "none")
        tally.requests += 5
        tally.latency.add(0.003, 5)
        for topic in ("bills", "orders"):
            fanout_of(api).take(produced(topic))
        first, *_ = await reader.until("tick")

    data = first.data
    assert (data["passed"], data["looked_at"], data["matched"], data["connections"]) == (5, 2, 1, 0)
    requests, errors, received, sent, latency = data["apis"]["Produce"]
    assert (requests, errors, [count for _, count in latency["buckets"]]) == (5, 0, [2])
    assert latency["broker_ms"] > 0
    assert received > 0 and sent > 0
    assert data["rules"] == {"base": [0, 0, 0, 0]}
    assert "audit" not in data


async def test_latencies_of_a_tick_are_those_of_the_rows(
    api: Any, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the client sees them: with the time of rules, which the brokers' histogram in the metrics lacks."""
    monkeypatch.setattr("kproxy.admin.backend.FRESH", -1.0)
    async with viewing(api.app) as reader:
        seen = produced("orders")
        seen.add_wait(0.5, response=False, by_rule=True)
        seen.response.last += 0.5
        fanout_of(api).take(seen)
        (row,) = await reader.rows(1)
        tick = next(one for one in await reader.until("tick") if "Produce" in one.data["apis"])

    latency = tick.data["apis"]["Produce"][4]
    assert latency["buckets"] == [[bucket_of(row["latency"]), 1]]
    assert latency["rule_ms"] == pytest.approx(row["rule_ms"], abs=0.01) == pytest.approx(500, abs=0.01)
    assert latency["broker_ms"] == pytest.approx(row["broker_ms"], abs=0.01)
    assert latency["rule_ms"] + latency["broker_ms"] + latency["kproxy_ms"] == pytest.approx(row["latency"], abs=0.01)


async def test_it_tells_that_rules_have_changed(
    api: Any, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever shows them reads them again."""
    monkeypatch.setattr("kproxy.admin.backend.FRESH", -1.0)
    async with viewing(api.app) as reader:
        (before,) = await reader.until("rules")
        assert (await api("POST", "/api/rules/base/disable")).status == 200
        _, after = await reader.until("rules", 2)

    assert before.data["version"] != after.data["version"]


async def test_what_rules_hold_is_told(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is by those who hold it, and nobody asks any more when the viewer has gone."""
    told = {"added": [{"id": "1-1"}], "changed": [], "gone": []}
    ended = []

    async def changes(backend: Any) -> AsyncGenerator[bytes, None]:
        try:
            yield json.dumps(told).encode()
            await trio.sleep_forever()
        finally:
            ended.append(backend)

    monkeypatch.setattr("kproxy.admin.view.held_changes", changes)
    async with viewing(api.app) as reader:
        (held,) = await reader.until("held")

    assert (held.data, ended) == (told, [api.backend])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("filter=topc", 'unknown field "topc", did you mean "topic"?'),
        ("rows=0", "rows: input should be greater than or equal to 1"),
        ("rows=5000", "rows: input should be less than or equal to 2000"),
        ("row=5", 'unknown parameter "row"'),
    ],
)
async def test_bad_queries(api: Any, query: str, said: str) -> None:
    """422, with what is wrong."""
    refused = await api("GET", f"/api/view?{query}")

    assert (refused.status, refused.code) == (422, "invalid_query")
    assert said in refused.json["error"]["message"]


async def test_viewers_and_tails_are_so_many_together(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked about every exchange."""
    monkeypatch.setattr(responses, "MOST_LISTENERS", 1)
    async with viewing(api.app):
        for path in ("/api/view", "/api/tail"):
            refused = await api("GET", path)
            assert (refused.status, refused.code) == (429, "too_many_listeners")


async def test_it_is_guarded(make_api: Callable[..., Any]) -> None:
    """As everything that tells something."""
    for path in ("/api/view", "/api/exchanges", "/api/exchanges/0-1", "/api/exchanges/0-1/frame"):
        refused = await make_api(token="secret")("GET", path)
        assert (refused.status, refused.code) == (401, "unauthorized"), path


async def test_who_asks_only_for_the_head_gets_no_stream(api: Any) -> None:
    """It would never end."""
    with trio.fail_after(60):
        answer = await api("HEAD", "/api/view")

    assert (answer.status, answer.headers["content-type"], answer.body) == (
        200,
        "text/event-stream; charset=utf-8",
        b"",
    )
    assert not fanout_of(api).wanted


async def test_hostile_names_are_only_text(api: Any) -> None:
    """Line ends and markup stay within the JSON of one event."""
    topic = "x\n\nevent: hello\ndata: {}\n\n<script>"
    async with viewing(api.app) as reader:
        fanout_of(api).take(produced(topic))
        (row,) = await reader.rows(1)

    assert row["topic"] == topic
    assert len([one for one in reader.events if one.name == "hello"]) == 1


async def test_what_cannot_be_read_is_shown_as_far_as_it_can(api: Any) -> None:
    """A frame whose body is broken has a row, and details that say where."""
    async with viewing(api.app) as reader:
        seen = exchange("Heartbeat", 4, {"group_id": "g"}, {}, at=monotonic(), form=Form.WHOLE)
        assert seen.request is not None
        seen.request.data = seen.request.data[:-4]
        fanout_of(api).take(seen)
        (row,) = await reader.rows(1)
        details = (await api("GET", f"/api/exchanges/{row['id']}")).json

    assert (row["api"], row["outcome"]) == ("Heartbeat", "answered")
    assert details["request"]["client"]["steps"][-1][3] == "group_id"
    assert "generation_id" in details["request"]["client"]["decode_error"]
