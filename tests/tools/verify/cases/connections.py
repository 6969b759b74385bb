"""Histories of connections: versions, leader epochs, sessions, and responses without a request."""

from __future__ import annotations

from tests.support.exchange_factory import Somebody
from tests.support.frames import fetch_body, fetched_body
from tests.tools.verify.cases.table import broken, lawful
from tests.tools.verify.history import CONSUMER, PRODUCER, TOPIC, History, batch

OFFER = {"api_keys": [{"api_key": key, "min_version": 0, "max_version": 11} for key in (0, 1, 3)]}
OTHER_NODE = Somebody(12, client_port=50012, client_id="reader", node=2)
CLOSED = "kproxy closes the connection after a response without a request"


# ---- epoch-goes-back


@broken("epoch-goes-back", level="suspect")
def a_leader_epoch_that_goes_back(history: History) -> None:
    history.metadata(1, epoch=5)
    history.metadata(3, epoch=4)


@broken("epoch-goes-back", level="suspect")
def a_leader_epoch_that_goes_back_after_another_node_has_the_newer_one(history: History) -> None:
    history.metadata(1, epoch=5)
    history.metadata(2, epoch=6, who=OTHER_NODE)
    history.metadata(3, epoch=3)


@lawful("epoch-goes-back")
def leader_epochs_that_ascend(history: History) -> None:
    history.metadata(1, epoch=5)
    history.metadata(2, epoch=5)
    history.metadata(3, epoch=6)


@lawful("epoch-goes-back")
def a_node_that_lags(history: History) -> None:
    history.metadata(1, epoch=5)
    history.metadata(2, epoch=4, who=OTHER_NODE)
    history.metadata(3, epoch=5, who=OTHER_NODE)


# ---- unsupported-version


@broken("unsupported-version", known=False, compacted=None)
def a_version_that_was_not_offered(history: History) -> None:
    history.add(1, "ApiVersions", 2, {}, OFFER)
    history.read(3, 0, version=12)


@broken("unsupported-version", known=False, compacted=None)
def an_api_that_was_not_offered(history: History) -> None:
    history.add(1, "ApiVersions", 2, {}, OFFER)
    history.told(3, 5, who=CONSUMER)


@lawful("unsupported-version", known=False, compacted=None)
def a_version_that_was_offered(history: History) -> None:
    history.add(1, "ApiVersions", 2, {}, OFFER)
    history.read(2, 0, version=11)


@lawful("unsupported-version", known=False, compacted=None)
def a_version_that_was_not_offered_on_another_connection(history: History) -> None:
    history.add(1, "ApiVersions", 2, {}, OFFER)
    history.read(2, 0, version=11)
    history.read(3, 0, version=12, who=PRODUCER)


# ---- answer-order


@broken("answer-order", level="suspect", memory_only=CLOSED)
def a_response_without_a_request(history: History) -> None:
    history.write(1, batch(b"a"), 0)
    history.strangers = 1


@broken("answer-order", terms={"assume_complete": True}, memory_only=CLOSED)
def responses_without_requests_in_a_complete_record(history: History) -> None:
    history.write(1, batch(b"a"), 0)
    history.strangers = 2


@lawful("answer-order")
def a_response_for_each_request(history: History) -> None:
    history.write(1, batch(b"a"), 0)
    history.read(2, 0, (0, batch(b"a")))


@lawful("answer-order")
def a_request_without_a_response(history: History) -> None:
    history.write(1, batch(b"a"), 0)
    history.write(2, batch(b"b"), None, acks=0)
    history.read(2.5, 0, (0, batch(b"a")))
    history.read(3, 1, who=OTHER_NODE)


# ---- conformance


def fetch(history: History, at: float, epoch: int) -> None:
    """Add a Fetch of session 77 with this epoch; epoch 0 begins the session."""
    request = fetch_body(TOPIC, session_id=77 if epoch else 0, session_epoch=epoch)
    history.add(at, "Fetch", 11, request, fetched_body(records=None, session_id=77), who=CONSUMER)


def leave(history: History, *, heartbeat_at: float) -> None:
    """Add a Heartbeat of a member, and its LeaveGroup at second 2."""
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    history.add(heartbeat_at, "Heartbeat", 0, beat, {"error_code": 25 if heartbeat_at > 2 else 0})
    history.add(2, "LeaveGroup", 0, {"group_id": "g", "member_id": "m"}, {})


def add_partition(history: History, number: int) -> None:
    request = {
        "v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 7, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [number]}],
    }  # fmt: skip
    history.add(1, "AddPartitionsToTxn", 2, request, {"results_by_topic_v3_and_below": []}, who=PRODUCER)


@broken("conformance", level="note")
def a_fetch_session_whose_epoch_jumps(history: History) -> None:
    for at, epoch in enumerate((0, 1, 9), 1):
        fetch(history, at, epoch)


@broken("conformance", level="note")
def a_heartbeat_after_a_leave(history: History) -> None:
    leave(history, heartbeat_at=3)


@broken("conformance", level="note")
def a_transactional_write_to_a_partition_that_was_not_added(history: History) -> None:
    add_partition(history, 5)
    history.write(2, batch(b"a", producer=(7, 0, 0), transactional=True), 0)


@lawful("conformance")
def a_fetch_session_whose_epochs_ascend(history: History) -> None:
    for at, epoch in enumerate((0, 1, 2), 1):
        fetch(history, at, epoch)


@lawful("conformance")
def a_heartbeat_before_a_leave(history: History) -> None:
    leave(history, heartbeat_at=1)


@lawful("conformance")
def a_transactional_write_to_a_partition_that_was_added(history: History) -> None:
    add_partition(history, 0)
    history.write(2, batch(b"a", producer=(7, 0, 0), transactional=True), 0)


SEQUENCES = (((0, 0), (0, 2), (0, 4)), ((0, (1 << 31) - 2), (0, 0)), ((0, 0), (1, 0), (1, 2)))
"""Epochs and sequences of batches of two records at offsets 0, 2 and 4."""


@lawful("conformance", "order", "duplicate-sequence")
def sequences_that_go_on(history: History) -> None:
    for producer, sent in enumerate(SEQUENCES, 7):
        for number, (epoch, sequence) in enumerate(sent):
            base = 10 * producer + 2 * number
            history.write(base, batch(b"a", b"%d" % base, producer=(producer, epoch, sequence)), base)
