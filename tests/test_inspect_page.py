"""The page about tail, show, stats and redact: its commands print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.record.filters import Filter
from tests.support.exchange_factory import conversation, event_lines, write_capture

pytestmark = pytest.mark.process
PAGE = Path(__file__).parent.parent / "docs" / "inspect.md"


def console_examples(page: str) -> list[tuple[str, str]]:
    """Commands, and what stands below them."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    examples = [example for block in blocks for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in (example.partition("\n") for example in examples)]


def test_the_commands_of_the_inspect_page(tmp_path: Path) -> None:
    """They print what the page shows, of a capture and the event files of the same six exchanges."""
    write_capture(tmp_path / "traffic.pcapng", conversation())
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "host-5b0c1e2f-0-000000000001.ndjson").write_bytes(event_lines(conversation()))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, expected in console_examples(PAGE.read_text()):
        ran = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
        )  # fmt: skip
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
        assert re.fullmatch(pattern, " ".join(ran.stdout.split())), f"{command}\n{ran.stdout}"


def test_the_filters_of_the_inspect_page_are_filters() -> None:
    """Those of its commands on a running proxy, and those of the table that explains them."""
    page = PAGE.read_text()
    table = page[page.index("| written | it holds |") : page.index("API and error names may be")]
    live = [text for line in re.findall(r"^kproxy tail.*$", page, re.MULTILINE) for text in re.findall("'(.*?)'", line)]
    shown = [text for row in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE) for text in re.findall("`(.*?)`", row)]

    assert (len(live), len(shown)) == (3, 9)
    for text in (*live, *shown):
        assert Filter(text.replace("\\|", "|"))
