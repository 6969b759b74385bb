"""Commands and filters of docs/live-view.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.record.filters import Filter
from kproxy.testing.process import Proxy, free_port_with_room
from tests.support.exchange_factory import conversation, event_lines, write_capture
from tests.support.fake_broker import FakeBroker
from tests.test_docs import DOCS, console_examples

pytestmark = pytest.mark.process


def test_live_view_page_commands_print_what_it_shows(tmp_path: Path) -> None:
    """In order, with a proxy that writes captures, and a capture and event files of six exchanges; … is any text."""
    write_capture(tmp_path / "traffic.pcapng", conversation())
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "host-5b0c1e2f-0-000000000001.ndjson").write_bytes(event_lines(conversation()))
    with FakeBroker() as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}],
            "captures": str(tmp_path / "captures"),
        }
        with Proxy(config=config) as proxy:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            environment = {**os.environ, "PATH": path, "KPROXY_ADMIN": f"http://{proxy.admin}"}
            examples = console_examples("live-view.md")
            for command, expected in examples:
                ran = subprocess.run(
                    ["bash", "-c", command.replace("localhost:9190", proxy.admin)], cwd=tmp_path, env=environment,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                )  # fmt: skip
                pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
                assert re.fullmatch(pattern, " ".join(ran.stdout.split())), f"{command}\n{ran.stdout}"

    assert len(examples) >= 18


def test_live_view_page_filters_are_valid() -> None:
    """Filters of commands on a running proxy, and those of the table that explains them."""
    page = (DOCS / "live-view.md").read_text()
    table = page.partition("| written | it holds |")[2].partition("\n\n")[0]
    live = [text for line in re.findall(r"^kproxy tail.*$", page, re.MULTILINE) for text in re.findall("'(.*?)'", line)]
    shown = [text for row in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE) for text in re.findall("`(.*?)`", row)]

    assert (len(live), len(shown)) == (3, 9)
    for text in (*live, *shown):
        assert Filter(text.replace("\\|", "|"))
