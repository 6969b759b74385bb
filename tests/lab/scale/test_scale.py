"""Large clusters: the smallest form of the measurements and simulations, and a page that is what they made."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.lab.scale.metadata import WAYS, answer_of, measure
from tests.lab.scale.run import PAGE, RESULTS, page
from tests.lab.scale.storm import rollout, spreading, storm
from tests.support.line_count import LineCount
from tests.support.pace import within

FRAME = answer_of(50, 2_000, 10)
LINES = partial(LineCount, fine=True)


def test_the_page_is_what_the_code_made() -> None:
    """Its tables come of the kept measurements, the bench's report, and simulations that are the same everywhere."""
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text()))


@pytest.mark.parametrize("way", WAYS)
def test_metadata_response_is_held_once_and_yields(way: str) -> None:
    """With any rewrite, no more than its own length is reserved."""
    measure(way, FRAME, LINES)  # generates code
    cost = measure(way, FRAME, LINES)
    assert cost.held <= cost.came == len(FRAME)
    assert cost.longest_ms / 1000 <= 10_000


@pytest.mark.measured
@pytest.mark.parametrize("way", WAYS)
def test_metadata_response_takes_short_stretches(way: str) -> None:
    assert within(min(measure(way, FRAME).longest_ms for _ in range(3)) / 1000, 0.050)


def test_metadata_response_is_rewritten_once_for_all() -> None:
    frame = answer_of(50, 2_000, 1)
    measure("ports, topics renamed", frame, LINES)
    cost = measure("ports, topics renamed", frame, LINES)
    assert cost.again_ms < cost.total_ms / 5


def test_the_longest_stretch_that_was_kept_is_short() -> None:
    """Of the answer about the whole cluster."""
    assert all(one["longest_ms"] <= 50 for one in json.loads(RESULTS.read_text())["metadata"])


def test_a_storm_ends_when_all_have_been_served() -> None:
    """It takes as long as the connections of a pod do, and one that is too slow has clients try again."""
    calm, slow = storm(300, 3, 0.001), storm(300, 1, 0.1)
    assert 0.1 <= calm.seconds < 0.3 and calm.attempts == 1
    assert slow.seconds >= 30 and slow.attempts > 1


def test_ages_spread_connections_and_jitter_keeps_them_apart() -> None:
    """A pod that came back empty has its share after an age; without jitter all come again as fast as the pace lets
    them."""
    together, apart = (spreading(800, 4, 600.0, jitter) for jitter in (0.0, 0.1))
    assert together.share_after_one > 0.8 and apart.share_after_one > 0.8
    assert together.busiest > 2 * apart.busiest


def test_a_rollout_moves_clients_more_than_once_unless_they_stay() -> None:
    """With a port of each pod each client makes one connection anew, and no more."""
    assert rollout(200, 10, 1.0, stay=True).mean == 1
    assert rollout(200, 10, 1.0, stay=False).mean > 1
