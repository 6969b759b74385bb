"""The page about the webhook: its commands print what it shows, and it names each annotation with its default."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kproxy.admin.webhook.annotations import ANNOTATIONS, DOMAIN, SidecarOptions
from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import free_port
from tests.howto import DOCS, Reader

pytestmark = [pytest.mark.process, pytest.mark.tools("openssl")]
PAGE = (DOCS / "kubernetes.md").read_text()


class WebhookReader(Reader):
    """Reader of the page, for whom the webhook is ready when it accepts connections."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.port = free_port()
        self.real |= {f"{host}:8443": f"{host}:{self.port}" for host in ("127.0.0.1", "localhost")}

    def is_ready(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    """On a pod of its own."""
    with ExitStack() as stack:
        reader = WebhookReader(tmp_path, stack.enter_context(MockCluster(1)), stack)
        assert reader.work_through("kubernetes.md", "webhook") >= 5


def test_the_page_names_each_annotation_and_its_default() -> None:
    """And none that is not there."""
    rows = re.findall(r"^\| ((?:`kproxy\.io/[\w-]+`(?:, )?)+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)
    named = [name for cells, _ in rows for name in re.findall(r"`([^`]+)`", cells)]
    assert sorted(named) == sorted([f"{DOMAIN}inject", *(DOMAIN + name for name in ANNOTATIONS)])
    said = " ".join(default for _, default in rows)
    options = SidecarOptions("")
    pairs = [options.requests, options.limits]
    for text in (options.config_map, *(",".join(f"{name}={value}" for name, value in one.items()) for one in pairs)):
        assert f"`{text}`" in said
    ports = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in options.ports)
    assert f"`{ports}`" in said
