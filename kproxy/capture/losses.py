"""Losses of a capture in words: what is missing in it, or could not be told apart."""

from __future__ import annotations

from collections.abc import Iterator

from .reader import Capture


def losses(capture: Capture) -> Iterator[str]:
    """Yield what is missing in a capture that has been read, a line for each kind of loss."""
    counts = capture.counts
    if capture.file.torn:
        yield "its last packet is not all there"
    if capture.file.dropped:
        yield f"its writer lost {capture.file.dropped} packets"
    if counts.gaps:
        yield f"{counts.lost_bytes} bytes are missing in {counts.gaps} places"
    if counts.not_kafka:
        yield f"{counts.not_kafka} of {counts.connections} connections are not Kafka, or encrypted"
    if counts.unread:
        yield f"{counts.unread} frames without a beginning"
    if counts.strangers:
        yield f"{counts.strangers} responses without requests"
