"""`kproxy config`: shows the config of a running proxy, what another one would change, and puts it in force."""

from __future__ import annotations

import sys
from typing import Any

import click

from kproxy.base.errors import DocumentError, InputError
from kproxy.base.named_file import MOST_BYTES, read_named, reason
from kproxy.base.terminal import as_json, print_json, print_rows, say
from kproxy.cli.admin_client import JSON, YAML, Admin, with_admin

document = click.argument("file", metavar="[FILE]", required=False)


@click.group("config")
def command() -> None:
    """See and change the config of a running proxy, by its admin API.

    Without FILE, the proxy reads the config file again that it was started with. A FILE (- for standard input) is taken
    where the admin address asks for a token; names of files in it mean files of the proxy's machine, relative to its
    own config file. Exit codes: 0 ok, 1 refused, or nothing answers, 2 usage.
    """


@command.command("show")
@as_json
@with_admin
def show(admin: Admin, as_json: bool) -> None:
    """Show what is in force, without secrets: version, origin, file, counters and listeners; all of it with --json."""
    found = admin("GET", "/api/config")
    if as_json:
        print_json(found)
        return
    rows = [(name, found[name]) for name in ("version", "origin", "file", "applied", "rejected")]
    rows += [(f"cluster {name}", ", ".join(one["bootstrap"])) for name, one in found["config"]["clusters"].items()]
    rows += [(f"listener {one['name']}", f"{one['bind']} to {one['cluster']}") for one in found["config"]["listeners"]]
    print_rows(("name", "value"), rows)
    _print_not_in_file(found)


@command.command("diff")
@document
@as_json
@with_admin
def diff(admin: Admin, file: str | None, as_json: bool) -> None:
    """Say what a config would change, and what becomes of what is open; nothing is changed.

    Each line is a part of the config: whether it is added, removed or changed, or needs a restart.
    """
    _print_steps(_send(admin, "/api/config/check", file), as_json, "the same as in force")


@command.command("apply")
@document
@click.option("--except-restart", is_flag=True, help="Leave as it is what needs a restart, and apply the rest.")
@click.option(
    "--allow-cluster-change", is_flag=True,
    help="Accept that a listener leads to a cluster with another id, or with an unknown one. Clients may skip records "
    "or read them again.",
)  # fmt: skip
@as_json
@with_admin
def apply(admin: Admin, file: str | None, except_restart: bool, allow_cluster_change: bool, as_json: bool) -> None:
    """Put a config in force, all of it or nothing, and print the changes.

    Settings from FILE are lost at a restart, unless the proxy's own config file has them. A listener that would lead to
    another cluster is refused, with the ids of both.
    """
    query = {
        "except_restart": "true" if except_restart else None,
        "allow_cluster_change": "true" if allow_cluster_change else None,
    }
    _print_steps(_send(admin, "/api/config", file, query), as_json, "nothing has changed")


def _send(admin: Admin, path: str, file: str | None, query: dict[str, Any] | None = None) -> Any:
    """Send a document, or none, and return the answer. Raises DocumentError with places in the file."""
    if file is None:
        return admin("POST", path, b"", kind=YAML, query=query)
    where = "<stdin>" if file == "-" else file
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else _read(file)
    if not data.strip():  # without a body the proxy would read its own file
        raise InputError(f"{where} is empty")
    try:
        return admin("POST", path, data, kind=JSON if file.endswith(".json") else YAML, query=query)
    except DocumentError as error:
        raise DocumentError([line.replace("<api>", where, 1) for line in error.mistakes]) from None


def _read(file: str) -> bytes:
    try:
        return read_named(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from None


def _print_steps(found: dict[str, Any], as_json: bool, nothing: str) -> None:
    if as_json:
        print_json(found)
        return
    if found["steps"]:
        columns = ("kind", "name", "fields", "effect")
        rows = [{**step, "fields": ", ".join(_short(step))} for step in found["steps"]]
        print_rows(columns, [[row[name] for name in columns] for row in rows])
    else:
        say(nothing, err=True)
    _print_not_in_file(found)


def _short(step: dict[str, Any]) -> list[str]:
    """Return the settings that differ, without the name of the part that they are of."""
    return [field.removeprefix(f"{step['name']}.") for field in step["fields"]]


def _print_not_in_file(found: dict[str, Any]) -> None:
    if found["not_in_file"]:
        say(f"applied and not in kproxy's own file: {', '.join(found['not_in_file'])}", err=True)
