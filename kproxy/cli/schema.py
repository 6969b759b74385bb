"""`kproxy schema`: JSON Schema from the models, for editors."""

from __future__ import annotations

import json
from typing import Annotated, Any, Union

import click


@click.command("schema")
@click.argument("what", type=click.Choice(["rules", "config"]))
def command(what: str) -> None:
    """Print the JSON Schema of rule documents or of config documents.

    Editors with YAML support take it, for instance by a first line
    `# yaml-language-server: $schema=kproxy-rules.json`.
    """
    click.echo(json.dumps(rules_schema() if what == "rules" else config_schema(), indent=2))


def config_schema() -> dict[str, Any]:
    """Schema of a config document."""
    from kproxy.config import Config

    return {"$schema": DIALECT, **Config.model_json_schema()}


def rules_schema() -> dict[str, Any]:
    """Schema of a rule document: a list of rules of all kinds, told apart by `kind`."""
    from pydantic import Field, TypeAdapter

    from kproxy.rules.kinds import KINDS

    any_kind: Any = Union[tuple(KINDS.values())]  # noqa: UP007 - made from a table
    schema = TypeAdapter(list[Annotated[any_kind, Field(discriminator="kind")]]).json_schema()
    definitions = schema.pop("$defs")
    return {
        "$schema": DIALECT,
        "title": "kproxy rules",
        "type": "object",
        "properties": {"rules": schema},
        "required": ["rules"],
        "additionalProperties": False,
        "$defs": definitions,
    }


DIALECT = "https://json-schema.org/draft/2020-12/schema"
