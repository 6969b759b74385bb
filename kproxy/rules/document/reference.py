"""Models in words, for `kproxy rules kinds` and the tables of the reference pages, and as JSON Schema, for editors and
the description of the admin API.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, Field, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from kproxy.rules.exchange import HeldError
from kproxy.rules.filter.evaluate import RecordCondition
from kproxy.rules.kinds import KINDS
from kproxy.rules.values.address import Address, PortRange
from kproxy.rules.values.quantities import Latency, Range

from .read import Scenario


class FieldRow(NamedTuple):
    """Row of one field: key, type, default (empty: required), description."""

    key: str
    what: str
    default: str
    text: str


def rows(model: type[BaseModel]) -> Iterator[FieldRow]:
    """Yield a row for each field of a model, in order of declaration."""
    for name, field in model.model_fields.items():
        yield FieldRow(
            field.alias or name, _what(field.annotation, field.metadata), _default(field), field.description or ""
        )


def markdown_table(model: type[BaseModel]) -> str:
    lines = ["| key | type | default | description |", "|---|---|---|---|"]
    for row in rows(model):
        default = f"`{row.default}`" if row.default else "**required**"
        lines.append(f"| `{row.key}` | {row.what} | {default} | {row.text.replace('|', '&#124;')} |")
    return "\n".join(lines) + "\n"


def sentence(model: type[BaseModel]) -> str:
    text = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    return text.split(". ")[0].rstrip(".") + "."


def title(model: type[BaseModel]) -> str:
    """Return a model's name in words: `ListenerTls` is listener tls, `ClusterConfig` is cluster."""
    words = re.findall("[A-Z][a-z]+", model.__name__)
    return " ".join(word.lower() for word in words if word not in ("Config", "Connection"))


_WORDS: dict[Any, str] = {
    Any: "value",
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
    Address: "host:port",
    PortRange: "range of ports",
    Range: "number or range",
    Latency: "duration or distribution",
    UUID: "topic id",
    RecordCondition: "condition",
    HeldError: "`{error: NAME}`",
    SecretStr: "secret",
}


_READERS = {
    "parse_duration": "duration",
    "parse_shift": "duration",
    "parse_size": "size",
    "parse_byte_rate": "rate",
    "parse_count_rate": "rate",
    "requests_or_time": "whole number or duration",
    "error_number": "error name or number",
    "acks_number": "`0` or `1` or `all`",
}
"""Words for types by the name of the function that reads them; kinds of rules are imported only when used."""


def _what(annotation: Any, metadata: list[Any]) -> str:
    for one in metadata:
        name = getattr(getattr(one, "func", None), "__name__", "")
        if name in _READERS:
            return _READERS[name]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        return " or ".join(_what(one, []) for one in arguments if one is not type(None))
    if origin is Annotated:
        return _what(arguments[0], list(arguments[1:]))
    if origin is Literal:
        return " or ".join(f"`{str(one).lower() if isinstance(one, bool) else one}`" for one in arguments)
    if origin is list:
        return f"list of {_what(arguments[0], [])}"
    if origin is dict:
        return f"map of {_what(arguments[0], [])} to {_what(arguments[1], [])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return title(annotation)
    return _WORDS[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if isinstance(value, BaseModel | dict):
        return "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        unit = "s" if _what(field.annotation, field.metadata) == "duration" else ""
        return f"{value:g}{unit}"
    return str(value)


DEFS = "#/$defs/{model}"


def rules_schema() -> dict[str, Any]:
    """Return the schema of a rule document: a list of rules of all kinds, told apart by `kind`, and perhaps a
    scenario."""
    document, definitions = document_schema(DEFS)
    return {"title": "kproxy rules", **document, "$defs": definitions}


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
