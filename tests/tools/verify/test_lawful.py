"""Lawful histories that look as if a guarantee were broken: none of them proves anything, and most have no finding."""

from __future__ import annotations

from uuid import UUID

from tests.tools.verify.history import CONSUMER, TOPIC, TOPIC_ID, History, batch, marker

A, B = batch(b"a"), batch(b"b", at=1)
COMMIT = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": ""}


def sent(sequence: int, value: bytes = b"", *, producer: int = 7, epoch: int = 0, transactional: bool = False) -> bytes:
    """Return a batch of producer 7, or another."""
    return batch(value or b"value %d" % sequence, producer=(producer, epoch, sequence), transactional=transactional)


def committed(number: int = 0, offset: int = 5) -> dict[str, object]:
    """Return a topic with one partition, for requests about commits."""
    return {"name": TOPIC, "partitions": [{"partition_index": number, "committed_offset": offset}]}


def test_a_topic_has_its_id_while_it_was_told_before_and_after() -> None:
    """By Metadata, or by requests that name the topic by its id."""
    cases = (None, 11, False), (TOPIC_ID, 11, True), (None, 13, True), (UUID(int=5), 11, False)
    for other, version, known in cases:
        history = History()
        history.write(1, A, 0)
        if version == 13:
            part = {"partition_index": 0, "high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0,
                    "records": b"\0" * 8 + B[8:]}  # fmt: skip
            wanted = {"topic_id": TOPIC_ID, "partitions": [{"partition": 0, "fetch_offset": 0}]}
            told = {"responses": [{"topic_id": TOPIC_ID, "partitions": [part]}]}
            history.add(2, "Fetch", 13, {"session_epoch": -1, "topics": [wanted]}, told, who=CONSUMER)
        else:
            history.read(2, 0, (0, B))
        if other is not None:
            history.metadata(3, other)
        history.configs(4, compacted=False)
        history.over = True
        (finding,) = history.verdict().findings
        assert (finding.check, "anew" not in finding.doubts) == ("inconsistent-offset", known)


def test_a_check_by_itself_finds_what_it_finds_among_all() -> None:
    """What one check knows by another is known, too, when the other is not asked for."""
    lost, torn, read = History(), History(), History()
    lost.write(1, A, 0)
    lost.write(2, B, 1)
    lost.read(3, 0, (1, B))
    data = sent(0, transactional=True)
    torn.write(1, data, 0)
    torn.end(2, 7, 0, commit=True)
    torn.read(3, 0, (0, data), (1, marker(7, 0, commit=False)))
    read.read(1, 0, (0, data), (1, marker(7, 0, commit=False)), committed=True)
    for history, check in ((lost, "lost-write"), (torn, "torn-transaction"), (read, "aborted-read")):
        found = history.findings()
        assert check in found
        assert history.findings(only=frozenset({check})) == {check: found[check]}
