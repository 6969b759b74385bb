"""Session as its lanes see it: its state, the engine of live rules, and what finds out what a frame waits for."""

from __future__ import annotations

from kproxy.core.engine import Engine
from kproxy.core.lookups import Lookups
from kproxy.core.raw_tokens import RawTokens
from kproxy.core.sasl_end import SaslEnd
from kproxy.core.session_state import SessionState


class LaneLogins:
    """Logins on one session, as its lanes ask for them. `raw`: set while bare tokens may come; `sasl`: who answers the
    client's SASL in the broker's place, None if the broker does."""

    raw: RawTokens | None = None
    sasl: SaslEnd | None = None

    def begin_raw(self, raw: RawTokens) -> None:
        """Look for raw SASL tokens, which may come from both sides now."""
        raise NotImplementedError

    def end_raw(self) -> None:
        """Read all frames as Kafka's again."""
        raise NotImplementedError

    def choose_scan(self) -> None:
        """Choose how the next frame of the client is looked at."""
        raise NotImplementedError

    @property
    def await_broker(self) -> bool:
        """Return True if the client has sent what its principal depends on, and the broker has not answered that
        yet."""
        raise NotImplementedError

    def note_answer(self) -> None:
        """Have the frame tried again that waits for the client's principal: the broker has answered a message of
        SASL."""
        raise NotImplementedError


class LaneHost(SessionState):
    """State of one session with what its lanes use besides. Engine and lookups are made when the first frame needs
    them."""

    _engine: Engine | None = None
    _lookups: Lookups | None = None
    logins: LaneLogins

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
