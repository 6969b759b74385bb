"""Shared by the tests of worker processes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog


@pytest.fixture
def logged() -> list[dict[str, Any]]:
    """What `quiet_log` was told."""
    return []


@pytest.fixture
def quiet_log(logged: list[dict[str, Any]]) -> Any:
    """A logger that writes nowhere."""
    capture = structlog.testing.LogCapture()
    capture.entries = logged
    wrapper = structlog.make_filtering_bound_logger(logging.DEBUG)
    return structlog.wrap_logger(None, processors=[capture], wrapper_class=wrapper)
