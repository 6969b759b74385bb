"""Rule documents: every mistake of every file at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.check import ListenerTraits
from kproxy.rules.document.read import ALL_KINDS, load_rules, parse_rules, rule_files

FOLDER = Path(__file__).parents[2] / "rules"
EXAMPLES = rule_files([FOLDER])


def mistakes(text: str, listeners: dict[str, ListenerTraits] | None = None) -> list[str]:
    """Lines without the file's name; empty when the document is right."""
    try:
        parse_rules(text, "f", listeners)
    except DocumentError as error:
        return [line.removeprefix("f:") for line in error.mistakes]
    return []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    """Each file of rules/ by itself."""
    assert len(load_rules([path])) > 0


def test_the_examples_are_right_together() -> None:
    """The folder is one rule set, too."""
    assert len(load_rules([FOLDER])) >= len(EXAMPLES)


def test_all_mistakes_come_at_once_and_in_file_order() -> None:
    """Unknown words, double keys, bad names, bad selectors: nothing hides behind the first."""
    text = """\
rulez: 1
rules:
  - name: a
    kind: rename_topics
    topics: {a: b}
  - name: b
    kind: rename_topic
    topcs: {a: b}
    match: {topic: x}
  - name: c
    kind: rename_topic
    topics:
      orders: x
      orders: y
      no: z
  - 5
  - {kind: slowness}
"""

    assert mistakes(text) == [
        '1:1: unknown key "rulez", did you mean "rules"? allowed: rules, scenario',
        f'4:11: unknown kind "rename_topics", did you mean "rename_topic"? {ALL_KINDS}',
        '6:5: "topics" is missing',
        '8:5: unknown key "topcs", did you mean "topics"? allowed: name, kind, match, not, topics',
        (
            '9:13: "topic" cannot be selected on here: this rule binds when a connection opens, '
            "and then only listener, cluster, client_address, sni, certificate are known"
        ),
        '14:7: the key "orders" is there twice, first in line 13',
        '15:7: no without quotes is the boolean false in YAML, write the key in quotes: "no"',
        "16:5: expected a rule (mapping with name and kind), got the number 5",
        '17:5: "name" is missing',
        f'17:12: unknown kind "slowness"; {ALL_KINDS}',
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "1:1: the document is empty, it begins with rules:"),
        ("# nothing\n", "1:1: the document is empty, it begins with rules:"),
        ("- a", "1:1: expected a rule document (mapping with rules:), got a list"),
        ("rules: 5", "1:8: expected a list of rules, got the number 5"),
        ("rules: {name: a}", "1:8: expected a list of rules, got a mapping"),
        ("rules: [{name: a}]", f'1:9: "kind" is missing, {ALL_KINDS}'),
        ("rules: [{name: a, kind: [x]}]", f"1:25: expected a kind, got a list; {ALL_KINDS}"),
        (
            "rules: [{name: '', kind: advertise}]",
            "1:16: expected a rule name of one line with 1 to 200 characters, got 0",
        ),
        ("rules: [a", "1:8: the list that opens here lacks a , or its ]"),
    ],
)
def test_a_document_of_another_form_is_refused(text: str, mistake: str) -> None:
    """With what was found and what is wanted."""
    assert mistakes(text) == [mistake]


def test_an_empty_list_of_rules_is_right() -> None:
    """A document may wait for its rules."""
    assert mistakes("rules: []") == []


def test_names_are_unique_over_all_documents(tmp_path: Path) -> None:
    """The second file learns where the first one has it, also when that rule has other mistakes."""
    (tmp_path / "a.yaml").write_text("rules: [{name: same, kind: rename_topic}]")
    (tmp_path / "b.yml").write_text("rules: [{name: same, kind: advertise}]")

    with pytest.raises(DocumentError) as caught:
        load_rules([tmp_path])

    assert caught.value.mistakes == [
        f'{tmp_path}/a.yaml:1:9: "topics" is missing',
        f'{tmp_path}/b.yml:1:16: the name "same" is taken, first at {tmp_path}/a.yaml:1:9',
    ]


def test_a_folder_is_read_in_order_without_hidden_files(tmp_path: Path) -> None:
    """Sub-folders too; a mounted ConfigMap keeps its files a second time under ..data, and *.test.yaml are no rules."""
    for name in ["b.yaml", "a.yml", "sub/c.yaml", "..data/b.yaml", ".d.yaml", "b.test.yaml", "notes.txt"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("rules: []")

    assert [str(file.relative_to(tmp_path)) for file in rule_files([tmp_path, tmp_path / "b.yaml"])] == [
        "a.yml", "b.yaml", "sub/c.yaml",
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    """Of that file; the others are checked all the same."""
    (tmp_path / "b.yaml").write_text("rules: 5")

    with pytest.raises(DocumentError) as caught:
        load_rules([tmp_path / "a.yaml", tmp_path / "b.yaml"])

    assert caught.value.mistakes == [
        f"{tmp_path}/a.yaml:1:1: the file cannot be read: no such file or directory",
        f"{tmp_path}/b.yaml:1:8: expected a list of rules, got the number 5",
    ]
