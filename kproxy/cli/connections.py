"""`kproxy connections` and `kproxy ready`: the client connections of a running proxy, and if it can serve clients."""

from __future__ import annotations

import json
from urllib.parse import quote

import click

from kproxy.base.errors import InternalError
from kproxy.base.terminal import as_json, print_json, print_rows, say
from kproxy.cli.admin_client import Admin, segment, with_admin

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


@click.command("ready")
@click.option("--live", is_flag=True, help="Only whether it runs and answers.")
@click.option("--cluster", metavar="NAME", help="Only whether the clients of this cluster can be served.")
@with_admin
def ready_command(admin: Admin, live: bool, cluster: str | None) -> None:
    """Say whether a running proxy can serve clients: its ports are open and its brokers answer.

    Exit code 0 if so. Else 1, and what it waits for; also if nothing answers at the admin address. It needs no token.
    Of several clusters one has to answer, or all of them with "ready: all" in the config; those that do not are told.
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
        raise InternalError(f"what answers at {admin.url} is no kproxy (status {status})") from None
    if status == 200:
        say("ready")
        for reason in dead:
            say(f"without {reason}", err=True)
        return
    for reason in reasons:
        say(f"waiting for {reason}", err=True)
    raise SystemExit(1)
