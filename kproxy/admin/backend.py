"""Backend of the admin API: the running proxy that it shows and changes.

A proxy carries its traffic in one process or in several, the members of its pool; one without workers is a pool with
one member in this process. Members are asked for connections, nodes and tails; rules, captures and ports are the
backend's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from structlog.typing import FilteringBoundLogger

from kproxy.record.captures.running_captures import Captures
from kproxy.record.live_view.config import ViewConfig
from kproxy.record.live_view.sources import OpenedCaptures
from kproxy.runtime.driven import HostPort
from kproxy.runtime.io.turns import in_turns
from kproxy.runtime.readiness import ClusterNeed, Readiness
from kproxy.runtime.rules.keeper import RuleKeeper
from kproxy.runtime.server import Server

from .capture_store import CaptureStore, ProcessCaptures
from .guard import AdminTokens
from .member import Member, MemberGone, ProcessMember, ViewTerms
from .page_leases import PageLeases
from .view_totals import TotalsKeeper

if TYPE_CHECKING:
    from kproxy.app.config.keeper import ConfigKeeper

T = TypeVar("T")


@dataclass(eq=False)
class Backend:
    """Running proxy, as far as it can be asked and told. `readiness`: what is missing before clients can be served.
    `scraped`: the metrics that Prometheus reads. `addresses`: where clients of a listener reach those of these nodes
    that they have been told of. `need`: which clusters have to answer for the whole to be ready."""

    keeper: RuleKeeper
    members: Sequence[Member]
    readiness: Callable[[], Awaitable[Readiness]]
    scraped: Callable[[], Awaitable[bytes]]
    captures: CaptureStore
    addresses: Callable[[str, Mapping[int, HostPort]], Mapping[int, HostPort]]
    log: FilteringBoundLogger
    need: ClusterNeed = "any"
    began: float = field(default_factory=monotonic)
    sources: OpenedCaptures = field(default_factory=OpenedCaptures)
    listeners: set[int] = field(default_factory=set)
    """Numbers of those who listen to a tail; `numbers` gives them out."""
    numbers: count[int] = field(default_factory=count)
    view: ViewConfig = field(default_factory=ViewConfig)
    configs: ConfigKeeper | None = None
    """Keeper of the config in force; None where it does not change while kproxy runs."""
    tokens: AdminTokens = field(default_factory=AdminTokens)
    """Tokens that the admin address asks for."""
    stream: str = field(default_factory=partial(token_hex, 4))
    """Id of all streams of views: places in them mean something as long as this is the same."""
    totals: TotalsKeeper = field(init=False)
    leases: PageLeases = field(init=False)
    """Rules that end with pages of the view."""
    streams: dict[Any, trio.CancelScope] = field(default_factory=dict)
    """Scopes of the streams that go on now."""

    def __post_init__(self) -> None:
        self.totals = TotalsKeeper(self)
        self.leases = PageLeases(self.keeper, self.log)

    def use_view(self, view: ViewConfig) -> None:
        """Let those who look see and do what this config says. Streams that say or show something else end."""
        before, self.view = self.view, view
        for stream, scope in self.streams.items():
            if not stream.goes_on(before, view):
                scope.cancel()

    async def ask_members(self, ask: Callable[[Member], Awaitable[T]]) -> list[T]:
        """Ask all members at the same time; return their answers, in their order. One whose process ends meanwhile is
        left out. Raises Problem when one refuses or says nothing."""
        answers: dict[int, T] = {}
        errors: dict[int, Exception] = {}

        async def ask_one(member: Member) -> None:
            try:
                answers[member.index] = await ask(member)
            except MemberGone:
                pass
            except Exception as error:  # noqa: BLE001  # raised below, alone
                errors[member.index] = error

        async with trio.open_nursery() as nursery:
            for member in self.members:
                if member.process is not None:
                    nursery.start_soon(ask_one, member)
        for index in sorted(errors):
            raise errors[index]
        return [answers[index] for index in sorted(answers)]


def process_backend(
    keeper: RuleKeeper, server: Server, find_readiness: Callable[[], Readiness],
    metrics: Callable[[], Iterable[bytes]], log: FilteringBoundLogger, *, captures: Captures | None = None,
    need: ClusterNeed = "any", view: ViewTerms | None = None,
) -> Backend:  # fmt: skip
    """Return the backend of a proxy without workers: a pool with one member, in this process."""

    async def readiness() -> Readiness:
        return find_readiness()

    async def scraped() -> bytes:
        return await joined(metrics())

    def addresses(listener: str, nodes: Mapping[int, HostPort]) -> Mapping[int, HostPort]:
        return server.port_service.known_addresses(listener, nodes)

    members = [ProcessMember(server, keeper, view=view)]
    config = ViewConfig(enabled=False) if view is None else view.config
    return Backend(keeper, members, readiness, scraped, ProcessCaptures(captures), addresses, log, need, view=config)


async def joined(pieces: Iterable[bytes]) -> bytes:
    """Join pieces that take some time to make."""
    text = bytearray()

    def add() -> Iterator[None]:
        for piece in pieces:
            text.extend(piece)
            yield

    await in_turns(add())
    return bytes(text)
