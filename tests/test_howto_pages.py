"""The how-to pages: whoever does what they say sees what they show."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from kproxy.testing.cluster import MockCluster

from .howto import Reader

pytestmark = [pytest.mark.process, pytest.mark.tools("jq")]
PAGES = {
    "kubernetes.md sidecar": ["orders"],
    "first-fault.md": [],
    "first-proxy.md": ["orders", "prod.orders"],
    "test-faults.md": ["orders"],
    "audit.md": ["orders"],
    "metrics.md labels": ["orders"],
    "metrics.md telemetry": ["orders"],
    "metrics.md otlp": ["orders"],
    "names-tenants.md": ["orders", "shop.orders.v2"],
    "reload.md": ["orders"],
    "verify.md": ["orders"],
}
"""Page, or page and example: topics of the cluster."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_stands(page: str, tmp_path: Path) -> None:
    """Its files are right, and its commands print what stands below them."""
    with ExitStack() as stack:
        cluster = stack.enter_context(MockCluster(1))
        for topic in PAGES[page]:
            cluster.create_topic(topic, partitions=1)
        least = 2 if page == "first-fault.md" else 5
        assert Reader(tmp_path, cluster, stack).work_through(*page.split(" ")) >= least
