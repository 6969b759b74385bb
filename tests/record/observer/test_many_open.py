"""More requests in one read than an observer keeps open, and the responses to all of them."""

from __future__ import annotations

from struct import pack

import pytest

from kproxy.record.exchange import Depth
from kproxy.record.observer.exchange_builder import MOST_OPEN
from kproxy.record.observer.observer import ConnectionObserver
from kproxy.record.observer.summary import Summary
from tests.record.audit.exchanges import FakeWho
from tests.support.line_count import LineCount

TINY = {
    "Produce": (0, 9, b"\0\0\0\1", b"\0"),
    "Metadata": (3, 13, b"\0", b"\0"),
    "SaslAuthenticate": (36, 2, b"\0", b"\0"),
    "unknown": (999, 0, b"", b""),
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("depth", [Depth.ROWS, Depth.FULL])
def test_responses_to_shed_requests_take_linear_work(name: str, depth: Depth) -> None:
    """The oldest requests are given up, and none of their responses is searched for among all that are open."""
    first, second, third = (work(name, depth, MOST_OPEN + 1000 * shed) for shed in (1, 2, 3))
    for few, more, most in zip(first, second, third, strict=True):
        assert most.total - more.total <= 1.2 * (more.total - few.total)
        assert most.longest <= 300_000


def work(name: str, depth: Depth, number: int) -> tuple[LineCount, LineCount]:
    """Return the lines that run for `number` requests, and for their responses."""
    key, version, body, tags = TINY[name]
    requests = b"".join(pack(">ihhih", 10 + len(body), key, version, at, -1) + body for at in range(number))
    responses = b"".join(pack(">ii", 6 + len(tags), at) + tags + b"\0\0" for at in range(number))
    observer = ConnectionObserver(
        FakeWho(), lambda key, version: depth, lambda seen: None, summary=Summary(lambda key, version: True)
    )
    with LineCount() as request_count:
        observer.from_client(bytearray(requests), len(requests), 1.0)
    with LineCount() as response_count:
        observer.to_client(bytearray(responses), len(responses), 2.0)
    assert observer.responses == MOST_OPEN
    assert not observer.open
    return request_count, response_count
