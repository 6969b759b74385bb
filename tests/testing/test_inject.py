"""Rules that a test puts in, and what it is told of them and of what went through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from kproxy.base.errors import InternalError, NoSuchRule, RuleInUse
from kproxy.protocol import Message
from kproxy.rules.exchange import Fail
from kproxy.testing.inject import Kproxy, KproxyWarning
from kproxy.testing.rule_arguments import Misuse

Produce = Callable[..., None]
WRITES = {"api": "Produce", "topic": "orders"}


def test_the_third_write_fails_and_is_tried_again(kproxy: Kproxy, produce: Produce) -> None:
    """The client sees an error once, and stores each of its records all the same."""
    rule = kproxy.inject("error", match=WRITES, when={"nth": 3}, error="NOT_LEADER_OR_FOLLOWER")

    produce(kproxy.bootstrap_servers, "orders", b"1", b"2", b"3", b"4")

    kproxy.assert_applied()
    assert (rule.matched, rule.fired, rule.hits, rule.applied) == (5, 1, 1, 1)
    writes = kproxy.exchanges(**WRITES)
    assert [write.errors for write in writes] == [[], [], ["NOT_LEADER_OR_FOLLOWER"], [], []]
    assert [record.value for write in writes for record in write.records] == [b"1", b"2", b"3", b"3", b"4"]


def test_a_rule_ends_with_its_block(kproxy: Kproxy, produce: Produce) -> None:
    """Its counters stay as they were; a second removal does nothing."""
    with kproxy.inject("delay", match=WRITES, delay="1ms") as rule:
        assert kproxy.rules == [rule]
        produce(kproxy.bootstrap_servers, "orders", b"1")
    produce(kproxy.bootstrap_servers, "orders", b"2")
    rule.remove()

    assert (rule.applied, kproxy.rules) == (1, [])
    assert rule.wait(hits=1) is rule
    kproxy.assert_applied(rule)


def test_a_held_request_waits_until_it_is_let_go(kproxy: Kproxy) -> None:
    """A barrier: the test knows that the request has come, and that nobody has answered it."""
    hold, acknowledged = kproxy.hold(match={"api": "Produce"}), list[object]()
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    producer.produce("orders", b"1", on_delivery=lambda error, message: acknowledged.append(error))

    hold.wait()
    assert (acknowledged, hold.counters) == ([], (1, 1, 0))
    assert [one.answered for one in kproxy.exchanges(api="Produce")] == [None]
    assert hold.resume() == 1

    assert producer.flush(20) == 0
    assert (acknowledged, hold.applied) == ([None], 1)


def test_what_a_removed_rule_holds_goes_on(kproxy: Kproxy) -> None:
    """The end of the block lets go."""
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0})
    with kproxy.hold(match={"api": "Produce"}) as hold:
        producer.produce("orders", b"1")
        hold.wait()

    assert producer.flush(20) == 0


def test_a_function_of_the_test_decides(kproxy: Kproxy, produce: Produce) -> None:
    """It is called in the proxy's thread, and may ask there what went through, but not wait."""
    said: list[object] = []

    def refuse(exchange: object, message: Message) -> Fail:
        said.append((threading.current_thread().name, message.api.name, kproxy.exchanges(api="Fetch")))
        with pytest.raises(InternalError, match="must not wait"):
            kproxy.wait("refused once")
        return Fail(6)

    kproxy.inject("python", name="refused once", call=refuse, match=WRITES, when={"once": True})
    produce(kproxy.bootstrap_servers, "orders", b"1")

    assert said == [("kproxy", "Produce", [])]
    kproxy.assert_applied("refused once")


def test_a_function_that_fails_is_told_of(kproxy: Kproxy, produce: Produce) -> None:
    """With its place; the test is warned at its end, too."""

    def broken(exchange: object, message: object) -> None:
        raise KeyError("nothing of the kind")

    rule = kproxy.inject("python", call=broken, match=WRITES)
    produce(kproxy.bootstrap_servers, "orders", b"1")

    assert "KeyError: 'nothing of the kind'" in rule.problems[0] and "test_inject.py:" in rule.problems[0]
    with pytest.raises(AssertionError, match="nothing of the kind"):
        kproxy.assert_applied()
    with pytest.warns(KproxyWarning, match="nothing of the kind"):
        kproxy.clear()


def test_a_rule_that_binds_connections(kproxy: Kproxy, produce: Produce) -> None:
    """It acts on clients that connect from then on, has no counters, and is left out of `assert_applied()`."""
    renamed = kproxy.inject("rename_topic", topics={"orders": "prod.orders"})
    counted = kproxy.inject("delay", delay=0, match=WRITES)
    produce(kproxy.bootstrap_servers, "orders", b"1")

    kproxy.assert_applied()
    assert counted.applied == 1
    with pytest.raises(NoSuchRule, match="rename_topic do not count"):
        _ = renamed.applied
    with pytest.raises(NoSuchRule, match="do not count"):
        kproxy.assert_applied(renamed)


def test_who_sets_up_and_judges_meets_no_fault(kproxy: Kproxy, produce: Produce, tmp_path: Path) -> None:
    """Through the listener of its own: names are those of the test, and no other rule acts, counts or keeps anybody
    out, whenever it was put in; nothing of it is among the exchanges."""
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{name: lost, kind: disconnect, match: {api: Produce}}]")
    kproxy.load(file)
    kproxy.inject("rename_topic", topics={"orders": "prod.orders"})
    rules = [
        kproxy.inject("refuse"),
        kproxy.inject("deny", match={"topic": "orders"}),
        kproxy.inject("error", match={"api": "Metadata"}, error="UNKNOWN_TOPIC_OR_PARTITION"),
        kproxy.inject("bandwidth", rate="1B/s"),
    ]
    kproxy.inject("limit_versions", hide=["Produce"])
    kproxy.inject("allow_from", networks=["10.0.0.0/8"], existing="close")

    produce(kproxy.own_bootstrap_servers, "orders", b"1", b"2")
    late = kproxy.inject("disconnect", match={"api": "Fetch"})
    settings = {"group.id": "judge", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": kproxy.own_bootstrap_servers, **settings})
    consumer.subscribe(["orders"])
    try:
        values = sorted(message.value() or b"" for message in consumer.consume(2, 20.0))
    finally:
        consumer.close()

    assert values == [b"1", b"2"]
    assert kproxy.exchanges() == []
    assert [rule.matched for rule in (*rules, late, kproxy.rule("lost"))] == [0] * 6
    names = AdminClient({"bootstrap.servers": kproxy.upstream, "log_level": 0}).list_topics(timeout=60).topics
    assert "prod.orders" in names and "orders" not in names


def test_rule_files_are_loaded(kproxy: Kproxy, produce: Produce, tmp_path: Path) -> None:
    """Their rules are found by name, and are gone after the test."""
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{name: slow writes, kind: delay, delay: 1ms, match: {api: Produce}}]")
    kproxy.load(file)
    produce(kproxy.bootstrap_servers, "orders", b"1")

    kproxy.assert_applied("slow writes")
    assert kproxy.rule("slow writes").wait(count="applied").matched == 1
    kproxy.clear()
    with pytest.raises(NoSuchRule):
        kproxy.rule("slow writes")


# ---- what is said when something is wrong


def test_a_rule_that_did_nothing(kproxy: Kproxy, produce: Produce) -> None:
    """The message says how far it came, which selector was never met, and what was there instead."""
    kproxy.inject("error", match={"api": "Produce", "topic": "ordres"}, error=6)
    produce(kproxy.bootstrap_servers, "orders", b"1")

    with pytest.raises(AssertionError) as raised:
        kproxy.assert_applied()

    first, call, counters, api, topic, seen = str(raised.value).splitlines()
    assert first == 'the rule "error 1" was not applied'
    assert call == "  inject('error', match={'api': 'Produce', 'topic': 'ordres'}, error=6)"
    assert counters == "  matched 0, fired 0, applied 0"
    assert api.startswith("  api='Produce' alone matches 1 of ")
    assert topic.startswith("  topic='ordres' alone matches none of ")
    assert "Produce 10 (orders)" in seen


def test_a_trigger_that_let_nothing_through(kproxy: Kproxy, produce: Produce) -> None:
    """Matched and not fired is another story than not matched."""
    rule = kproxy.inject("error", match=WRITES, error=6, when={"nth": 9})
    produce(kproxy.bootstrap_servers, "orders", b"1")

    with pytest.raises(AssertionError, match=r"matched 1, fired 0, applied 0\n  its trigger .* when=\{'nth': 9\}"):
        rule.wait(timeout=0)


def test_nothing_went_through(kproxy: Kproxy) -> None:
    """A client that was given another address."""
    kproxy.inject("delay", delay=1)

    with pytest.raises(AssertionError, match=f"do the clients connect to {kproxy.bootstrap_servers}"):
        kproxy.assert_applied()


def test_arguments_that_are_no_rule(kproxy: Kproxy) -> None:
    """All mistakes at once, each with its argument; nothing is in force then."""
    with pytest.raises(Misuse) as raised:
        kproxy.inject("error", match={"topc": "a"}, error="NOT_LEADER", when={"nth": 0})

    told = str(raised.value).splitlines()
    assert told[0].startswith('inject(\'error\'): match.topc: unknown selector "topc", did you mean "topic"?')
    assert told[1] == 'inject(\'error\'): error: unknown error "NOT_LEADER", did you mean "NOT_LEADER_OR_FOLLOWER"?'
    assert told[2] == "inject('error'): when.nth: expected at least 1, got 0"
    assert kproxy.rules == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda kproxy: kproxy.inject("erorr"), 'unknown kind "erorr", did you mean "error"'),
        (lambda kproxy: kproxy.inject("delay", delay=object()), "no rule has"),
        (lambda kproxy: kproxy.inject("delay", delay=1, ttl=0), "more than 0 s"),
        (lambda kproxy: kproxy.exchanges(topc="a"), 'exchanges: topc: unknown selector "topc", did you mean "topic"'),
        (lambda kproxy: kproxy.assert_applied(), "expected an injected rule that counts, got none"),
    ],
)
def test_other_misuse(kproxy: Kproxy, wrong: Callable[[Kproxy], object], message: str) -> None:
    """The message names what was found and what is allowed."""
    with pytest.raises(ValueError, match=message):
        wrong(kproxy)


def test_names_are_unique(kproxy: Kproxy) -> None:
    """Made up ones are numbered, a chosen one is free again once its rule is gone."""
    first, second = kproxy.inject("delay", delay=0), kproxy.inject("delay", delay=0)
    assert (first.name, second.name) == ("delay 1", "delay 2")

    with pytest.raises(RuleInUse, match="delay 1"):
        kproxy.inject("delay", delay=0, name="delay 1")
    first.remove()
    assert kproxy.inject("delay", delay=0, name="delay 1").matched == 0


def test_a_rule_of_a_test_has_a_ttl(kproxy: Kproxy) -> None:
    """Nothing that a test forgets lasts."""
    rule = kproxy.inject("delay", delay=0)

    kept = kproxy.engine.call(lambda: kproxy.engine.store[rule.name])

    assert kept.origin == "test"
    assert kept.until == kept.since + 3600
