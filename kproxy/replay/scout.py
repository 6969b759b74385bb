"""Asks the target what the replay has to know first: versions, where topics and coordinators are.

A topic that the replay has just made, or a coordinator whose internal topic is being made, is not there at once. It is
asked for again until it is, for as long as the player has patience; anything else that is not there is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kproxy.errors import DecodeError
from kproxy.wire import Message, decode_response, encode

from .asking import ask_coordinator, ask_topics, ask_versions
from .links import SCOUT, Links
from .target import Coordinator, Target

AGAIN_AFTER = 0.1
"""Seconds: Java clients' retry.backoff.ms."""


class Scout:
    """`ready`: the versions are known. `failed`: why they cannot be."""

    def __init__(self, target: Target, links: Links, patience: float) -> None:
        self.target, self.links, self.patience = target, links, patience
        self.ready, self.failed = False, ""
        self.asking: set[str | Coordinator] = set()
        self.since: dict[str | Coordinator, float] = {}
        self.again: list[tuple[float, str | Coordinator]] = []

    def begin(self) -> None:
        """Ask for the versions."""
        self.ask(ask_versions(), self.have_versions)

    def want(self, missing: Iterable[str | Coordinator], now: float) -> None:
        """Ask for those that are not being asked for already."""
        new = [one for one in missing if one not in self.asking]
        for one in new:
            self.asking.add(one)
            self.since.setdefault(one, now)
        if topics := [one for one in new if isinstance(one, str)]:
            self.ask(ask_topics(self.target, topics), partial(self.have, topics))
        for one in new:
            if not isinstance(one, str):
                self.ask(ask_coordinator(self.target, one), partial(self.have, [one]))

    def tick(self, now: float) -> float | None:
        """Ask again for what is due; when the next is, None if nothing waits."""
        due = [one for when, one in self.again if when <= now]
        self.again = [(when, one) for when, one in self.again if when > now]
        self.asking.difference_update(due)
        self.want(due, now)
        return min((when for when, _ in self.again), default=None)

    # ---- inside

    def ask(self, request: Message, then: Callable[[float], None]) -> None:
        link = self.links.to(SCOUT, self.target.bootstrap)

        def answered(frame: bytes | None, now: float) -> None:
            if frame is not None:
                try:
                    response = decode_response(frame, request.api.key, request.version, trailing=True)
                    self.target.learn(request, response)
                except DecodeError as error:
                    self.failed = self.failed or f"the target's answer cannot be read: {error}"
            elif not self.ready:
                reason = self.links.unreachable.get(self.target.bootstrap, "it closed the connection")
                self.failed = f"the target {show(self.target.bootstrap)} does not answer: {reason}"
            then(now)

        self.links.send(link, encode(request), answered)

    def have_versions(self, now: float) -> None:
        self.ready = not self.failed

    def have(self, asked: Iterable[str | Coordinator], now: float) -> None:
        for one in asked:
            self.asking.discard(one)
            if one in self.target.asked:
                self.since.pop(one, None)
            elif self.hopeful(one) and now - self.since[one] < self.patience:
                self.asking.add(one)
                self.again.append((now + AGAIN_AFTER, one))
            else:
                self.target.give_up([one] if isinstance(one, str) else ())
                self.target.asked.add(one)
                self.since.pop(one, None)

    def hopeful(self, one: str | Coordinator) -> bool:
        """Whether it may be there later."""
        return not isinstance(one, str) or one in self.target.made


def show(address: tuple[str, int]) -> str:
    """host:port, with brackets around an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
