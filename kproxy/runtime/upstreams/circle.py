"""Check whether a cluster leads back to this kproxy; while it does, no connections are made to it."""

from __future__ import annotations

import socket

import trio

from kproxy.runtime.driven import HostPort
from kproxy.runtime.io.background import Background
from kproxy.runtime.io.proxy_protocol import greeting
from kproxy.runtime.io.socket_io import attempt
from kproxy.session.shared import CircleMark

from .dialler import DialOptions, Race
from .upstream import Upstream

AGAIN = 10.0
"""Seconds to the next question while it leads back."""
PATIENCE = 5.0
"""Seconds for the answer."""


class CircleCheck:
    """Check of one cluster. The question goes out before any login, as the first frame of a connection of its own."""

    def __init__(self, upstream: Upstream, mark: CircleMark) -> None:
        self.upstream, self.mark = upstream, mark
        self.log = upstream.reactor.log.bind(cluster=upstream.name)
        self.asking = self.came_back = False
        self.task: Background | None = None
        self.stopped = False

    def start(self) -> None:
        """Ask, unless a question is under way."""
        if not self.asking and not self.stopped:
            self.asking = True
            self.task = Background(self.upstream.reactor.spawn, self.run)

    def stop(self) -> None:
        """Ask no more: no connections are made to this cluster any more. A question to one that led back would be
        taken for one to the cluster that has its name now."""
        self.stopped = True
        if self.task is not None:
            self.task.stop()

    def found(self) -> None:
        """Refuse connections to this cluster: a question to it has come back to kproxy."""
        self.came_back = True
        if not self.upstream.leads_back:
            self.upstream.leads_back = True
            self.log.error("cluster leads back to kproxy, its connections are refused")
        self.start()

    async def run(self) -> None:
        """Ask once, and again every `AGAIN` seconds while the cluster leads back."""
        try:
            while True:
                self.came_back = False
                answered = await self.ask()
                if not self.upstream.leads_back:
                    return
                if answered and not self.came_back:
                    self.upstream.leads_back = False
                    self.log.info("cluster does not lead back to kproxy any more")
                    return
                await trio.sleep(AGAIN)
        finally:
            self.asking = False

    async def ask(self) -> bool:
        """Ask one question; return True if somebody has answered it."""
        upstream, settled = self.upstream, trio.Event()
        sockets: list[socket.SocketType] = []

        def won(sock: socket.SocketType, server: HostPort) -> None:
            sockets.append(sock)
            upstream.reactor.notify(settled)

        def lost(tried: dict[str, str]) -> None:
            upstream.reactor.notify(settled)

        version = upstream.config.proxy_protocol
        options = DialOptions(None if version is None else greeting(version, None), upstream.mark, None, upstream.own)
        race = Race(upstream.reactor, upstream.resolver, upstream.tls, upstream.connect_timeout,
                    list(upstream.bootstrap), won, lost, options)  # fmt: skip
        try:
            async with upstream.reactor.step:  # there may be thousands of clusters
                race.start()
            await settled.wait()
            with trio.move_on_after(PATIENCE):
                return bool(sockets) and await self.talk(sockets[0])
        except OSError:
            pass
        finally:
            if not race.done:
                race.cancel()
            for sock in sockets:
                sock.close()
        return False

    async def talk(self, sock: socket.SocketType) -> bool:
        question = self.mark.question(self.upstream.name)
        await attempt(sock, lambda: sock.send(question))
        return bool(await attempt(sock, lambda: sock.recv(4096)))
