"""JSON Schema of rule documents, from the models: for editors, and for the description of the admin API."""

from __future__ import annotations

from typing import Annotated, Any, Union

from pydantic import Field, TypeAdapter

from kproxy.rules.kinds import KINDS

from .scenario import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFS = "#/$defs/{model}"


def rules_schema() -> dict[str, Any]:
    """Return the schema of a rule document: a list of rules of all kinds, told apart by `kind`, and perhaps a
    scenario."""
    document, definitions = document_schema(DEFS)
    return {"$schema": DIALECT, "title": "kproxy rules", **document, "$defs": definitions}


def document_schema(reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a document, and the definitions that it uses: `Rule` is any rule. `reference` is how they
    are referred to, with `{model}` for the name."""
    any_kind: Any = Union[tuple(KINDS.values())]  # noqa: UP007 - made from a table
    rule = TypeAdapter(Annotated[any_kind, Field(discriminator="kind")]).json_schema(ref_template=reference)
    scenario = Scenario.model_json_schema(ref_template=reference)
    definitions = {**rule.pop("$defs", {}), **scenario.pop("$defs")}
    rules = {"type": "array", "items": {"$ref": reference.format(model="Rule")}}
    definitions["Stage"]["properties"]["rules"] |= rules
    definitions |= {"Rule": rule, "Scenario": scenario}
    document = {
        "type": "object",
        "properties": {"rules": rules, "scenario": {"$ref": reference.format(model="Scenario")}},
        "anyOf": [{"required": ["rules"]}, {"required": ["scenario"]}],
        "additionalProperties": False,
    }
    return document, definitions
