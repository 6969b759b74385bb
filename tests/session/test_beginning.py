"""Sessions that have nothing to do at their beginning say so: `begin` is then not called."""

from __future__ import annotations

import textwrap

import pytest

from kproxy.rules.document.read import parse_rules
from kproxy.rules.exchange import Facts
from kproxy.rules.kinds import KINDS
from kproxy.session.plan import ConnectionSettings, Plan
from kproxy.session.session import Session
from kproxy.session.shared import ClusterState

FACTS = Facts("outside", "main", "10.9.0.1", None, None, 2)
"""A connection that the examples about connections are about."""
HAVE_A_BEGINNING = {"bandwidth", "disconnect", "refuse", "slice"}


def session_of(kind: str) -> Session:
    """Return a session under the example of a kind."""
    made = parse_rules("rules:\n" + textwrap.indent(KINDS[kind].example, "  "))
    for running in made.live:
        running.restart(0.0)
    bound = made.bind(FACTS)
    return Session(Plan(ConnectionSettings.of(bound, advertise=True), bound.live), ClusterState(), FACTS, 1, bound)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_without_a_beginning_does_nothing_then(kind: str) -> None:
    """Under a rule of any kind: nothing is asked of the driver, and no rule is evaluated."""
    session = session_of(kind)
    assert bool(session.has_beginning) == (kind in HAVE_A_BEGINNING)
    session.begin(1.0)
    if not session.has_beginning:
        assert (session.commands, session._engine, session._timers) == ([], None, None)
