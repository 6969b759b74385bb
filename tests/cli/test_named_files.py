"""Whatever a name leads to: every command that takes a file says in one line what is wrong, at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.base.errors import DocumentError, KproxyError, LoginFailed
from kproxy.base.named_file import MOST_BYTES, open_named, read_named, text_named
from kproxy.cli import main
from kproxy.cli.admin_client import shown_token
from kproxy.runtime.config.network import users_in
from kproxy.runtime.listeners.port_pool import read_state
from kproxy.runtime.upstreams.own_connection import read_token

pytestmark = pytest.mark.timeout(60, func_only=True)


def device(path: Path) -> Path:
    return Path("/dev/zero")


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def sparse(path: Path) -> Path:
    """Ten gigabytes that take no room."""
    with path.open("wb") as file:
        file.truncate(10 << 30)
    return path


def gone(path: Path) -> Path:
    return path


def latin(path: Path) -> Path:
    path.write_bytes(b"rules: [\xff\xfe]\n")
    return path


ODD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "device": (device, "a device is no regular file"),
    "pipe": (pipe, "a pipe is no regular file"),
    "folder": (folder, "is a directory"),
    "sparse": (sparse, "it has 10,737,418,240 bytes, at most"),
    "gone": (gone, "no such file or directory"),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check", "{}"),
    "run": ("run", "--config", "{}"),
    "decode": ("decode", "{}"),
    "rules add": ("rules", "add", "{}"),
}
CAPTURES: dict[str, tuple[str, ...]] = {"show": ("show", "{}"), "stats": ("stats", "{}")}


def run(words: tuple[str, ...], path: Path, rules: Path) -> tuple[int, str]:
    rules.write_text("rules: []\n")
    given = [word.replace("{rules}", str(rules)).replace("{}", str(path)) for word in words]
    done = CliRunner().invoke(main, given)
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_read_a_document(command: str, odd: str, tmp_path: Path) -> None:
    make, words = ODD[odd]
    code, said = run(COMMANDS[command], make(tmp_path / "x.yaml"), tmp_path / "rules.yaml")
    if command == "check" and odd == "folder":
        assert "no rule files" in said  # a folder is one of rules
        return

    assert code != 0
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("odd", ["device"])
@pytest.mark.parametrize("command", CAPTURES)
def test_commands_that_read_a_capture(command: str, odd: str, tmp_path: Path) -> None:
    make, words = ODD[odd]
    code, said = run(CAPTURES[command], make(tmp_path / "x.pcapng"), tmp_path / "rules.yaml")

    assert code != 0
    assert words in said


@pytest.mark.parametrize("command", CAPTURES)
def test_a_pipe_that_nobody_writes_to_is_an_empty_capture(command: str, tmp_path: Path) -> None:
    _, said = run(CAPTURES[command], pipe(tmp_path / "x.pcapng"), tmp_path / "rules.yaml")

    assert "Traceback" not in said


@pytest.mark.parametrize("odd", ["device", "pipe", "folder", "sparse"])
def test_files_that_settings_name(odd: str, tmp_path: Path) -> None:
    """Users, tokens and the state."""
    make, words = ODD[odd]
    path = make(tmp_path / "x")
    with pytest.raises(ValueError, match="cannot be read: ") as caught:
        users_in(path)
    assert words in str(caught.value)
    with pytest.raises(LoginFailed) as refused:
        read_token(path)
    assert words in str(refused.value)
    with pytest.raises(DocumentError) as mistakes:
        read_state(path)
    assert words in str(mistakes.value)


@pytest.mark.parametrize("text", ["look", "look\n\n", "\ufeff look \r\n"])
def test_a_token_is_what_stands_between_blanks(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv("KPROXY_TOKEN", text.removeprefix("\ufeff"))

    assert shown_token(str(tmp_path / "token")) == shown_token(None) == "look"


@pytest.mark.parametrize(("text", "words"), [("5€", "2 is one that"), ("secret\nword", "7 is one that")])
def test_a_token_that_no_header_carries(text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by its place, and not shown: the message may stand in the log of a build."""
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv("KPROXY_TOKEN", text)
    for file in (str(tmp_path / "token"), None):
        with pytest.raises(KproxyError, match=f"the token cannot be sent: its character {words}") as caught:
            shown_token(file)
        assert "secret" not in str(caught.value)


def test_a_state_of_brackets(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(DocumentError, match="nested too deep") as caught:
        read_state(path)

    assert len(str(caught.value)) < 300


def test_what_is_no_text_and_names_that_are_none(tmp_path: Path) -> None:
    path = latin(tmp_path / "x")

    assert read_named(path, 100) == path.read_bytes()
    with pytest.raises(OSError, match="it is not UTF-8 text: byte 0xff at 8"):
        text_named(path)
    for read in (read_named, open_named):
        with pytest.raises(OSError, match="NUL"):
            read("a\0b")


def test_a_file_without_a_size(tmp_path: Path) -> None:
    """Those of /proc say 0, and are read all the same, up to the limit."""
    assert b"Linux" in read_named("/proc/version")
    long = tmp_path / "long"
    long.write_bytes(b"x" * (MOST_BYTES + 1))
    with pytest.raises(OSError, match="at most"):
        read_named(long)
