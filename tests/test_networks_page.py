"""The documents, commands and ports of docs/networks.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kproxy.app.config.document import config_from
from kproxy.cli import admin_client
from kproxy.rules.document.read import parse_rules
from kproxy.rules.values.source import Source
from kproxy.runtime.config.network import MARK
from kproxy.runtime.listeners.listener_ports import PORTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "networks.md").read_text()
DOCUMENTS = {text.split()[1]: text for text in re.findall(r"^```yaml\n(# .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_have_no_mistake(name: str, tmp_path: Path) -> None:
    """Whoever copies one can start with it, once its certificates are there."""
    for file in re.findall(r"[\w.]+\.pem", DOCUMENTS[name]):
        (tmp_path / file).write_text("")
    source = Source(name, DOCUMENTS[name])

    assert config_from(source, tmp_path, {}) is not None, source.lines()


def test_networks_page_rules_are_valid() -> None:
    """Blocks of rules; documents with certificates are tested above."""
    rules = re.findall(r"^```yaml\n(rules:\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert len(rules) >= 4
    assert all(parse_rules(text) for text in rules)


def test_firewall_table_ports_are_the_defaults() -> None:
    """The number of advertised ports, and the ports of the admin address and the webhook."""
    table = PAGE.partition("## Ports for firewalls")[2].partition("\n## ")[0]
    webhook = re.search(r'"--listen".*?default="[^"]*:(\d+)"', (ROOT / "kproxy" / "cli" / "run.py").read_text())
    assert webhook is not None

    assert f"by default the {PORTS} ports after the listener's" in table
    assert f"`admin.bind`, such as {admin_client.DEFAULT.rpartition(':')[2]}" in table
    assert f"`--listen`, by default {webhook[1]}" in table


def test_the_marks_of_the_firewall_are_those_of_kproxy() -> None:
    """What the page, the shipped rules and the code say is one number."""
    shipped = [file.read_text() for file in (ROOT / "deploy" / "transparent").glob("*.nft")]
    said = [int(number) for text in [PAGE, *shipped] for number in re.findall(r"(?:--mark|own =) (\d+)", text)]

    assert len(shipped) == 2
    assert set(said) == {MARK, 1}  # 1: what tproxy has routed to kproxy
