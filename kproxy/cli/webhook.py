"""`kproxy webhook`: puts kproxy into annotated pods of Kubernetes as a sidecar."""

from __future__ import annotations

from pathlib import Path

import click

import kproxy.app.start  # noqa: F401 - before structlog is imported

from .run import flag

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("webhook")
@click.option("--cert", required=True, metavar="FILE", type=FILE, help="Certificate chain of the webhook, PEM.")
@click.option("--key", metavar="FILE", type=FILE, help="Its private key, PEM; by default in the same file.")
@click.option(
    "--client-ca", metavar="FILE", type=FILE,
    help="Authorities, PEM: reviews are taken only from clients with a certificate of theirs.",
)  # fmt: skip
@click.option("--image", required=True, metavar="IMAGE", help="kproxy's image, as pods are to have it.")
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:8443", show_default=True, help="Where Kubernetes asks."
)
@click.option(
    "--config-map", metavar="NAME", default="kproxy-sidecar", show_default=True,
    help="ConfigMap with kproxy.yaml, in the namespace of each pod; an annotation may name another.",
)  # fmt: skip
@click.option(
    "--native", is_flag=True, help="Sidecars are init containers that restart always (Kubernetes 1.29 or newer)."
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    cert: Path,
    key: Path | None,
    client_ca: Path | None,
    image: str,
    listen: str,
    config_map: str,
    native: bool,
) -> None:
    """Serve the admission webhook over HTTPS until SIGTERM.

    Kubernetes sends each new pod to POST /inject, as its MutatingWebhookConfiguration says. A pod with the annotation
    `kproxy.io/inject: "true"` gets kproxy as a sidecar; one that cannot have it is refused, with all reasons.
    """
    from functools import partial

    from kproxy.admin.webhook.annotations import SidecarOptions, check_name
    from kproxy.admin.webhook.server import run_webhook
    from kproxy.app.main import run_all
    from kproxy.base.logs import log_of_process
    from kproxy.rules.values.address import Address
    from kproxy.rules.values.tls import ListenerTls

    bind = flag("--listen", Address.parse, listen)
    options = SidecarOptions(
        image=flag("--image", check_image, image),
        config_map=flag("--config-map", check_name, config_map),
        native=native,
    )
    tls = ListenerTls(
        cert=str(cert), key=None if key is None else str(key),
        client_ca=None if client_ca is None else str(client_ca),
        client_auth=None if client_ca is None else "optional",
    )  # fmt: skip
    log, lines = log_of_process("auto", "info")
    ctx.exit(run_all(lambda: partial(run_webhook, bind, tls, options, log), lines))


def check_image(text: str) -> str:
    """Return the name of an image. Raises ValueError for what cannot be one."""
    import re

    if not re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}", text):
        raise ValueError(f"an image is REGISTRY/NAME:TAG, found {text!r}")
    return text
