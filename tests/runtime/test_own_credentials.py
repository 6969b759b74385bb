"""What kproxy logs in to brokers with."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.base.errors import LoginFailed
from kproxy.runtime.config.network import UpstreamSasl
from kproxy.runtime.upstreams.own_connection import OwnCredentials


def test_the_token_is_read_at_each_login(tmp_path: Path) -> None:
    """Who renews it need not tell kproxy; what cannot be a token fails the login, and is not told."""
    file = tmp_path / "token"
    file.write_text("one.two.three\n")
    credentials = OwnCredentials(UpstreamSasl.model_validate({"mechanism": "OAUTHBEARER", "token_file": str(file)}))
    assert b"Bearer one.two.three\x01" in next(credentials.tokens())
    file.write_text("four.five.six")
    assert b"Bearer four.five.six\x01" in next(credentials.tokens())
    assert credentials.clean("what four.five.six is\nthat") == "what … is that"
    for content, reason in ((b"a b", "characters that no token has"), (b"\xff", "characters that no token has")):
        file.write_bytes(content)
        with pytest.raises(LoginFailed, match=reason):
            next(credentials.tokens())
    file.unlink()
    with pytest.raises(LoginFailed, match="cannot be read: no such file"):
        credentials.tokens()
