"""`kproxy connections`: the client connections of a running proxy."""

from __future__ import annotations

import click

from kproxy.cli.admin_client import Admin, segment, with_admin
from kproxy.cli.table import as_json, print_json, print_rows

COLUMNS = ("id", "client", "listener", "node", "broker", "in_flight", "client_bytes", "broker_bytes", "outdated")


@click.group("connections")
def command() -> None:
    """See, close and recycle the client connections of a running proxy, by its admin API.

    Rules for names, addresses and versions are bound when a connection opens. Those that are bound to other rules than
    a new one would be are outdated; recycled, they answer what is in flight, close, and come back.
    """


@command.command("list")
@as_json
@with_admin
def list_connections(admin: Admin, as_json: bool) -> None:
    """List all connections: id, client, listener, node, broker, in flight, bytes from client and broker, outdated."""
    found = admin("GET", "/api/connections")
    if as_json:
        print_json(found)
    else:
        print_rows(COLUMNS, [[one[name] for name in COLUMNS] for one in found["connections"]])


@command.command("close")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@click.option("--reset", is_flag=True, help="With a reset, and without what still waits to be written.")
@with_admin
def close(admin: Admin, ids: tuple[str, ...], reset: bool) -> None:
    """Close connections now, whatever is in flight."""
    for number in ids:
        admin("DELETE", f"/api/connections/{segment(number)}", query={"reset": "true" if reset else None})


@command.command("recycle")
@click.argument("ids", metavar="ID…", nargs=-1)
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
