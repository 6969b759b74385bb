"""Commands that print static facts: JSON Schemas, the protocol's table, shell completion."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import get_completion_class

from kproxy.base.distribution import DISTRIBUTION, own_version, project_url
from kproxy.base.terminal import console, say
from kproxy.protocol.table.layout import grammar
from kproxy.protocol.table.schema import Api, apis

from .decode import find_api, known_version

DIALECTS = {"2020-12": "https://json-schema.org/draft/2020-12/schema", "7": "http://json-schema.org/draft-07/schema#"}
DOCUMENTS = {
    "rules": ("Rules of kproxy, a proxy for Kafka", ["kproxy-rules.yaml", "*.kproxy-rules.yaml"]),
    "config": ("Config of kproxy, a proxy for Kafka", ["kproxy.yaml", "kproxy.yml"]),
    "tests": ("Tests for rules of kproxy, a proxy for Kafka", ["kproxy-rules.test.yaml", "*.kproxy-rules.test.yaml"]),
}
"""Description and file names in SchemaStore's catalog, by kind of document. A catalog rejects common file names."""
NOT_IN_DRAFT_7 = frozenset(("discriminator", "ge", "gt", "le", "lt"))
"""Keywords that no draft has; strict validators reject them."""
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KPROXY_COMPLETE"
"""Environment variable that the script sets to ask kproxy for completions; click derives it from the name kproxy."""
HEADINGS = ("key", "name", "versions", "aliases")


@click.command("schema")
@click.argument("what", type=click.Choice(list(DOCUMENTS)))
@click.option(
    "--draft", type=click.Choice(list(DIALECTS)), default="2020-12", show_default=True,
    help="Draft of JSON Schema; most editors support 7.",
)  # fmt: skip
@click.option("--catalog", is_flag=True, help="Print the schema's entry for the catalog of SchemaStore instead.")
def schema_command(what: str, draft: str, catalog: bool) -> None:
    """Print the JSON Schema of rule documents, of config documents or of tests of rules.

    Editors with YAML support take it, for instance by a first line
    `# yaml-language-server: $schema=kproxy-rules.json`.
    """
    say(json.dumps(catalog_entry(what) if catalog else identified_schema(what, draft), indent=2))


def identified_schema(what: str, draft: str = "2020-12") -> dict[str, Any]:
    """Return a schema with its dialect and its version: in `$id` if the package has a URL, otherwise in `$comment`.

    A schema without `$id` is identified by the URI that it was retrieved from (JSON Schema core, section 9.1.1).
    """
    url, version = project_url(), own_version()
    name = what if draft == "7" else f"{what}.{draft}"
    identity = {"$id": f"{url}/schemas/{version}/{name}.json"} if url else {"$comment": f"kproxy {version}"}
    return {"$schema": DIALECTS[draft], **identity, **schema_of(what, draft)}


def catalog_entry(what: str) -> dict[str, Any]:
    url = project_url()
    if url is None:
        raise click.ClickException(f"expected a Project-URL in the metadata of {DISTRIBUTION}, got none")
    description, files = DOCUMENTS[what]
    schema = f"{url}/schemas/{what}.json"
    return {"name": f"kproxy {what}", "description": description, "fileMatch": files, "url": schema}


def schema_of(what: str, draft: str = "2020-12") -> dict[str, Any]:
    """Return the JSON Schema of a document, without dialect and identity.

    rules: all kinds, discriminated by `kind`, and stages. tests: a `body` may have any field, since fields depend on
    API and version.
    """
    from kproxy.app.config.document import Config
    from kproxy.rules.document.reference import rules_schema
    from kproxy.tools.rehearse.cases.model import CaseFile

    models = {"rules": rules_schema, "config": Config.model_json_schema, "tests": CaseFile.model_json_schema}
    schema: dict[str, Any] = models[what]()
    return schema if draft == "2020-12" else in_draft_7(schema)


def in_draft_7(schema: Any) -> Any:
    """Return a schema of 2020-12 in draft 7, where definitions have another name and a `$ref` hides its neighbours."""
    if isinstance(schema, list):
        return [in_draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$defs", "properties", "patternProperties"):
            made[key.replace("$defs", "definitions")] = {name: in_draft_7(one) for name, one in value.items()}
        elif key == "$ref":
            made[key] = value.replace("#/$defs/", "#/definitions/")
        elif key not in NOT_IN_DRAFT_7:
            made[key] = value if key in ("const", "default", "enum") else in_draft_7(value)
    return {"allOf": [{"$ref": made.pop("$ref")}], **made} if "$ref" in made and len(made) > 1 else made


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a script for SHELL that completes kproxy's commands, options and file names with the tab key.

    \b
      bash:  echo 'eval "$(kproxy completion bash)"' >> ~/.bashrc        (bash 4.4 or newer)
      zsh:   echo 'eval "$(kproxy completion zsh)"' >> ~/.zshrc
      fish:  kproxy completion fish > ~/.config/fish/completions/kproxy.fish
    """
    from kproxy.cli import main

    found = get_completion_class(shell)
    assert found is not None, "click knows all of them"
    say(found(main, {}, "kproxy", VARIABLE).source())


@click.command("protocol")
@click.argument("api", required=False)
@click.argument("version", type=int, required=False)
def protocol_command(api: str | None, version: int | None) -> None:
    """List the APIs; or show one (by name or key), and the grammar of its request and response.

    Without VERSION the newest is shown. The notation is that of Kafka's protocol guide: COMPACT_ types and a TAG_BUFFER
    in flexible versions, arrays in brackets.
    """
    if api is None:
        print_api_table() if sys.stdout.isatty() else print_apis()
        return
    found = find_api(api)
    if version is None:
        say("\n".join(facts(found)) + "\n")
    for line in grammars(found, known_version(found, found.versions.last if version is None else version)):
        say(line)


def row(api: Api) -> tuple[str, str, str, str]:
    return str(api.key), api.name, str(api.versions), ", ".join(api.aliases)


def print_apis() -> None:
    """Print a line for each API, in columns of blanks, for pipes."""
    rows = [HEADINGS, *map(row, apis())]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADINGS))]
    for line in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_api_table() -> None:
    """Print a line for each API, in a table for terminals."""
    from rich.table import Table

    made = Table(*HEADINGS, box=None, header_style="bold")
    for line in map(row, apis()):
        made.add_row(*line)
    console().print(made)


def facts(api: Api) -> Iterator[str]:
    """Yield the table's facts about an API as a whole, a line for each."""
    yield f"{api.name} (key {api.key})"
    if api.aliases:
        yield f"  also called  {', '.join(api.aliases)}"
    yield f"  versions     {api.versions}"
    yield f"  flexible     {api.flexible or 'none'}"
    if api.unstable:
        yield f"  not final    {api.unstable}"
    yield f"  served by    {', '.join(api.listeners)}"
    releases = (f"{versions or 'removed'} from Kafka {release}" for release, versions in api.releases.items())
    yield f"  in brokers   {'; '.join(releases)}"


def grammars(api: Api, version: int) -> Iterator[str]:
    """Yield the grammars of request and response, with an empty line between."""
    yield grammar(api.key, version, "request")
    yield ""
    yield grammar(api.key, version, "response")
