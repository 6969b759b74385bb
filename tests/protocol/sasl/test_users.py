"""The file of users."""

from __future__ import annotations

import pytest

from kproxy.protocol.sasl.scram import Credential, make_line, names_in, read_users

SALT = b"0123456789abcdef"
LINE = make_line("alice", "SCRAM-SHA-256", "secret", SALT, 4096)


def test_lines_are_read_as_they_were_made() -> None:
    """A user with both mechanisms; comments and empty lines between; a name may have blanks and signs inside."""
    other = make_line("alice", "SCRAM-SHA-512", "secret", SALT, 8192)
    odd = make_line("CN=bob smith,O=Example", "SCRAM-SHA-256", "x", SALT, 4096)
    users = read_users(f"# users\n\n{LINE}\n{other}\r\n{odd}\n")

    assert users.names == {"alice", "CN=bob smith,O=Example"}
    found = users.find("alice", "SCRAM-SHA-256")
    assert isinstance(found, Credential)
    assert (found.iterations, found.salt, len(found.stored), len(found.server)) == (4096, SALT, 32, 32)
    assert users.any_of("alice") == found
    assert (users.find("bob", "SCRAM-SHA-256"), users.any_of("bob")) == (None, None)
    assert [name for name, _ in names_in(f"{LINE}\n{other}")] == ["alice", "alice"]
    assert "secret" not in LINE


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("alice:secret", "line 2: expected name:SCRAM-SHA-256$iterations"),
        (LINE.replace("256$4096", "1$4096"), "line 2: expected name:"),
        (LINE.replace("$4096:", "$4095:"), "line 2: expected 4096 to 100000 iterations"),
        (LINE.replace("$4096:", "$999999:"), "line 2: expected 4096 to 100000 iterations"),
        (LINE[:-9], "line 2: salt and keys are base64, the keys of 32 bytes"),
        (LINE.replace("SHA-256", "SHA-512"), "line 2: salt and keys are base64, the keys of 64 bytes"),
        (" " + LINE, "line 2: no name of a user"),
        (LINE, "line 2: the same user and mechanism as in a line before"),
    ],
)
def test_lines_that_are_wrong(line: str, reason: str) -> None:
    """Each is told by its number and what is wrong, without what stands in it."""
    with pytest.raises(ValueError) as wrong:
        read_users(f"{LINE}\n{line}\n")
    assert str(wrong.value).startswith(reason)
    assert "secret" not in str(wrong.value)
    assert "alice" not in str(wrong.value)


@pytest.mark.parametrize("name", ["", "a:b", "#a", " a", "a ", "a\nb", "a\x00", "x" * 250])
def test_names_that_cannot_stand_in_a_line(name: str) -> None:
    """They are refused when a line is made."""
    with pytest.raises(ValueError, match="no name of a user"):
        make_line(name, "SCRAM-SHA-256", "secret", SALT, 4096)
