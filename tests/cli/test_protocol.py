"""`kproxy protocol`: the list, the facts of one API, the grammar, and words that are not known."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.protocol import apis, grammar


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["protocol", *words])


def test_the_list_names_every_api() -> None:
    """A line each in pipes: key, name, versions, aliases."""
    result = run()
    lines = [line.split() for line in result.output.splitlines()]

    assert result.exit_code == 0
    assert lines[0] == ["key", "name", "versions", "aliases"]
    assert [line[:3] for line in lines[1:]] == [[str(api.key), api.name, str(api.versions)] for api in apis()]
    assert lines[4] == ["3", "Metadata", "0-13", "TopicMetadata"]


@pytest.mark.parametrize("name", ["Metadata", "metadata", "TopicMetadata", "3"])
def test_a_version_prints_both_grammars(name: str) -> None:
    """In the guide's notation, by name, alias or key."""
    result = run(name, "12")

    assert result.exit_code == 0
    assert result.output == f"{grammar(3, 12, 'request')}\n\n{grammar(3, 12, 'response')}\n"


def test_no_version_prints_facts_and_the_newest() -> None:
    """Names, versions, releases; then the grammars."""
    result = run("ControlledShutdown")

    assert result.exit_code == 0
    assert "versions     0-3" in result.output
    assert "in brokers   0-1 from Kafka 0.10.0; 0-2 from Kafka 2.2;" in result.output
    assert "; 0-3 from Kafka 2.4; removed from Kafka 4.0\n" in result.output
    assert result.output.endswith(f"{grammar(7, 3, 'response')}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Metdata"], "no API is called 'Metdata', did you mean Metadata?"),
        (["xyzzy"], "no API is called 'xyzzy'; `kproxy protocol` lists them"),
        (["999"], "no API has the key 999, there are 0 to 94"),
        (["Metadata", "99"], "Metadata has versions 0-13, not 99"),
        (["Metadata", "x"], "'x' is not a valid integer"),
    ],
)
def test_what_is_not_there_is_a_usage_error(words: list[str], message: str) -> None:
    """The nearest name, or what there is; exit code 2."""
    result = run(*words)

    assert result.exit_code == 2
    assert message in result.output
