"""Steps of the main process with and without workers: read rules, configure the log, run tasks and show their errors,
open the admin address."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from secrets import randbits
from time import monotonic, time
from typing import TYPE_CHECKING

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.app.config.changes import Origin, written_paths
from kproxy.app.config.document import Config
from kproxy.base.distribution import own_version
from kproxy.base.errors import DocumentError, InternalError, KproxyError
from kproxy.base.logs import THRESHOLD, LogQueue
from kproxy.base.terminal import printable
from kproxy.rules.document.store import RuleStore
from kproxy.rules.kinds.advertise import Advertise
from kproxy.rules.rule_set import RuleSet
from kproxy.runtime.config.network import ListenerConfig
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.io.scheduler import work_through
from kproxy.runtime.protocols import show
from kproxy.runtime.readiness import ClusterNeed
from kproxy.runtime.rule_files import RuleFiles

from . import garbage

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from kproxy.admin.backend import Backend
    from kproxy.admin.guard import AdminTokens
    from kproxy.app.config.document import AdminConfig
    from kproxy.record.component_collectors import CertificateFiles, CertificateSide


def read_rules(config: Config, log: FilteringBoundLogger) -> tuple[RuleStore, RuleFiles]:
    """Return a store with the rules of the config's files, and those files. Raises DocumentError."""
    seed = randbits(32) if config.seed is None else config.seed
    store = RuleStore(seed, config.places())
    files = RuleFiles(config.rules, log, written_paths(config))
    store.replace_files(files.first(), monotonic())
    return store, files


def advertising(rules: RuleSet) -> list[Advertise]:
    return [rule for rule in rules.rules if isinstance(rule, Advertise)]


def log_start(config: Config, origin: Origin, log: FilteringBoundLogger) -> None:
    """Log the version, config and listeners of the starting proxy."""
    listeners = [f"{one.name} {one.bind} to {one.cluster}" for one in config.listeners]
    log.info("kproxy starts", version=own_version(), config=origin.name, listeners=listeners,
             workers=config.workers, pid=os.getpid())  # fmt: skip


def log_listeners(opened: Iterable[tuple[ListenerConfig, int]], reactor: Reactor, log: FilteringBoundLogger) -> None:
    """Log listeners with their ports, the first ones at once, others in later turns: there may be thousands."""

    def lines() -> Iterator[None]:
        for listener, port in opened:
            log.info("listening", listener=listener.name, address=show((listener.bind.host, port)),
                     cluster=listener.cluster, tls=listener.tls is not None)  # fmt: skip
            yield

    work_through(reactor, lines())


def run_all(made: Callable[[], Callable[[], Awaitable[None]]], lines: LogQueue) -> int:
    """Run the function that `made` returns. Return 0, or 1 after a failure; its reasons go to standard error after the
    log lines."""
    try:
        trio.run(made())
    except* (KproxyError, OSError) as group:
        failed = [str(error) if isinstance(error, DocumentError) else f"kproxy: {error}" for error in leaves(group)]
    else:
        return 0
    for line in failed:
        lines.write(f"{printable(line)}\n")
    return 1


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


async def sweep() -> None:
    """Have the garbage collector look at all objects every few minutes, until cancelled."""
    while True:
        await trio.sleep(garbage.SWEEP_EVERY)
        garbage.sweep()


async def open_admin(
    nursery: trio.Nursery, app: ASGIApp, admin: AdminConfig, log: FilteringBoundLogger, reactor: Reactor
) -> str:
    """Start to serve the admin API, and return its URL. Raises InternalError when its address cannot be bound."""
    from kproxy.admin.http_server import serve_admin

    try:
        url = await nursery.start(serve_admin, app, admin.bind.host, admin.bind.port, log, lambda: reactor.turns)
    except* OSError as group:
        why = "; ".join(error.strerror or str(error) for error in leaves(group) if isinstance(error, OSError))
        raise InternalError(f"admin cannot bind {admin.bind}: {why}") from None
    log.info("admin", url=url)
    return str(url)


def certificates_of(config: Config) -> CertificateFiles:
    """Return the files of the certificates that kproxy shows to clients and to brokers."""
    from kproxy.record.component_collectors import certificate_files

    return certificate_files(
        [(one.name, one.tls.cert if one.tls else None) for one in config.listeners],
        [(name, one.tls.cert if one.tls else None) for name, one in config.clusters.items()],
    )


def tokens_of(admin: AdminConfig) -> AdminTokens:
    """Return the tokens that clients of the admin API have to send."""
    from kproxy.admin.guard import AdminTokens

    full, read = admin.token, admin.read_token
    return AdminTokens(
        None if full is None else full.get_secret_value(), None if read is None else read.get_secret_value()
    )


def use_at_once(config: Config, backend: Backend | None, certificates: dict[tuple[CertificateSide, str], str]) -> None:
    """Apply the log and admin settings of a config that is in force now; the admin address stays open."""
    THRESHOLD.use(config.log.level)
    certificates.clear()
    if config.admin is not None:
        certificates.update(certificates_of(config))
        if backend is not None:
            backend.need = config.admin.ready
            backend.tokens.use(tokens_of(config.admin))
            backend.use_view(config.view)


def need_of(config: Config) -> ClusterNeed:
    """Return the number of clusters that have to answer before the proxy is ready: any one, or all."""
    return "any" if config.admin is None else config.admin.ready


def instance(config: Config) -> str:
    """Return the name of this process in its records: from the config, otherwise the host's name."""
    return config.instance or socket.gethostname()


class WallClock:
    """Clock of a sink: turns monotonic seconds into seconds since 1970. `adjust` makes it follow the system's clock."""

    def __init__(self) -> None:
        self.offset = time() - monotonic()

    def __call__(self, when: float) -> float:
        return when + self.offset

    def adjust(self) -> None:
        self.offset = time() - monotonic()
