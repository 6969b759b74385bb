"""The page on scale: its commands print what it shows, on a proxy of two workers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kproxy.testing.process import Proxy
from tests.support.fake_broker import FakeBroker

pytestmark = pytest.mark.process
PAGE = Path(__file__).parent.parent / "docs" / "scale.md"


@pytest.mark.deep
def test_the_commands_of_the_workers_page() -> None:
    """They print what stands there; processes are looked for by name, so only those of this proxy are shown."""
    examples = [
        example.partition("\n")
        for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    assert len(examples) == 5
    with FakeBroker() as broker, Proxy(broker.address, arguments=["--workers", "2"]) as proxy:
        for command, _, expected in examples:
            own = command.replace("localhost:9190", proxy.admin)
            own = own.replace("$(pgrep -f 'kproxy run .*--workers' | head -1)", str(proxy.pid))
            own = own.replace("pgrep -f", f"pgrep -P {proxy.pid} -f")
            ran = subprocess.run(
                ["bash", "-c", own], env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=90, check=False,
            )  # fmt: skip
            assert ran.stdout == expected.rstrip("\n") + "\n" * bool(expected.strip()), f"{own}\n{ran.stdout}"
