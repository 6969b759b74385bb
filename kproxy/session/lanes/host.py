"""Session as its lanes see it: its state, the engine of live rules, and what finds out what a frame waits for."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.session.held_memory import Holder
from kproxy.session.live.engine import Engine
from kproxy.session.lookups import Lookups
from kproxy.session.sasl.lane_logins import LaneLogins
from kproxy.session.session_state import SessionState
from kproxy.session.telemetry import TelemetryGateway


class LaneHost(SessionState):
    """State of one session with what its lanes use besides. Engine and lookups are made when the first frame needs
    them."""

    _engine: Engine | None = None
    _lookups: Lookups | None = None
    logins: LaneLogins
    telemetry: TelemetryGateway | None = None
    """The one who takes the client's own metrics, where they are wanted."""

    def wake(self, lanes: Sequence[Holder]) -> None:
        """Have these lanes, of any session, go on: they have the memory that they waited for."""
        raise NotImplementedError

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self)
        return self._engine

    @property
    def lookups(self) -> Lookups:
        if self._lookups is None:
            self._lookups = Lookups(self)
        return self._lookups
