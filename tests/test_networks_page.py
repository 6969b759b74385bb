"""The documents and commands of docs/networks.md, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kproxy.config_file import config_from
from kproxy.rules.source import Source

PAGE = (Path(__file__).parent.parent / "docs" / "networks.md").read_text()
DOCUMENTS = {text.split()[1]: text for text in re.findall(r"^```yaml\n(# .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_have_no_mistake(name: str, tmp_path: Path) -> None:
    """Whoever copies one can start with it, once its certificates are there."""
    for file in re.findall(r"[\w.]+\.pem", DOCUMENTS[name]):
        (tmp_path / file).write_text("")
    source = Source(name, DOCUMENTS[name])

    assert config_from(source, tmp_path, {}) is not None, source.lines()
