"""`kproxy.verify()` and `kproxy.findings()`: what a test's own tape proves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kproxy.testing.inject import Kproxy
from kproxy.testing.rule_arguments import Misuse
from kproxy.testing.verification import TapeReader

from .conftest import QUICK

pytestmark = pytest.mark.process

Suite = Callable[..., Any]


def write(kproxy: Kproxy, count: int = 4, **settings: Any) -> None:
    """Write records to `orders` from a client without idempotence, each in a batch of its own."""
    producer = Producer({"bootstrap.servers": kproxy.bootstrap_servers, "client.id": "writer", **QUICK, **settings})
    for number in range(count):
        producer.produce("orders", b"order %d" % number, partition=0)
        assert producer.flush(20) == 0, "not acknowledged"


def read(kproxy: Kproxy, bootstrap: str, end: int) -> None:
    """Read all of partition 0 of `orders`, whatever of it comes, and commit."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "billing", "client.id": "reader", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "fetch.wait.max.ms": 50, "log_level": 0,
    })  # fmt: skip
    consumer.subscribe(["orders"])
    reached = 0
    while reached < end:
        message = consumer.poll(10)
        assert message is not None, f"only up to {reached}"
        if message.error() is None and message.partition() == 0:
            reached = (message.offset() or 0) + 1
    consumer.commit(asynchronous=False)
    consumer.close()


def test_what_is_right_is_clean(kproxy: Kproxy) -> None:
    """Writes, reads and commits without a fault; all of it counts, and both sides were looked at."""
    write(kproxy)
    read(kproxy, kproxy.bootstrap_servers, 4)

    kproxy.verify(fail_on="suspect")
    assert kproxy.findings(level="suspect") == []


def test_an_answer_that_is_lost(kproxy: Kproxy) -> None:
    """A record is stored twice: a suspect finding with the rule's name. The brokers' view is clean."""
    rule = kproxy.inject("disconnect", match={"api": "Produce"}, when={"nth": 2}, at="response", name="lost answer")
    write(kproxy)
    read(kproxy, kproxy.bootstrap_servers, 5)
    assert rule.applied == 1

    (finding,) = kproxy.findings()
    assert (finding.check, finding.level, finding.view) == ("duplicate", "suspect", "clients")
    assert finding.rules == ("lost answer",)
    kproxy.verify()
    with pytest.raises(AssertionError) as failed:
        kproxy.verify(fail_on="suspect")
    text = str(failed.value)
    reason = "exit code 1: 1 suspect finding of duplicate (--fail-on suspect"
    assert reason in " ".join(text.split())
    with pytest.raises(AssertionError, match="SUSPECT  duplicate"):
        kproxy.verify(fail_on=["proved", "duplicate=suspect"])
    assert text.startswith("the exchanges of this test: ")
    assert "\nSUSPECT  duplicate · orders[0]" in text
    assert "writer → node " in text and '[no answer]    rule "lost answer"\n' in text
    assert "Brokers' view: clean. " in text
    kproxy.verify(without=["duplicate"], fail_on="suspect")
    kproxy.verify(view="brokers", fail_on="suspect")
    assert kproxy.findings(only="lost-write") == []


def test_records_that_do_not_arrive(kproxy: Kproxy) -> None:
    """Of what a rule takes out of an answer the brokers' side knows nothing."""
    write(kproxy)
    dropped = kproxy.inject("drop_records", match={"topic": "orders"}, at="fetch", offsets=1)
    read(kproxy, kproxy.bootstrap_servers, 4)
    assert dropped.applied

    found = kproxy.findings()
    assert {one.view for one in found} == {"clients"}
    assert {"lost-write", "thinned-batch", "inconsistent-offset"} & {one.check for one in found}
    assert kproxy.findings(view="brokers") == []


def tape_of(kproxy: Kproxy) -> TapeReader:
    engine = kproxy.engine
    return engine.call(lambda: TapeReader(engine.tape, engine.topics))


def test_both_sides_are_on_the_tape(kproxy: Kproxy) -> None:
    """What is the same at the broker is there once; of what a rule has changed or answered, both or one."""
    kproxy.inject("rename_topic", topics={"orders": "prod.orders"})
    kproxy.inject("error", match={"api": "Produce"}, when={"nth": 2}, error="NOT_LEADER_OR_FOLLOWER", name="refused")
    write(kproxy)
    pairs = list(tape_of(kproxy).pairs())

    writes = [pair for pair in pairs if pair.front is not None and pair.front.api == "Produce"]
    assert len(writes) == 5
    assert [pair.behind is None for pair in writes] == [False, True, False, False, False]
    assert [pair.at_broker is None for pair in writes] == [False, True, False, False, False]
    assert writes[1].front is not None and writes[1].front.rules == ["refused"]
    for _, behind in (pair for pair in writes if pair.behind is not None):
        assert behind is not None and behind.request is not None and behind.answer is not None
        assert b"prod.orders" in behind.request.data and b"prod.orders" in behind.answer.data
    same = {pair.front.api for pair in pairs if pair.front is not None and pair.behind is None}
    assert "ApiVersions" in same
    assert "Metadata" not in same


def test_what_passes_beside_the_tape_takes_its_completeness(kproxy: Kproxy) -> None:
    """Of what is done at the test's own address, or was before, nothing is there: absence proves nothing then."""
    assert not tape_of(kproxy).began_before
    write(kproxy)
    read(kproxy, kproxy.own_bootstrap_servers, 4)
    assert tape_of(kproxy).began_before
    kproxy.verify()


def test_mistakes_in_arguments(kproxy: Kproxy) -> None:
    """Are told with what is allowed."""
    for arguments, message in (
        ({"only": ["lost-writes"]}, "only: expected a check that `kproxy verify --list` prints, got 'lost-writes'"),
        ({"view": "mine"}, "view: expected one of clients, brokers, both, got 'mine'"),
        ({"level": "sure"}, "level: expected one of proved, suspect, note, got 'sure'"),
        ({"fail_on": "sure"}, "fail_on: expected a level or CHECK=LEVEL, with a level of proved, suspect, note, got"),
        ({"fail_on": ["lost-writes=note"]}, "fail_on: expected a check that `kproxy verify --list` prints, got"),
        ({"retention": {"orders": "soon"}}, "retention: expected a duration"),
        ({"onyl": ()}, "expected an argument of verify, got 'onyl'; arguments: assume_complete, compacted, "),
    ):  # fmt: skip
        with pytest.raises(Misuse, match=message):
            kproxy.verify(**arguments)


def test_each_test_is_verified_if_the_ini_file_says_so(suite: Suite) -> None:
    """At its end, unless a marker says otherwise."""
    ran = suite(
        """
        import pytest
        from confluent_kafka import Consumer, Producer, TopicPartition

        def broken(kproxy):
            kproxy.inject("drop_records", at="fetch", offsets=1)
            address = {"bootstrap.servers": kproxy.bootstrap_servers, "log_level": 0}
            producer = Producer(address | {"retry.backoff.ms": 20, "linger.ms": 0})
            for number in range(3):
                producer.produce("orders", b"%d" % number, partition=0)
                assert producer.flush(20) == 0
            consumer = Consumer(address | {"group.id": "g", "auto.offset.reset": "earliest"})
            consumer.assign([TopicPartition("orders", 0, 0)])
            while consumer.poll(10).offset() < 2:
                pass
            consumer.close()

        def test_broken(kproxy):
            broken(kproxy)

        @pytest.mark.kproxy_verify(without=["inconsistent-offset", "thinned-batch", "phantom-record"])
        def test_with_a_choice(kproxy):
            broken(kproxy)

        @pytest.mark.kproxy_verify(False)
        def test_not_verified(kproxy):
            broken(kproxy)

        def test_without_kafka():
            pass
        """,
        ini="kproxy_verify = true",
    )
    assert ran.counts == {"failed": 1, "passed": 3}, ran.text
    assert ran.text.count("PROVED   inconsistent-offset · orders[0]") >= 1
