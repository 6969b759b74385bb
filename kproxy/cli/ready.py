"""`kproxy ready`: tells by its exit code if a running proxy is ready; for health checks where there is no curl."""

from __future__ import annotations

import json
from urllib.parse import quote

import click

from kproxy.cli.admin_client import Admin, with_admin
from kproxy.errors import InternalError
from kproxy.terminal import say


@click.command("ready")
@click.option("--live", is_flag=True, help="Only whether it runs and answers.")
@click.option("--cluster", metavar="NAME", help="Only whether the clients of this cluster can be served.")
@with_admin
def command(admin: Admin, live: bool, cluster: str | None) -> None:
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
