"""Commands that print static facts: JSON Schemas, the protocol's table, shell completion."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import get_completion_class

from kproxy.base.terminal import console, say
from kproxy.protocol.table.layout import grammar
from kproxy.protocol.table.schema import Api, apis

from .decode import find_api, known_version

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KPROXY_COMPLETE"
"""Environment variable that the script sets to ask kproxy for completions; click derives it from the name kproxy."""
HEADINGS = ("key", "name", "versions", "aliases")


@click.command("schema")
@click.argument("what", type=click.Choice(["rules", "config", "tests"]))
def schema_command(what: str) -> None:
    """Print the JSON Schema of rule documents, of config documents or of tests of rules.

    Editors with YAML support take it, for instance by a first line
    `# yaml-language-server: $schema=kproxy-rules.json`.
    """
    schema = {"rules": rules_schema, "config": config_schema, "tests": tests_schema}[what]()
    say(json.dumps(schema, indent=2))


def config_schema() -> dict[str, Any]:
    from kproxy.app.config.document import Config

    return {"$schema": DIALECT, **Config.model_json_schema()}


def tests_schema() -> dict[str, Any]:
    """Return the JSON Schema of a `*.test.yaml` file. Any field may be in a `body`: they depend on API and version."""
    from kproxy.tools.rehearse.cases.model import CaseFile

    return {"$schema": DIALECT, **CaseFile.model_json_schema()}


def rules_schema() -> dict[str, Any]:
    """Return the JSON Schema of a rule document: rules of all kinds, discriminated by `kind`, and their stages."""
    from kproxy.rules.document import reference as json_schema

    return json_schema.rules_schema()


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
