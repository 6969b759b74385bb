"""The cost of a request grows linearly with its size: not with its square, nor with the product of rules and names, nor
with its session. `make test` compares executed Python lines, `make stretches` CPU times, each the least of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any

import pytest

from kproxy.protocol import decode_request
from kproxy.record.exchange import Depth
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.rules.entity import Entity, entities
from kproxy.rules.kinds.base.fields import elements_of
from kproxy.tools.rehearse.dialogue import Dialogue, request, response
from tests.record.audit.exchanges import FakeWho
from tests.support.line_count import LineCount

PRODUCE, FETCH, METADATA, DELETE_TOPICS = 0, 1, 3, 20
DENY = "  - {name: deny, kind: deny, match: {topic: 'secret*'}}\n"


def lines(make: Callable[[], Callable[[], object]]) -> float:
    """Return the Python lines that the result of `make` executes."""
    make()()  # generates code
    run = make()
    with LineCount() as count:
        run()
    return float(count.total)


def seconds(make: Callable[[], Callable[[], object]]) -> float:
    """Return the CPU seconds that the result of `make` takes, the least of three runs."""
    spent = []
    for _ in range(3):
        run = make()
        began = thread_time()
        run()
        spent.append(thread_time() - began)
    return min(spent)


Cost = Callable[[Callable[[], Callable[[], object]]], float]
IN_LINES_AND_SECONDS = pytest.mark.parametrize("cost", [lines, pytest.param(seconds, marks=pytest.mark.measured)])


def grows_linearly(make: Callable[[int], Callable[[], object]], size: int, cost: Cost) -> None:
    """Fail if four times as much costs six times as many lines or eight times as many seconds (as a square: 16 times).

    Seconds are measured up to three times, since other programs slow the larger one down more.
    """
    if cost is lines:
        size //= 2
        assert lines(lambda: make(4 * size)) < 6 * lines(lambda: make(size))
        return
    seconds(lambda: make(size // 10))
    found: list[float] = []
    while len(found) < 3 and min(found, default=8.0) >= 8:
        found.append(seconds(lambda: make(4 * size)) / seconds(lambda: make(size)))
    assert min(found) < 8, found


def topics_of(parts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for topic, number in parts:
        found.setdefault(topic, []).append({"partition": number})
    return [{"topic": topic, "partitions": partitions} for topic, partitions in found.items()]


@IN_LINES_AND_SECONDS
@pytest.mark.parametrize(
    "rules", [DENY, "  - {name: e, kind: error, match: {api: Metadata, topic: 'secret*'}, error: 3}\n"]
)
def test_metadata_with_denied_names_takes_linear_work(rules: str, cost: Cost) -> None:
    """Half of the names are taken out of the request, and put into the response."""

    def exchange(count: int) -> Callable[[], object]:
        talk = Dialogue("rules:\n" + rules)
        names = [f"{'secret' if number % 2 else 'open'}.{number}" for number in range(count)]
        asked = request(METADATA, 9, 1, topics=[{"name": name} for name in names])
        said = response(METADATA, 9, 1, topics=[{"name": name, "partitions": []} for name in names[::2]])
        return lambda: talk.client(asked).broker(said)

    grows_linearly(exchange, 1000, cost)


@IN_LINES_AND_SECONDS
def test_metadata_with_a_rule_per_name_takes_linear_work(cost: Cost) -> None:

    def ask(count: int) -> Callable[[], object]:
        rule = "  - {{name: r{0}, kind: error, match: {{api: Metadata, topic: t{0}}}, error: 3}}\n"
        talk = Dialogue("rules:\n" + "".join(rule.format(number) for number in range(count)))
        asked = request(METADATA, 9, 1, topics=[{"name": f"t{number}"} for number in (*range(count), "x")])
        return lambda: talk.client(asked)

    grows_linearly(ask, 200, cost)


WATCHED = {
    "quota": "{name: r, kind: quota, requests: 100000000/s}",
    "observed": "{name: r, kind: delay, delay: 1s, mode: dry_run}",
    "its turn": "{name: r, kind: delay, delay: 1ms, mode: dry_run, when: {every: 2}}",
    "answered": "{name: r, kind: error, error: 29, match: {api: Produce}}",
}


@IN_LINES_AND_SECONDS
@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.parametrize("rule", WATCHED)
def test_observed_pipeline_takes_linear_work(rule: str, acks: int, same_id: bool, cost: Cost) -> None:
    """The decisions of rules are reported for each request, which is looked up among all requests in flight."""

    def read(count: int) -> Callable[[], object]:
        talk, taken = Dialogue(f"rules: [{WATCHED[rule]}]"), list[Any]()
        observer = ConnectionObserver(FakeWho(), lambda key, version: Depth.ROWS, taken.append)
        observer.silent = []
        talk.session.observer = observer
        asked = [
            request(PRODUCE, 9, 1 if same_id else number, None, acks=acks, topic_data=[]) for number in range(count)
        ]
        data = b"".join(asked)
        buf = bytearray(data) + bytes(4096)

        def run() -> None:
            observer.from_client(buf, len(data), 1.0)
            talk.session.from_client(memoryview(buf), len(data), 1.0)
            observer.report_silent()

        return run

    grows_linearly(read, 1000 if cost is lines else 2000, cost)


@IN_LINES_AND_SECONDS
def test_elements_of_many_entities_take_linear_work(cost: Cost) -> None:
    """`set` changes the selected elements, each found by its name."""

    def find(count: int) -> Callable[[], object]:
        parts = [(f"t{number % 30}", number) for number in range(count)]
        message = decode_request(request(FETCH, 11, 1, session_epoch=-1, topics=topics_of(parts))[4:])
        found = entities(message)
        return lambda: elements_of(message, found)

    grows_linearly(find, 500, cost)


@pytest.mark.parametrize("by", ["topic", "partition", "topic_id"])
def test_elements_are_found_by_whatever_tells_them_apart(by: str) -> None:
    """Also where an entity lacks what others have."""
    message = decode_request(
        request(FETCH, 11, 1, session_epoch=-1, topics=topics_of([("a", 0), ("a", 1), ("b", 1)]))[4:]
    )
    wanted = {"topic": Entity(topic="a"), "partition": Entity(partition=1), "topic_id": Entity(topic="b", partition=1)}
    lets = elements_of(message, [wanted[by]])
    found = [
        (topic["topic"], part["partition"])
        for index, topic in enumerate(message.body["topics"])
        for place, part in enumerate(topic["partitions"])
        if lets(message.body["topics"], index) and lets(topic["partitions"], place)
    ]
    assert found == {
        "topic": [("a", 0), ("a", 1)], "partition": [("a", 1), ("b", 1)], "topic_id": [("b", 1)],
    }[by]  # fmt: skip


RULES = [
    DENY,
    "  - {name: few, kind: error, match: {api: Fetch, topic: t1}, error: 6}\n",
    "  - {name: some, kind: error, match: {api: Fetch, topic: t1}, error: 6, when: {nth: 3}, at: response}\n",
    "  - {name: answered, kind: error, match: {api: Fetch, topic: t1, error: 3}, error: 6}\n",
    "  - {name: but, kind: deny, match: {api: Fetch}, not: {topic: 't*'}}\n",
    "  - {name: watched, kind: deny, match: {topic: 't*'}, mode: dry_run}\n",
]


@IN_LINES_AND_SECONDS
@pytest.mark.parametrize("rules", RULES)
def test_request_cost_is_independent_of_its_session(rules: str, cost: Cost) -> None:
    """Twenty requests that list one partition or none cost the same in a session of any size."""

    def go_on(count: int) -> Callable[[], object]:
        talk = Dialogue("rules:\n" + rules)
        parts = [(f"t{number // 20}", number % 20) for number in range(count)]
        talk.client(request(FETCH, 11, 1, session_epoch=0, topics=topics_of(parts))).broker(
            response(FETCH, 11, 1, session_id=5)
        )
        asked = [
            request(FETCH, 11, epoch, session_id=5, session_epoch=epoch, topics=topics_of(parts[: epoch % 2]))
            for epoch in range(1, 21)
        ]
        said = [response(FETCH, 11, epoch, session_id=5) for epoch in range(1, 21)]

        def run() -> None:
            for one, answer in zip(asked, said, strict=True):
                talk.client(one).broker(answer)
            assert talk.shared.counters.events.get("fetch_session_unknown", 0) == 0

        return run

    assert cost(lambda: go_on(8000)) < (1.2 if cost is lines else 2.5) * cost(lambda: go_on(500))


def test_a_session_of_which_rules_match_much_is_none() -> None:
    """A client that has more than a thousand such partitions lists them with each request, so that what it costs is
    said in it."""
    talk = Dialogue(
        "rules:\n  - {name: all, kind: error, match: {api: Fetch, topic: 't*'}, error: 6, when: {nth: 2}}\n"
    )
    parts = [(f"t{number}", 0) for number in range(1001)]
    talk.client(request(FETCH, 11, 1, session_epoch=0, topics=topics_of(parts)))
    assert talk.requests()[0].body["session_epoch"] == -1
    assert len(talk.requests()[0].body["topics"]) == 1001

    talk.broker(response(FETCH, 11, 1)).client(request(FETCH, 11, 2, session_epoch=0, topics=topics_of(parts[:1000])))
    assert talk.requests()[1].body["session_epoch"] == 0
    talk.broker(response(FETCH, 11, 2, session_id=5))
    talk.client(request(FETCH, 11, 3, session_id=5, session_epoch=1, topics=topics_of(parts[1000:])))
    assert [one.body["error_code"] for one in talk.responses(*[(FETCH, 11)] * 3)] == [0, 0, 70]
