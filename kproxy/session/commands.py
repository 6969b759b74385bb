"""Commands of a session to its driver: named by verbs, frozen, and executed in order.

The driver sends the bytes that `from_client` or `from_broker` let pass first, then executes `session.commands`, then
clears it. One exception: a `Dial` is in the same call as the first bytes for the broker, and those wait for it.

`Observer` is the other output of a session: facts of an exchange that its bytes do not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kproxy.rules.exchange import TrafficShape

if TYPE_CHECKING:
    from kproxy.rules.content.schemas import SchemaKey
    from kproxy.session.lanes.services import LaneHost

CLIENT: Final = 0
BROKER: Final = 1

LONG: Final = 131072
"""Bytes of unchanged data above this size should be passed on by the kernel: two more system calls cost as much as
copying tens of thousands of bytes."""


@dataclass(frozen=True, slots=True)
class Send:
    """Command to write `data` to `side`, after everything given for that side before. The bytes belong to the driver
    now.

    `token` is the session's own mark: when it is not 0, call `session.sent(token, now)` once the kernel has all of it.
    """

    side: int
    data: bytes | bytearray | memoryview
    token: int = 0


@dataclass(frozen=True, slots=True)
class Dial:
    """Command to connect to the broker now: the client has shown a whole request header."""


@dataclass(frozen=True, slots=True)
class AskVersions:
    """Command to find out how the broker that this connection is for answers ApiVersions of this version, for clients
    with a `valid` library name or without, then to call `versions_known`. It is not dialled for that: one answer is for
    all."""

    version: int
    valid: bool


@dataclass(frozen=True, slots=True)
class EnsureNodes:
    """Command to have a port for each of these nodes, {node id: (host, port) as the broker names it}, then to call
    `nodes_ready`."""

    nodes: Mapping[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class LoadSchemas:
    """Command to load these schemas from the cluster's registry, then to call `schemas_ready`, also if that fails."""

    keys: tuple[SchemaKey, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Command to read nothing more from `side` until `Resume`."""

    side: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Command to read from `side` again."""

    side: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Command to call `granted(now)` on these other sessions, and to obey theirs: held memory has become free for them,
    or they are first in the line of a quota."""

    sessions: tuple[LaneHost, ...]


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Command to call `session.tick(now)` at this time (monotonic seconds) or a little later."""

    when: float


@dataclass(frozen=True, slots=True)
class Compute:
    """Command to call `work()` in the background, since it takes milliseconds, then `computed` with its result.

    It touches nothing of the session. A driver that ends the connection may skip it.
    """

    work: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Shut:
    """Command to send FIN to `side` once what is queued has been written; it may still send."""

    side: int


@dataclass(frozen=True, slots=True)
class Reshape:
    """Command to set the shapers for bytes that leave on either side; (): none."""

    shapes: tuple[TrafficShape, ...]


@dataclass(frozen=True, slots=True)
class CloseBoth:
    """Command to close both sides once all that is queued has been written; `cause` is one word for metrics, `message`
    for the log.

    `blame` is the side that sent bad bytes: "client", "broker" or "" for neither (a drain). With `reset` both are
    closed with RST, and what is queued is thrown away.
    """

    cause: str
    message: str
    blame: str = ""
    reset: bool = False


Command = (
    Send
    | Dial
    | AskVersions
    | EnsureNodes
    | LoadSchemas
    | Pause
    | Resume
    | Wake
    | WakeAt
    | Compute
    | Shut
    | Reshape
    | CloseBoth
)


NO_ANSWER = -1
"""Stands for `older` where the request is due no answer."""


class Observer(Protocol):
    """Listener to one session, called while the session is at work; it must not touch the session.

    A client may use a correlation id twice at a time. `older` is how many exchanges with the same id had come before
    and were unanswered; NO_ANSWER for a request that is due none.
    """

    def waited(self, correlation_id: int, seconds: float, *, response: bool, by_rule: bool, older: int = 0) -> None:
        """Add to the time that a frame waited in the session: for a rule, or for a lookup, memory or its rest.

        The time counts whether the frame itself was the cause or a frame before it. It may come in several parts.
        """
        ...

    def acted(self, correlation_id: int, names: Iterable[str], *, answered: bool = False, older: int = 0) -> None:
        """Note that these rules fired. `answered`: kproxy answers in the broker's place."""
        ...

    def failed(self, correlation_id: int, codes: Iterable[int]) -> None:
        """Note that rules put these error codes into the broker's answer, somewhere."""
        ...

    def throttled(self, correlation_id: int, rule: str, mute: float, *, older: int = 0) -> None:
        """Note that this rule throttled the exchange, and that the channel is muted for `mute` seconds after it."""
        ...
