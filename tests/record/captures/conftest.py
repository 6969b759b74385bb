"""A capture of real traffic, recorded by dumpcap on the loopback interface.

It has librdkafka's clients `shop` (a producer with lz4), `careless` (acks=0) and `billing` (a consumer of the group
`bills`), and a Kafka 4 broker at port 24476; the topic `orders` of two partitions was there before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden" / "loopback.pcapng"


@pytest.fixture(scope="session")
def golden() -> Path:
    """The file."""
    return GOLDEN


@pytest.fixture(scope="session")
def golden_port() -> int:
    """The broker's."""
    return 24476
