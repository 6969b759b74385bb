"""The how-to pages' examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from kproxy.wire import Message, apis, encode

DOCS = Path(__file__).parent.parent / "docs"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_wire_page() -> None:
    """They run on a Metadata request and its response; their own assertions hold."""
    metadata = next(api for api in apis() if api.name == "Metadata")
    header = {"request_api_key": 3, "request_api_version": 12, "correlation_id": 1, "client_id": "tester"}
    asked = {"topics": [{"topic_id": UUID(int=0), "name": "orders"}]}
    broker = {"node_id": 1, "host": "b1", "port": 9092, "rack": None}
    names: dict[str, Any] = {
        "request_frame": encode(Message(metadata, 12, header, asked)),
        "response_frame": encode(Message(metadata, 12, {"correlation_id": 1}, {"brokers": [broker]})),
    }

    for block in python_blocks("wire.md"):
        exec(compile(block, "wire.md", "exec"), names)

    assert b"elsewhere" in names["changed"]


def test_the_example_of_the_testing_page(tmp_path: Path) -> None:
    """Whoever copies the two files has a test that passes."""
    for block in python_blocks("testing.md"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_pages_link_to_what_is_there() -> None:
    """Links between the pages and to files of the repository lead somewhere."""
    root = DOCS.parent
    for page in (*DOCS.glob("*.md"), root / "README.md", root / "ARCHITECTURE.md", root / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_metric_is_on_the_operations_page() -> None:
    """What `/metrics` names, the page names, and the other way round."""
    collector = (DOCS.parent / "kproxy" / "sinks" / "metrics.py").read_text()
    page = (DOCS / "operations.md").read_text()
    served = set(re.findall(r'"(kproxy_\w+)"', collector)) | {"kproxy_requests", "kproxy_responses"}

    assert {name.removesuffix("_total") for name in re.findall(r"`(kproxy_\w+)`", page)} == served
