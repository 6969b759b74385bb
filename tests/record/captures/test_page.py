"""The part of docs/captures.md on recording: its config is valid, its commands and its Python run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kproxy.app.config.document import Config
from kproxy.testing.process import Proxy, free_port_with_room
from tests.support.fake_broker import FakeBroker
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.process, pytest.mark.tools("tshark")]
PAGE = (Path(__file__).parents[3] / "docs" / "captures.md").read_text().partition("\n## Replay\n")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_config_is_right() -> None:
    """Whoever copies it has no mistake in it."""
    (text,) = blocks("yaml")
    assert Config.model_validate(yaml.safe_load(text)).captures


def test_the_commands_and_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They print what the page shows, where … stands for anything, for one client that asks for orders."""
    port = free_port_with_room(16)
    examples = [example for block in blocks("console") for example in re.findall(r"\$ (.*)\n((?:[^$].*\n)*)", block)]
    assert 4 == len(examples)
    rename = {"name": "other names", "kind": "rename_topic", "topics": {"orders": "prod.orders"}}
    with FakeBroker() as broker:
        listener = {"name": "main", "bind": f"127.0.0.1:{port}", "cluster": "main"}
        config = {"clusters": {"main": {"bootstrap": [broker.address]}}, "listeners": [listener],
                  "captures": str(tmp_path / "captures")}  # fmt: skip
        with Proxy(config=config, rules=[rename]) as proxy:
            environment = {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "KPROXY_ADMIN": f"http://{proxy.admin}",
            }
            for number, (command, expected) in enumerate(examples):
                if number == 1:
                    with RawClient(proxy.bootstrap) as client:
                        client.call(3, 8, {"topics": [{"name": "orders"}]})
                        client.call(3, 8, {"topics": [{"name": "other"}]})
                ran = subprocess.run(
                    ["bash", "-c", command.replace("19092", str(port))], cwd=tmp_path, env=environment,
                    capture_output=True, text=True, timeout=60, check=False,
                )  # fmt: skip
                pattern = ".*".join(re.escape(part) for part in expected.split("…"))
                assert re.fullmatch(pattern, ran.stdout), f"{command}\n{ran.stdout}{ran.stderr}"

    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(compile(block, "captures.md", "exec"), {})
