"""Correlation ids."""

from __future__ import annotations

import pytest

from kproxy.protocol import decode_request, decode_response
from kproxy.tools.rehearse.dialogue import request, response
from kproxy.tools.replay.target import LAST, answered, following, number_of, renumbered


def test_only_the_number_of_a_request_changes() -> None:
    """Everything else stays as it was, byte by byte."""
    frame = request(3, 12, 77, topics=None)[4:]
    changed = renumbered(frame, 5)

    assert decode_request(changed).header["correlation_id"] == 5
    assert changed[:4] + frame[4:8] + changed[8:] == frame


def test_a_response_is_given_the_number_of_its_request() -> None:
    """Clients may use any number, below 0 too."""
    changed = answered(response(3, 12, 77)[4:], -3)

    assert number_of(changed) == -3
    assert decode_response(changed, 3, 12).header["correlation_id"] == -3


def test_numbers_stay_above_zero() -> None:
    """They begin anew after the last."""
    assert (following(0), following(7), following(LAST)) == (1, 8, 1)


def test_a_response_that_is_too_short_is_none() -> None:
    """It has no number."""
    with pytest.raises(ValueError, match="a response of 2 bytes, expected at least 4"):
        number_of(b"\0\0")
