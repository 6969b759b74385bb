"""A member of a group that notes what it read and what it committed, each as soon as it knows it."""

from __future__ import annotations

from confluent_kafka import KafkaException, Message

from tests.lab.soak.clients.common import Client, number_of
from tests.lab.soak.clients.group import GroupReader


def runs_of(read: list[tuple[int, int, int]]) -> list[list[int]]:
    """(partition, offset, number) of records, as [partition, first offset, first number, count] of those in a row."""
    runs: list[list[int]] = []
    newest: dict[int, list[int]] = {}
    for partition, offset, number in read:
        run = newest.get(partition)
        if run is not None and (offset, number) == (run[1] + run[3], run[2] + run[3]):
            run[3] += 1
        else:
            newest[partition] = [partition, offset, number, 1]
            runs.append(newest[partition])
    return runs


def run(client: Client) -> None:
    reader = GroupReader(client)
    while not client.ended:
        if read := reader.read(contiguous=True):
            take(client, reader, read)
    reader.consumer.close()
    client.note(ended=True)


def take(client: Client, reader: GroupReader, read: list[Message]) -> None:
    found = []
    for message in read:
        partition, number = number_of(message.value())
        if partition != message.partition():
            client.note(wrong=f"record {number} of partition {partition} came as one of {message.partition()}")
        found.append((partition, message.offset(), number))
    places = reader.places(read)
    client.note(read=runs_of(found), commits={place.partition: place.offset for place in places})
    try:
        done = reader.consumer.commit(offsets=places, asynchronous=False)
        client.note(committed={place.partition: place.offset for place in done if place.error is None})
    except KafkaException as refused:  # a rebalance, or a coordinator that is away: it is read once more, then
        client.note(not_committed=str(refused))


if __name__ == "__main__":
    run(Client())
