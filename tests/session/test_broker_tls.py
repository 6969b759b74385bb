"""A broker that speaks TLS where the config says nothing of it: the log says so, rather than that a frame is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.session.commands import BROKER
from kproxy.tools.rehearse.dialogue import request

ALERT = b"\x15\x03\x03\x00\x02\x02\x50"  # unexpected_message, what Java says to plain bytes
HELLO = b"\x16\x03\x03\x00\x40" + bytes(64)


@pytest.mark.parametrize("said", [ALERT, ALERT * 2, HELLO])
@pytest.mark.parametrize("chunk", [0, 1])
def test_a_broker_that_answers_in_tls(dialogue: Any, said: bytes, chunk: int) -> None:
    """An alert is shorter than a header, and then it closes."""
    talk = dialogue().client(request(18, 0, 1)).broker(said, chunk)
    if talk.closed is None:
        talk.session.eof(BROKER, talk.now)
        talk.obey()
    assert talk.closed is not None
    assert (talk.closed.cause, talk.closed.blame) == ("not_kafka", "broker")
    assert talk.closed.message == "broker requires TLS, and its cluster has no tls in the config"
    assert talk.to_client == b""
