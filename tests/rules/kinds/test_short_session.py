"""short_session: how long a SASL session lasts, as clients are told."""

from __future__ import annotations

from typing import Any

import pytest

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def lifetime(dialogue: Any, version: int, given: int, error: int = 0) -> int:
    talk = dialogue("kind: short_session\nlifetime: 10s")
    talk.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    talk.answer(SASL_HANDSHAKE, 1, mechanisms=["PLAIN"])
    talk.ask(SASL_AUTHENTICATE, version, auth_bytes=b"\0user\0password")
    said: int = talk.answer(SASL_AUTHENTICATE, version, session_lifetime_ms=given, error_code=error)[
        "session_lifetime_ms"
    ]
    return said


@pytest.mark.parametrize("version", [1, 2])
def test_the_lifetime_that_clients_are_told(dialogue: Any, version: int) -> None:
    """Set where the broker gave none, shortened where it gave more, kept where it gave less or an error."""
    assert [lifetime(dialogue, version, given) for given in (0, 60_000, 5_000)] == [10_000, 10_000, 5_000]
    assert lifetime(dialogue, version, 0, error=58) == 0
