"""`kproxy rules`: shows and changes the rules of a running proxy."""

from __future__ import annotations

import sys
from typing import Any

import click

from kproxy.base.errors import DocumentError, InputError
from kproxy.base.named_file import MOST_BYTES, read_named, reason
from kproxy.base.terminal import as_json, print_json, print_rows, say
from kproxy.cli.admin_client import JSON, YAML, Admin, segment, with_admin

names = click.argument("names", metavar="NAME…", nargs=-1, required=True)


@click.group("rules")
def command() -> None:
    """See and change the rules of a running proxy, by its admin API.

    Output is a table on a terminal, tab-separated lines in pipes. Exit codes: 0 ok, 1 refused, nothing answers, or not
    reached in time, 2 usage.
    """


@command.command("list")
@as_json
@with_admin
def list_rules(admin: Admin, as_json: bool) -> None:
    """List all rules, in order: name, kind, family, origin, state, matched, fired, applied."""
    found = admin("GET", "/api/rules")
    if as_json:
        print_json(found)
        return
    columns = ("name", "kind", "family", "origin", "state", "matched", "fired", "applied")
    print_rows(columns, [[{**rule, "state": state(rule)}[name] for name in columns] for rule in found["rules"]])
    last = found["last_rejection"]
    if last is not None:
        say(f"rules of origin {last['origin']} were rejected at {last['at']}:", err=True)
        for one in last["mistakes"]:
            say(f"{one['where']}: {one['message']}", err=True)


def state(rule: dict[str, Any]) -> str:
    """Return a rule's state: on, observing, off by a user, killed, or the number of a stage that is not in force."""
    if not rule["enabled"]:
        return "off"
    if not rule["in_force"]:
        return f"stage {rule['stage']}" if rule["stage"] is not None else "killed"
    return "observing" if rule["mode"] == "observe" else "on"


@command.command("show")
@click.argument("name")
@as_json
@with_admin
def show(admin: Admin, name: str, as_json: bool) -> None:
    """Show one rule with all that is known of it."""
    found = admin("GET", f"/api/rules/{segment(name)}")
    if as_json:
        print_json(found)
    else:
        print_rows(("field", "value"), list(found.items()))


@command.command("add")
@click.argument("file")
@click.option("--ttl", metavar="DURATION", help="They go away by themselves after that, such as 30s.")
@click.option("--replace", is_flag=True, help="Replace rules of the same names that came over the API.")
@with_admin
def add(admin: Admin, file: str, ttl: str | None, replace: bool) -> None:
    """Add the rules of a document (- for standard input), all of them or none."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else _read(file)
    kind = JSON if file.endswith(".json") else YAML
    query = {"ttl": ttl, "replace": "true" if replace else None}
    try:
        admin("POST", "/api/rules", data, kind=kind, query=query)
    except DocumentError as error:
        where = "<stdin>" if file == "-" else file
        raise DocumentError([line.replace("<api>", where, 1) for line in error.mistakes]) from None


def _read(file: str) -> bytes:
    try:
        return read_named(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from None


@command.command("rm")
@names
@with_admin
def remove(admin: Admin, names: tuple[str, ...]) -> None:
    """Remove rules that came over the API or from tests."""
    for name in names:
        admin("DELETE", f"/api/rules/{segment(name)}")


@command.command("enable")
@names
@with_admin
def enable(admin: Admin, names: tuple[str, ...]) -> None:
    """Turn rules on again that were off."""
    _each(admin, names, "enable")


@command.command("disable")
@names
@with_admin
def disable(admin: Admin, names: tuple[str, ...]) -> None:
    """Turn rules off; they stay, with their counters."""
    _each(admin, names, "disable")


@command.command("reset")
@click.argument("names", metavar="NAME…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All rules.")
@with_admin
def reset(admin: Admin, names: tuple[str, ...], everything: bool) -> None:
    """Set counters of rules to 0; their triggers begin anew."""
    if everything == bool(names):
        raise click.UsageError("either names of rules or --all")
    if everything:
        admin("POST", "/api/reset")
    _each(admin, names, "reset")


@command.command("release")
@names
@with_admin
def release(admin: Admin, names: tuple[str, ...]) -> None:
    """Let go the requests that rules hold, and print how many those were."""
    print_rows(
        ("name", "released"),
        [(name, admin("POST", f"/api/rules/{segment(name)}/release")["released"]) for name in names],
    )


@command.command("wait")
@click.argument("name")
@click.option("--hits", type=click.IntRange(min=1), default=1, show_default=True, help="Until the counter is this.")
@click.option(
    "--count",
    type=click.Choice(["matched", "fired", "applied"]),
    default="fired",
    show_default=True,
    help="Which of the rule's counters.",
)
@click.option("--timeout", metavar="DURATION", default="10s", show_default=True, help="How long at most.")
@as_json
@with_admin
def wait(
    admin: Admin, name: str, hits: int, count: str, timeout: str, as_json: bool
) -> None:  # fmt: skip
    """Wait until a rule has acted so often; exit code 1 when it has not in time."""
    query = {"hits": hits, "count": count, "timeout": timeout}
    found = admin("POST", f"/api/rules/{segment(name)}/wait", query=query, wait=LONGEST_WAIT)
    if as_json:
        print_json(found)
    if not found["reached"]:
        number = found["rule"][count]
        say(f'kproxy: the rule "{name}" has {count} {number} of {hits} times after {timeout}', err=True)
        click.get_current_context().exit(1)


LONGEST_WAIT = 3600.0
"""Seconds that the API waits at most."""


@command.command("kill")
@with_admin
def kill(admin: Admin) -> None:
    """Turn all faults off, and those that are loaded afterwards, until unkill.

    Prints the rules that went off by it, and those that it left in force: access rules, quotas, code, and what is
    lasting.
    """
    _print_turned("off", admin("POST", "/api/kill"))


@command.command("unkill")
@with_admin
def unkill(admin: Admin) -> None:
    """Put all faults back as they were, and print the rules that are in force again."""
    found = admin("DELETE", "/api/kill")
    _print_turned("on", {**found, "left": []})


def _print_turned(word: str, found: dict[str, Any]) -> None:
    rows = [(one["name"], one["kind"], one["family"], word, one["note"]) for one in found["turned"]]
    rows += [(one["name"], one["kind"], one["family"], "left", None) for one in found["left"]]
    if rows:
        print_rows(("name", "kind", "family", "now", "note"), rows)
    if found["more"]:
        say(f"and {found['more']} more", err=True)


def _each(admin: Admin, names: tuple[str, ...], action: str) -> None:
    for name in names:
        admin("POST", f"/api/rules/{segment(name)}/{action}")
