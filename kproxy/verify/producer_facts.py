"""Facts about producers and their transactions, and about what a connection's broker offers."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import (
    Fact,
    FencedFact,
    PartitionPlace,
    PartitionsAddedFact,
    ProducerFact,
    TransactionEndFact,
    VersionsFact,
)
from .read_exchange import ReadExchange, codes, coordinator_result

FENCED = codes("PRODUCER_FENCED")


def given_epochs(exchange: ReadExchange) -> Iterator[Fact]:
    request, response = exchange.request, exchange.response
    transactional_id = exchange.transactional_id(request["transactional_id"])
    if (
        response is None
        or response["error_code"]
        or (transactional_id is None) != (request["transactional_id"] is None)
    ):
        return
    yield ProducerFact(
        exchange.witness, response["producer_id"], response["producer_epoch"],
        transactional_id=transactional_id, expected=request.get("producer_id", -1) >= 0,
        keeps=bool(request.get("keep_prepared_txn")),
    )  # fmt: skip


def added_partitions(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the partitions that a producer makes part of its transaction; brokers' own requests are passed over."""
    request, response = exchange.request, exchange.response
    if "v3_and_below_topics" not in request:
        return
    producer = request["v3_and_below_producer_id"], request["v3_and_below_producer_epoch"]
    errors: dict[tuple[str, int], int] = {}
    for topic in (response or {}).get("results_by_topic_v3_and_below") or ():
        for one in topic["results_by_partition"] or ():
            errors[topic["name"], one["partition_index"]] = one["partition_error_code"]
    if not FENCED.isdisjoint(errors.values()):
        yield FencedFact(exchange.witness, *producer)
    places = [
        PartitionPlace(name, number)
        for topic in request["v3_and_below_topics"] or ()
        if (name := exchange.topic(topic["name"]))
        for number in topic["partitions"] or ()
    ]
    failed = None if response is None else next((error for error in errors.values() if error), 0)
    yield PartitionsAddedFact(exchange.witness, *producer, places, coordinator_result(failed))


def added_offsets(exchange: ReadExchange) -> Iterator[Fact]:
    if exchange.response is not None and exchange.response["error_code"] in FENCED:
        yield FencedFact(exchange.witness, exchange.request["producer_id"], exchange.request["producer_epoch"])


def ended_transactions(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the end of a transaction, and the epoch of the next one if the answer gives it."""
    request, response, witness = exchange.request, exchange.response, exchange.witness
    producer = request["producer_id"], request["producer_epoch"]
    error = None if response is None else response["error_code"]
    told = (-1, -1) if response is None else (response.get("producer_id", -1), response.get("producer_epoch", -1))
    own_epoch = told == (producer[0], producer[1] + 1)
    yield TransactionEndFact(witness, *producer, request["committed"], coordinator_result(error), own_epoch)
    if error in FENCED:
        yield FencedFact(witness, *producer)
    if not error and told[0] >= 0:
        name = exchange.transactional_id(request["transactional_id"])
        yield ProducerFact(witness, told[0], told[1], ended=True, transactional_id=name)


def offered_versions(exchange: ReadExchange) -> Iterator[Fact]:
    """Yield the versions that a broker offers; none where it refuses to answer in the version it was asked in."""
    response = exchange.response
    if response is not None and not response["error_code"] and response["api_keys"]:
        offered = {one["api_key"]: (one["min_version"], one["max_version"]) for one in response["api_keys"]}
        yield VersionsFact(exchange.witness, offered)
