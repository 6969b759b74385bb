"""`kproxy ready`: whether a running proxy is, as an exit code; for health checks where there is no curl."""

from __future__ import annotations

import json

import click

from kproxy.cli.admin_client import Admin, with_admin
from kproxy.errors import WeDidWrong


@click.command("ready")
@click.option("--live", is_flag=True, help="Only whether it runs and answers.")
@with_admin
def command(admin: Admin, live: bool) -> None:
    """Whether a running proxy can serve clients: its ports are open and its brokers answer.

    Exit code 0 if so. Else 1, and what it waits for; also if nothing answers at the admin address. It needs no token.
    """
    status, text = admin.probe("/livez" if live else "/readyz")
    if status == 200:
        click.echo("alive" if live else "ready")
        return
    try:
        reasons = json.loads(text)["waiting_for"]
    except (ValueError, KeyError, TypeError):
        raise WeDidWrong(f"what answers at {admin.url} is no kproxy (status {status})") from None
    for reason in reasons:
        click.echo(f"waiting for {reason}", err=True)
    raise SystemExit(1)
