"""Commands and filters of docs/live-view.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kproxy.admin.held import OPERATIONS
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


def test_filters_of_pages_are_valid() -> None:
    """Filters of commands on a running proxy, and those of the table that explains them."""
    page = (DOCS / "live-view.md").read_text()
    table = (DOCS / "rule-tests.md").read_text().partition("| written | it holds |")[2].partition("\n\n")[0]
    live = [text for line in re.findall(r"^kproxy tail.*$", page, re.MULTILINE) for text in re.findall("'(.*?)'", line)]
    shown = [text for row in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE) for text in re.findall("`(.*?)`", row)]

    assert (len(live), len(shown)) == (4, 9)
    for text in (*live, *shown):
        assert Filter(text.replace("\\|", "|"))


def test_admin_api_page_lists_each_held_operation() -> None:
    """Each operation has a row, and the JSON bodies of a row are bodies of its operations."""
    page = (DOCS / "admin-api.md").read_text()
    table = page.partition("| operation | body and effect |")[2].partition("\n\n")[0]
    rows = [line.partition(" | ")[::2] for line in table.splitlines() if "/api/held" in line]
    listed: list[str] = []
    for operations, text in rows:
        paths = re.findall(r"`(?:GET |POST )?([^`]+)`", operations)
        places = [path if path.startswith("/api") else f"{paths[0].rpartition('/')[0]}{path}" for path in paths]
        listed += places
        bodies = [one.body for one in OPERATIONS if one.path.replace("{id}", "ID") in places and one.body]
        for body in re.findall(r"`({.*?})`", text):
            assert any(accepts(model, body) for model in bodies), body

    assert sorted(listed) == sorted(one.path.replace("{id}", "ID") for one in OPERATIONS)


def accepts(model: Any, body: str) -> bool:
    """Whether a body of the API is valid."""
    try:
        model.model_validate_json(body)
    except ValidationError:
        return False
    return True


def test_live_view_page_cost_is_that_of_the_bench() -> None:
    """CPU time and rates of the rows "a page is open", by machine."""
    page = " ".join((DOCS / "live-view.md").read_text().split())
    results = (DOCS.parent / "tests" / "lab" / "bench" / "RESULTS.md").read_text()
    rates: list[str] = []
    for machine in ("AMD EPYC", "Intel Xeon"):
        part = results.partition(f"\n## {machine}\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| a page is open.*?\| ([\d.]+) × \(CPU of a second: kproxy (\d+) ms", part, re.MULTILINE)
        cpu = sorted(int(milliseconds) for _, milliseconds in rows)
        rates += [rate for rate, _ in rows]
        assert re.search(rf"{cpu[0]} to {cpu[-1]} ms [^.]*on an {machine}", page), (machine, cpu)
    assert f"Rates were {min(rates)} to {max(rates)} of those without a page." in page
