"""kproxy's `net` with a session that only counts frames: what moving bytes costs without looking at them.

python -m tests.lab.bench.net_alone LISTEN UPSTREAM [nested|task]
"""

from __future__ import annotations

import gc
import logging
import sys

import structlog
import trio

from kproxy.app.config.document import config_from_flags
from kproxy.rules.values.address import Address
from kproxy.runtime.capacity import ConnectionCounts
from kproxy.runtime.drain import drain_on_signal
from kproxy.runtime.io.reactor import Reactor
from kproxy.runtime.server import Server
from tests.support.passing_session import PassingSession


async def main(listen: int, upstream: int, driver: str | None) -> None:
    log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr), wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
    )
    reactor = Reactor(log)
    config = config_from_flags([Address("127.0.0.1", upstream)], Address("127.0.0.1", listen))
    server = Server(reactor, config, lambda *facts: PassingSession(), ConnectionCounts(), log)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, driver)
        await nursery.start(drain_on_signal, server)
        gc.collect()
        gc.freeze()
        await server.serve()
        nursery.cancel_scope.cancel()


trio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
