"""`kproxy run` and `kproxy webhook`: start the proxy, or the admission webhook for Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

import kproxy.app.start  # noqa: F401 - before structlog is imported

if TYPE_CHECKING:
    from kproxy.app.config.document import Config

A = TypeVar("A")
T = TypeVar("T")


@click.command("run")
@click.option("--upstream", metavar="HOST:PORT[,…]", help="Brokers to begin with, separated by commas.")
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect; 127.0.0.1:9092 if not given.")
@click.option(
    "--advertise",
    metavar="HOST[:PORTS]",
    help="Addresses of brokers for clients, such as localhost:9093-9100 "
    "(default: the address of the connection, and ports after --listen).",
)
@click.option("--rules", metavar="PATH", multiple=True, help="A rule file or a folder of them; may be repeated.")
@click.option("--admin", metavar="HOST:PORT", help="Where to serve the admin API, /metrics, /livez and /readyz.")
@click.option("--seed", type=int, metavar="NUMBER", help="Seed of rules without own seed (default: random, logged).")
@click.option("--workers", type=int, metavar="NUMBER", help="Processes that carry the traffic; 1 if not given.")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="A config document, instead of --upstream, --listen and --advertise.",
)
@click.option("--watch-config", is_flag=True, help="Apply the --config file whenever it changes, as SIGHUP does.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    rules: tuple[str, ...],
    admin: str | None,
    seed: int | None,
    workers: int | None,
    config_file: str | None,
    watch_config: bool,
    **network: str | None,
) -> None:
    """Start the proxy. SIGTERM or SIGINT stops it when requests in flight are answered, or after limits.drain_timeout.

    With --config, --rules adds to the document's rules; --admin, --seed and --workers override its values.
    """
    from kproxy.app.config.changes import FLAGS, Origin

    given = [name for name, value in network.items() if value is not None]
    if config_file is not None and given:
        raise click.UsageError(f"--{given[0]} is already set by the --config file")

    def adjust(config: Config) -> Config:
        return _changed(_added(config, rules, admin), seed, workers)

    if config_file is None:
        if watch_config:
            raise click.UsageError("--watch-config is for a --config file")
        config, origin = _changed(_from_flags(network, rules, admin), seed, workers), FLAGS
    else:
        from pathlib import Path

        from kproxy.app.config.document import usable_config
        from kproxy.rules.values.source import Source

        path = Path(config_file)
        config = adjust(usable_config(Source.open(path), path.parent))
        origin = Origin(config_file, path, adjust, watch_config)
    if config.workers > 1:
        from kproxy.app.supervisor import run
    else:
        from kproxy.app.app import run
    ctx.exit(run(config, origin))


def _changed(config: Config, seed: int | None, workers: int | None) -> Config:
    if seed is not None:
        from kproxy.rules.values.quantities import checked_seed

        config = config.model_copy(update={"seed": flag("--seed", checked_seed, seed)})
    if workers is not None:
        config = config.model_copy(update={"workers": _workers(workers)})
    return config


def _from_flags(network: Mapping[str, str | None], rules: tuple[str, ...], admin: str | None) -> Config:
    """Return the config from --upstream, --listen and --advertise."""
    from kproxy.app.config.document import DEFAULT_LISTEN, admin_from, advertise_from, config_from_flags
    from kproxy.rules.values.address import Address, parse_server

    upstream, listen, advertise = (network[name] for name in ("upstream", "listen", "advertise"))
    if not upstream:
        raise click.UsageError("either --upstream HOST:PORT or --config FILE is needed")
    brokers = [flag("--upstream", parse_server, one.strip()) for one in upstream.split(",")]
    bind = DEFAULT_LISTEN if listen is None else flag("--listen", Address.parse, listen)
    admin_config = None if admin is None else flag("--admin", admin_from, admin)
    appearance = None if advertise is None else flag("--advertise", advertise_from, advertise)
    return config_from_flags(brokers, bind, rules, admin_config, appearance)


def _added(config: Config, rules: tuple[str, ...], admin: str | None) -> Config:
    from kproxy.app.config.document import admin_from

    changes: dict[str, object] = {"rules": [*config.rules, *rules]}
    if admin is not None:
        changes["admin"] = flag("--admin", lambda text: admin_from(text, config.admin), admin)
    return config.model_copy(update=changes)


def _workers(number: int) -> int:
    from kproxy.app.config.document import HAS_WORKERS, MOST_WORKERS, NO_WORKERS

    if not 1 <= number <= MOST_WORKERS:
        raise click.BadParameter(f"{number} processes, expected 1 to {MOST_WORKERS}", param_hint="--workers")
    if number > 1 and not HAS_WORKERS:
        raise click.BadParameter(NO_WORKERS, param_hint="--workers")
    return number


def flag(name: str, parse: Callable[[A], T], given: A) -> T:
    """Return the parsed value of an option. Raises BadParameter with the error."""
    try:
        return parse(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=name) from None


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
def webhook_command(
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

    Kubernetes sends each new pod to POST /inject, according to its MutatingWebhookConfiguration. A pod with the
    annotation `kproxy.io/inject: "true"` gets kproxy as a sidecar. If that is impossible, the pod is rejected with the
    reasons.
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
    """Return the name of an image. Raises ValueError for an invalid name."""
    import re

    if not re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9._/:@]{0,511}", text):
        raise ValueError(f"expected an image as REGISTRY/NAME:TAG, got {text!r}")
    return text
