"""SASL in the config document: what is wrong is told at its place, without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.app.config.document import config_from
from kproxy.protocol.sasl.scram import make_line
from kproxy.rules.values.source import Source

LINE = make_line("alice", "SCRAM-SHA-256", "secret", b"salt", 4096)


def mistakes(folder: Path, cluster: str = "", listener: str = "") -> list[str]:
    text = f"clusters:\n  main: {{bootstrap: ['b:1']{cluster}}}\n"
    text += f"listeners:\n- {{name: a, bind: 'h:1', cluster: main{listener}}}\n"
    source = Source("c", text)
    config = config_from(source, folder)
    assert (config is None) == bool(source.lines())
    return [line.partition(": ")[2] for line in source.lines()]


@pytest.mark.parametrize(
    ("sasl", "said"),
    [
        ("{mechanism: PLAIN}", ['PLAIN needs "username"', 'PLAIN needs "password"']),
        ("{mechanism: OAUTHBEARER}", ['OAUTHBEARER needs "token_file"']),
        ("{mechanism: OAUTHBEARER, token_file: t, password: secret}", ['"password" is never used with OAUTHBEARER']),
        ("{mechanism: SCRAM-SHA-256, username: u, password: p, token_file: t}",
         ['"token_file" is never used with SCRAM-SHA-256']),
        ("{mechanism: OAUTHBEARER, token_file: t, extensions: {auth: x}}",
         ['"auth" is no extension: its name has letters only and is not auth']),
    ],
)  # fmt: skip
def test_a_clusters_login(tmp_path: Path, sasl: str, said: list[str]) -> None:
    """Each mechanism wants its own, and says so of all that is missing or never used."""
    (tmp_path / "t").write_text("token")
    found = mistakes(tmp_path, cluster=f", sasl: {sasl}")
    assert sorted(found) == sorted(said)
    assert "secret" not in "".join(found)


def test_a_listeners_users(tmp_path: Path) -> None:
    """The file is read when the config is: `kproxy check` tells what is wrong in it, by line, without what is there."""
    for name, content in (("good", LINE), ("bad", f"{LINE}\nalice:secret\n"), ("bytes", "\udcff")):
        (tmp_path / name).write_text(content, errors="surrogateescape")
    assert mistakes(tmp_path, listener=", sasl: {users: good, mechanisms: [PLAIN]}") == []
    (wrong,) = mistakes(tmp_path, listener=", sasl: {users: bad}")
    assert "line 2: expected name:SCRAM-SHA-256$iterations" in wrong
    assert "secret" not in wrong
    assert "is not UTF-8 text" in mistakes(tmp_path, listener=", sasl: {users: bytes}")[0]
    assert "cannot be read" in mistakes(tmp_path, listener=", sasl: {users: none}")[0]
    assert mistakes(tmp_path, listener=", sasl: {users: good, mechanisms: [GSSAPI]}")
