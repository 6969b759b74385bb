"""Settings that need what only some systems have: right in any document, and refused where kproxy is to run.

`kproxy check` does not ask for this: a config may be written and checked on a laptop, for servers.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.base.sockets import HAS_DIVERSION, HAS_EPOLL, HAS_HAND_OVER, HAS_MARK, UNIX
from kproxy.base.system import HAS_FORKS, HAS_LOCKS
from kproxy.rules.values.address import Address
from kproxy.rules.values.model import Wrong

from .document import Config

HAS_WORKERS = HAS_EPOLL and HAS_HAND_OVER and HAS_FORKS
NO_WORKERS = "several workers need Linux, whose kernel hands connections from one process to another"


def system_needs(config: Config) -> Iterator[Wrong]:
    """Yield the settings that cannot be used on this system, with the reason."""
    if config.workers > 1 and not HAS_WORKERS:
        yield ("workers",), NO_WORKERS
    for index, listener in enumerate(config.listeners):
        if listener.transparent is not None and not HAS_DIVERSION:
            yield ("listeners", index, "transparent"), "transparent needs Linux, whose kernel diverts the connections"
    for name, cluster in config.clusters.items():
        if cluster.mark and not HAS_MARK:
            yield ("clusters", name, "mark"), "mark needs Linux, whose firewall can see it; 0 means none"
        if UNIX < 0:
            for number, server in enumerate(cluster.bootstrap):
                yield from _no_unix(("clusters", name, "bootstrap", number), server)
            for target, server in cluster.dial.items():
                yield from _no_unix(("clusters", name, "dial", str(target)), server)
    if config.audit is not None and config.audit.dir is not None and not HAS_LOCKS:
        text = "event files need locks that go with their process, which Windows does not have; audit.kafka needs none"
        yield ("audit", "dir"), text


def _no_unix(where: tuple[str | int, ...], server: Address) -> Iterator[Wrong]:
    """Yield an address that is the path of a socket."""
    if server.host.startswith("/"):
        yield where, f"{server} is a socket with a path, which this system does not have"
