"""The documents and commands of docs/networks.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kproxy.app.config.document import config_from
from kproxy.rules.values.source import Source
from kproxy.runtime.config.network import MARK

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


def test_the_marks_of_the_firewall_are_those_of_kproxy() -> None:
    """What the page, the shipped rules and the code say is one number."""
    shipped = [file.read_text() for file in (ROOT / "deploy" / "transparent").glob("*.nft")]
    said = [int(number) for text in [PAGE, *shipped] for number in re.findall(r"(?:--mark|own =) (\d+)", text)]

    assert len(shipped) == 2
    assert set(said) == {MARK, 1}  # 1: what tproxy has routed to kproxy
