"""Commands for a running proxy by its admin API: `kproxy rules`, `faults`, `config`, `connections` and `ready`."""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import quote

import click

from kproxy.base.errors import DocumentError, InputError, InternalError
from kproxy.base.named_file import MOST_BYTES, read_named, reason
from kproxy.base.terminal import as_json, print_json, print_rows, say
from kproxy.cli.admin_client import JSON, YAML, Admin, segment, with_admin

ORIGINS_WITHOUT_REPORT = ("file",)
"""Origins of rules whose errors are not reported to the user who submits them: files are reloaded by the process."""
names = click.argument("names", metavar="NAME…", nargs=-1, required=True)


@click.command("list")
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
    if last is not None and last["origin"] in ORIGINS_WITHOUT_REPORT:
        say(f"rules of origin {last['origin']} were rejected at {last['at']}:", err=True)
        for one in last["mistakes"]:
            say(f"{one['where']}: {one['message']}", err=True)


def state(rule: dict[str, Any]) -> str:
    """Return a rule's state: on, dry run, off by a user, faults disabled, or the stage that it waits for."""
    if not rule["enabled"]:
        return "off"
    if not rule["in_force"]:
        return f"stage {rule['stage']}" if rule["stage"] is not None else "faults disabled"
    return "dry run" if rule["mode"] == "dry_run" else "on"


@click.command("show")
@click.argument("name")
@as_json
@with_admin
def show_rule(admin: Admin, name: str, as_json: bool) -> None:
    """Show one rule with all its properties."""
    found = admin("GET", f"/api/rules/{segment(name)}")
    if as_json:
        print_json(found)
    else:
        print_rows(("field", "value"), list(found.items()))


@click.command("add")
@click.argument("file")
@click.option("--ttl", metavar="DURATION", help="They go away by themselves after that, such as 30s.")
@click.option("--replace", is_flag=True, help="Replace rules of the same names that came over the API.")
@with_admin
def add(admin: Admin, file: str, ttl: str | None, replace: bool) -> None:
    """Add the rules of a document (- for standard input), all of them or none."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else read_file(file)
    kind = JSON if file.endswith(".json") else YAML
    query = {"ttl": ttl, "replace": "true" if replace else None}
    try:
        admin("POST", "/api/rules", data, kind=kind, query=query)
    except DocumentError as error:
        where = "<stdin>" if file == "-" else file
        raise DocumentError([line.replace("<api>", where, 1) for line in error.mistakes]) from None


def read_file(file: str) -> bytes:
    try:
        return read_named(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from None


@click.command("rm")
@names
@with_admin
def remove(admin: Admin, names: tuple[str, ...]) -> None:
    """Remove rules that were added by the API or by tests."""
    for name in names:
        admin("DELETE", f"/api/rules/{segment(name)}")


@click.command("enable")
@names
@with_admin
def enable(admin: Admin, names: tuple[str, ...]) -> None:
    """Turn disabled rules on again."""
    _each(admin, names, "enable")


@click.command("disable")
@names
@with_admin
def disable(admin: Admin, names: tuple[str, ...]) -> None:
    """Turn rules off; they stay, with their counters."""
    _each(admin, names, "disable")


@click.command("reset")
@click.argument("names", metavar="[NAME…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All rules.")
@with_admin
def reset(admin: Admin, names: tuple[str, ...], everything: bool) -> None:
    """Set counters of rules to 0 and restart triggers."""
    if everything == bool(names):
        raise click.UsageError("either names of rules or --all")
    if everything:
        admin("POST", "/api/reset")
    _each(admin, names, "reset")


@click.command("resume")
@names
@with_admin
def resume(admin: Admin, names: tuple[str, ...]) -> None:
    """Resume the frames that rules hold, and print their number."""
    print_rows(
        ("name", "resumed"),
        [(name, admin("POST", f"/api/rules/{segment(name)}/resume")["resumed"]) for name in names],
    )


@click.command("wait")
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
    """Wait for a rule's counter; exit with code 1 at the timeout."""
    query = {"hits": hits, "count": count, "timeout": timeout}
    found = admin("POST", f"/api/rules/{segment(name)}/wait", query=query, wait=LONGEST_WAIT)
    if as_json:
        print_json(found)
    if not found["reached"]:
        number = found["rule"][count]
        say(f'kproxy: the rule "{name}" has {count} {number} of {hits} times after {timeout}', err=True)
        click.get_current_context().exit(1)


LONGEST_WAIT = 3600.0
"""Longest wait that the API accepts, in seconds."""


def _each(admin: Admin, names: tuple[str, ...], action: str) -> None:
    for name in names:
        admin("POST", f"/api/rules/{segment(name)}/{action}")


@click.group("faults")
def faults_group() -> None:
    """Disable and enable all faults of a running proxy, by its admin API.

    Access rules, quotas, renames, code and rules with `permanent: true` stay in force. Exit codes: 0 ok, 1 refused, or
    nothing answers, 2 usage.
    """


@faults_group.command("disable")
@with_admin
def disable_faults(admin: Admin) -> None:
    """Disable all faults, including those loaded later, until `kproxy faults enable`.

    Prints the faults that were turned off, and the live rules that stay in force.
    """
    _print_faults(admin("POST", "/api/faults/disable"))


@faults_group.command("enable")
@with_admin
def enable_faults(admin: Admin) -> None:
    """Enable faults again, and print those that are in force again."""
    _print_faults({**admin("POST", "/api/faults/enable"), "unaffected": []})


@faults_group.command("status")
@as_json
@with_admin
def faults_status(admin: Admin, as_json: bool) -> None:
    """Show whether faults are disabled, and list all faults."""
    found = admin("GET", "/api/faults")
    if as_json:
        print_json(found)
        return
    say(f"faults are {'disabled' if found['disabled'] else 'enabled'}", err=True)
    _print_faults({**found, "unaffected": []})


def _print_faults(found: dict[str, Any]) -> None:
    rows = [
        (one["name"], one["kind"], one["family"], "on" if one["in_force"] else "off", one["note"])
        for one in found["faults"]
    ]
    rows += [(one["name"], one["kind"], one["family"], "unaffected", None) for one in found["unaffected"]]
    if rows:
        print_rows(("name", "kind", "family", "state", "note"), rows)
    if found["more"]:
        say(f"and {found['more']} more", err=True)


document = click.argument("file", metavar="[FILE]", required=False)


@click.group("config")
def config_group() -> None:
    """See and change the config of a running proxy, by its admin API.

    Without FILE, the proxy reads the config file again that it was started with. A FILE (- for standard input) is taken
    where the admin address asks for a token; names of files in it mean files of the proxy's machine, relative to its
    own config file. Exit codes: 0 ok, 1 refused, or nothing answers, 2 usage.
    """


@config_group.command("show")
@as_json
@with_admin
def show_config(admin: Admin, as_json: bool) -> None:
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


@config_group.command("diff")
@document
@as_json
@with_admin
def diff(admin: Admin, file: str | None, as_json: bool) -> None:
    """List the changes that a config would make, and their effect on open connections.

    Each line is a part of the config: whether it is added, removed or changed, or needs a restart.
    """
    _print_steps(_send(admin, "/api/config/check", file), as_json, "the same as in force")


@config_group.command("apply")
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
    """Send a document, or none, and return the response. Raises DocumentError with places in the file."""
    if file is None:
        return admin("POST", path, b"", kind=YAML, query=query)
    where = "<stdin>" if file == "-" else file
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else read_file(file)
    if not data.strip():  # without a body the proxy would read its own file
        raise InputError(f"{where} is empty")
    try:
        return admin("POST", path, data, kind=JSON if file.endswith(".json") else YAML, query=query)
    except DocumentError as error:
        raise DocumentError([line.replace("<api>", where, 1) for line in error.mistakes]) from None


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
    """Return the settings that differ, without the name of their part."""
    return [field.removeprefix(f"{step['name']}.") for field in step["fields"]]


def _print_not_in_file(found: dict[str, Any]) -> None:
    if found["not_in_file"]:
        say(f"applied and not in kproxy's own file: {', '.join(found['not_in_file'])}", err=True)


COLUMNS = ("id", "client", "listener", "node", "broker", "in_flight", "client_bytes", "broker_bytes", "outdated")


@click.group("connections")
def connections_group() -> None:
    """See, close and recycle the client connections of a running proxy, by its admin API.

    Rules for names, addresses and versions are bound when a connection opens. Those that are bound to other rules than
    a new one would be are outdated; recycled, they answer what is in flight, close, and come back.
    """


@connections_group.command("list")
@as_json
@with_admin
def list_connections(admin: Admin, as_json: bool) -> None:
    """List all connections: id, client, listener, node, broker, in flight, bytes from client and broker, outdated."""
    found = admin("GET", "/api/connections")
    if as_json:
        print_json(found)
    else:
        print_rows(COLUMNS, [[one[name] for name in COLUMNS] for one in found["connections"]])


@connections_group.command("close")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@click.option("--reset", is_flag=True, help="With a reset, and without what still waits to be written.")
@with_admin
def close(admin: Admin, ids: tuple[str, ...], reset: bool) -> None:
    """Close connections now, whatever is in flight."""
    for number in ids:
        admin("DELETE", f"/api/connections/{segment(number)}", query={"reset": "true" if reset else None})


@connections_group.command("recycle")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All connections, not only outdated ones.")
@with_admin
def recycle(admin: Admin, ids: tuple[str, ...], everything: bool) -> None:
    """Close connections once what is in flight is answered: these, or all that are outdated."""
    if ids and everything:
        raise click.UsageError("either ids or --all")
    for number in ids:
        admin("POST", f"/api/connections/{segment(number)}/recycle")
    if not ids:
        which = "all" if everything else "outdated"
        found = admin("POST", "/api/connections/recycle", query={"which": which})
        print_rows(("recycled",), [(found["connections"],)])


@click.command("ready")
@click.option("--live", is_flag=True, help="Only whether it runs and answers.")
@click.option("--cluster", metavar="NAME", help="Only whether the clients of this cluster can be served.")
@with_admin
def ready_command(admin: Admin, live: bool, cluster: str | None) -> None:
    """Check whether a running proxy can serve clients: its ports are open and its brokers answer.

    Exit code 0 if so. Otherwise 1 with the reason, also if no server responds at the admin address. No token is needed.
    With several clusters one has to answer, or all with "ready: all" in the config; the others are printed.
    """
    if live and cluster is not None:
        raise click.UsageError("--live and --cluster do not go together")
    if cluster == "":
        raise click.UsageError("--cluster needs a name")
    path = "/readyz" if cluster is None else f"/readyz/{quote(cluster, safe='')}"
    status, text = admin.probe("/livez" if live else path)
    if live and status == 200:
        say("alive")
        return
    try:
        said = json.loads(text)
        if status == 404 and cluster is not None and said["error"]["code"] == "not_found":
            raise InternalError(said["error"]["message"])
        reasons = said["waiting_for"]
        dead = [why for one in said.get("clusters", {}).values() for why in one["waiting_for"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise admin.other_server(f"status {status}") from None
    if status == 200:
        say("ready")
        for reason in dead:
            say(f"without {reason}", err=True)
        return
    for reason in reasons:
        say(f"waiting for {reason}", err=True)
    raise SystemExit(1)
