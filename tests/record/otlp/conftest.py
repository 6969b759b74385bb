"""A collector, and settings of exports to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kproxy.record.otlp.export import HttpTarget, OtlpSettings, OtlpWay
from tests.support.otlp_collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector without TLS, all of whose requests were as the proto has them."""
    made = Collector()
    yield made
    made.down()
    assert made.wrong == []


@pytest.fixture
def settings(collector: Collector) -> Callable[..., OtlpSettings]:
    def make(encoding: Any = "json", timeout: float = 20.0, semconv: Any = "1.30") -> OtlpSettings:
        target = HttpTarget("127.0.0.1", collector.port, "", [("x-tenant", "shop")], timeout=timeout)
        return OtlpSettings(OtlpWay(target, encoding, semconv), "host/3")

    return make
