"""The picture of the README: drawn from the code, with words that are explained."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from kproxy.rules.kinds.base.rule import GROUPS

ROOT = Path(__file__).parents[2]
NAMES = ("picture-light.svg", "picture-dark.svg")
ENDS = {"kproxy", "clients", "brokers"}


def words(name: str) -> list[str]:
    """Return the texts in a picture."""
    root = ET.fromstring((ROOT / "docs" / name).read_text())
    return [unescape(one.text or "") for one in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", NAMES)
def test_each_group_of_rules_is_in_the_picture(name: str) -> None:
    """By the title that `kproxy rules kinds` prints, without its explanation."""
    assert set(GROUPS) <= set(words(name))


def test_stages_and_sinks_are_words_of_the_glossary() -> None:
    """Each single word of the picture that is no group's title is explained in ARCHITECTURE.md."""
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("## Glossary")[2].lower()
    titles = set(GROUPS)
    stages = [word for word in words(NAMES[0]) if len(word.split()) <= 2 and word not in titles | ENDS]

    assert len(stages) >= 12
    assert [word for word in stages if not re.search(rf"\b{re.escape(word.lower())}", glossary)] == []


def test_the_readme_shows_the_picture_that_fits_the_readers_colours() -> None:
    """Dark where the reader's system is dark, else light; both have the same words."""
    readme = (ROOT / "README.md").read_text()

    assert re.search(r'<source media="\(prefers-color-scheme: dark\)" srcset="docs/picture-dark.svg">', readme)
    assert re.search(r'<img alt="[^"]+" src="docs/picture-light.svg">', readme)
    assert words(NAMES[0]) == words(NAMES[1])
