"""The page about explorations: whoever does what it shows sees what it shows. `KPROXY_TEST_ALL=1` runs it: it takes
minutes."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from kproxy.testing.cluster import MockCluster
from tests.howto import Reader


@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get("KPROXY_TEST_ALL"), reason="takes long: KPROXY_TEST_ALL=1 runs it")
def test_the_page_can_be_worked_through(tmp_path: Path, mock_cluster: MockCluster) -> None:
    """A test and a program are explored, and each finding is told as the page says."""
    with ExitStack() as stack:
        reader = Reader(tmp_path, mock_cluster, stack)
        reader.limit = 400
        reader.environment["PYTHONWARNINGS"] = "ignore"  # of plugins that are none of the reader's
        assert reader.work_through("explore.md") == 4
    (by_test,) = (tmp_path / "explored").glob("test_orders_are_stored_once-*.yaml")
    (by_program,) = (tmp_path / "explored").glob("python-send_orders-py-*.yaml")
    assert all("disconnect" in file.read_text() or "error" in file.read_text() for file in (by_test, by_program))
