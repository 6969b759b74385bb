"""`kproxy run`: starts the proxy that flags or a config document describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    help="What clients are told in place of the brokers, such as "
    "localhost:9093-9100; by default the address that they connected to, and ports behind --listen.",
)
@click.option("--rules", metavar="PATH", multiple=True, help="A rule file or a folder of them; may be repeated.")
@click.option("--admin", metavar="HOST:PORT", help="Where to serve the admin API, /metrics, /livez and /readyz.")
@click.option("--seed", type=int, metavar="NUMBER", help="Of all chances; one is drawn and logged if not given.")
@click.option("--workers", type=int, metavar="NUMBER", help="Processes that carry the traffic; 1 if not given.")
@click.option("--config", "config_file", metavar="FILE", help="A config document, in place of --upstream and --listen.")
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
    """Start the proxy. It ends on SIGTERM or SIGINT, after requests in flight are answered.

    With --config, --rules adds to the rules of the document; --admin, --seed and --workers replace what it says.
    """
    from kproxy.app.config.changes import FLAGS, Origin

    given = [name for name, value in network.items() if value is not None]
    if config_file is not None and given:
        raise click.UsageError(f"--{given[0]} stands in the --config file")

    def adjust(config: Config) -> Config:
        return _changed(_added(config, rules, admin), seed, workers)

    if config_file is None:
        if watch_config:
            raise click.UsageError("--watch-config is for a --config file")
        config, origin = _changed(_from_flags(network, rules, admin), seed, workers), FLAGS
    else:
        from pathlib import Path

        from kproxy.app.config.reader import usable_config
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
    """Return the config with the values of --seed and --workers in place of its own."""
    if seed is not None:
        from kproxy.rules.values.quantities import checked_seed

        config = config.model_copy(update={"seed": flag("--seed", checked_seed, seed)})
    if workers is not None:
        config = config.model_copy(update={"workers": _workers(workers)})
    return config


def _from_flags(network: Mapping[str, str | None], rules: tuple[str, ...], admin: str | None) -> Config:
    """Return the config that --upstream, --listen and --advertise stand for."""
    from kproxy.app.config.reader import DEFAULT_LISTEN, admin_from, advertise_from, config_from_flags
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
    """Return the config of a document with the values of --rules and --admin."""
    from kproxy.app.config.reader import admin_from

    changes: dict[str, object] = {"rules": [*config.rules, *rules]}
    if admin is not None:
        changes["admin"] = flag("--admin", lambda text: admin_from(text, config.admin), admin)
    return config.model_copy(update=changes)


def _workers(number: int) -> int:
    from kproxy.app.config.document import MOST_WORKERS
    from kproxy.app.config.system_needs import HAS_WORKERS, NO_WORKERS

    if not 1 <= number <= MOST_WORKERS:
        raise click.BadParameter(f"{number} processes, expected 1 to {MOST_WORKERS}", param_hint="--workers")
    if number > 1 and not HAS_WORKERS:
        raise click.BadParameter(NO_WORKERS, param_hint="--workers")
    return number


def flag(name: str, parse: Callable[[A], T], given: A) -> T:
    """Return what an option means. Raises BadParameter with what is wrong in it."""
    try:
        return parse(given)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=name) from None
