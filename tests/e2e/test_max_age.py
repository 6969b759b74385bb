"""The greatest age of connections in whole proxies: workers, metrics, log and audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.audit_reader import published
from tests.support.raw_client import RawClient
from tests.support.wait import until

from .conftest import closed

AGED = {"max_connection_age": "300ms", "max_connection_age_jitter": 0.3}


@pytest.mark.deep
def test_ends_are_counted_and_recorded_but_not_logged(
    fake: Callable[..., Any], proxy_with: Callable[..., Any], tmp_path: Path
) -> None:
    """Connections of both workers end, and the audit of each says why."""
    broker = fake()
    proxy = proxy_with(broker.address, limits=AGED, workers=2, audit={"dir": str(tmp_path / "audit")})
    clients = [RawClient(proxy.bootstrap) for _ in range(4)]
    for client in clients:
        assert client.rest() == b""
        client.close()
    until(lambda: closed(proxy, "max_age") == 4)

    assert proxy.said("connection closed") == []
    assert proxy.child.stop(30) == 0
    events = [event for event in published(tmp_path / "audit") if event["type"] == "kproxy.connection.v1"]
    ends = [event["data"] for event in events if event["data"]["action"] == "close"]
    assert [end["cause"] for end in ends] == ["max_age"] * 4
    assert all(end["message"].endswith(" s old") for end in ends)
    assert len({event["source"] for event in events}) == 2
