"""A session's test is a dialogue (see `kproxy.tools.rehearse.dialogue`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproxy.session.plan import ConnectionSettings
from kproxy.tools.rehearse import dialogue as spoken


@pytest.fixture(scope="session")
def dialogue() -> Callable[..., spoken.Dialogue]:
    """`dialogue(bound, shared, plan)`: without rules of its own."""

    def talk(bound: object = None, shared: object = None, plan: object = None) -> spoken.Dialogue:
        return spoken.Dialogue(bound=bound or ConnectionSettings(), shared=shared, plan=plan)

    return talk
