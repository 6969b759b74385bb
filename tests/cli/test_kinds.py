"""`kproxy rules kinds` and `kproxy schema`: what the models say."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from click.testing import CliRunner

from kproxy.app.config.document import Config
from kproxy.cli import main
from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import GROUPS


def run(*arguments: str) -> str:
    """What it prints."""
    result = CliRunner().invoke(main, list(arguments))

    assert result.exit_code == 0
    return result.output


def test_all_kinds_are_listed() -> None:
    """A line each, below the title of their group."""
    lines = run("rules", "kinds").splitlines()

    assert [line.split()[0] for line in lines if line.startswith("  ")] == [*chain(*KINDS.by_group().values())]
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == list(KINDS)
    assert [line for line in lines if line and not line.startswith("  ")] == list(GROUPS)


def test_a_kind_that_is_unknown_is_told_with_all_that_there_are() -> None:
    """And the nearest one; exit code 2."""
    result = CliRunner().invoke(main, ["rules", "kinds", "dely"])

    assert result.exit_code == 2
    assert 'unknown kind "dely", did you mean "delay"?' in result.output
    assert all(kind in result.output for kind in KINDS)


def test_what_is_warned_of_is_shown_with_the_example() -> None:
    """As `kproxy check` says it."""
    assert "a rule like this is loaded, and warned of" in run("rules", "kinds", "duplicate_records")
    assert "warned of" not in run("rules", "kinds", "delay")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_shown_with_fields_and_example(kind: str) -> None:
    """Every key that can be written, and a rule to copy."""
    text = run("rules", "kinds", kind)

    keys = KINDS[kind].keys()
    for key in keys:
        assert f"\n  {key} " in text
    assert KINDS[kind].example.splitlines()[0] in text


def test_the_schema_of_rules_knows_every_kind() -> None:
    schema = json.loads(run("schema", "rules"))

    assert schema["properties"]["rules"]["type"] == "array"
    assert schema["$defs"]["Stage"]["properties"]["rules"]["items"] == schema["properties"]["rules"]["items"]
    for model in KINDS.values():
        assert schema["$defs"][model.__name__]["additionalProperties"] is False


def test_the_schema_of_the_config_knows_every_key() -> None:
    """Addresses and sizes are texts there, as they are written."""
    schema = json.loads(run("schema", "config"))

    assert set(schema["properties"]) == set(Config.keys())
    assert schema["$defs"]["ListenerConfig"]["properties"]["bind"]["type"] == "string"
    assert schema["required"] == ["clusters", "listeners"]
