"""The page about the live view: its commands print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.testing.process import Proxy, free_port_with_room
from tests.support.fake_broker import FakeBroker
from tests.test_docs import console_examples

pytestmark = pytest.mark.process


def test_the_commands_of_the_view_page(tmp_path: Path) -> None:
    """In their order, on a proxy with a folder for captures; … stands for anything, and blanks are alike."""
    with FakeBroker() as broker:
        config = {
            "clusters": {"main": {"bootstrap": [broker.address]}},
            "listeners": [{"name": "main", "bind": f"127.0.0.1:{free_port_with_room(16)}", "cluster": "main"}],
            "captures": str(tmp_path / "captures"),
        }
        with Proxy(config=config) as proxy:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            environment = {**os.environ, "PATH": path, "KPROXY_ADMIN": f"http://{proxy.admin}"}
            examples = console_examples("view.md")
            for command, expected in examples:
                ran = subprocess.run(
                    ["bash", "-c", command.replace("localhost:9190", proxy.admin)], cwd=tmp_path, env=environment,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
                )  # fmt: skip
                pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
                assert re.fullmatch(pattern, " ".join(ran.stdout.split())), f"{command}\n{ran.stdout}"

    assert len(examples) >= 9
