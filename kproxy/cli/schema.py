"""`kproxy schema`: prints JSON Schemas made from the models, for editors."""

from __future__ import annotations

import json
from typing import Any

import click

from kproxy.terminal import say


@click.command("schema")
@click.argument("what", type=click.Choice(["rules", "config", "tests"]))
def command(what: str) -> None:
    """Print the JSON Schema of rule documents, of config documents or of tests of rules.

    Editors with YAML support take it, for instance by a first line
    `# yaml-language-server: $schema=kproxy-rules.json`.
    """
    schema = {"rules": rules_schema, "config": config_schema, "tests": tests_schema}[what]()
    say(json.dumps(schema, indent=2))


def config_schema() -> dict[str, Any]:
    """Return the JSON Schema of a config document."""
    from kproxy.config.document import Config

    return {"$schema": DIALECT, **Config.model_json_schema()}


def tests_schema() -> dict[str, Any]:
    """Return the JSON Schema of a `*.test.yaml` file. Any field may be in a `body`: they depend on API and version."""
    from kproxy.testing.cases.model import CaseFile

    return {"$schema": DIALECT, **CaseFile.model_json_schema()}


def rules_schema() -> dict[str, Any]:
    """Return the JSON Schema of a rule document: rules of all kinds, told apart by `kind`, and stages of them."""
    from kproxy.rules.document import json_schema

    return json_schema.rules_schema()


DIALECT = "https://json-schema.org/draft/2020-12/schema"
