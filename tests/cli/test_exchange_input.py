"""Files that commands read: packed, cut, damaged, and not what they seem."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from tests.support.exchange_factory import conversation, event_lines, write_capture

COMMANDS = (
    "tail FILE", "tail -o json FILE", "show FILE", "stats FILE", "redact --force FILE FILE.out", "capture info FILE",
    "replay FILE --to 127.0.0.1:1 --dry-run",
)  # fmt: skip
BEGINNING = 10
"""Bytes of gzip's header."""


def packed(tmp_path: Path, kind: str) -> bytes:
    if kind == "capture":
        return gzip.compress(write_capture(tmp_path / "whole.pcapng", conversation()).read_bytes())
    return gzip.compress(event_lines(conversation()))


def run(command: str, file: Path) -> tuple[int, str]:
    """Exit code and standard error; nothing but an exit is raised."""
    ran = CliRunner().invoke(main, [word.replace("FILE", str(file)) for word in command.split()])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, ran.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["capture", "events"])
def test_gzip_that_is_damaged_anywhere_gives_no_traceback(tmp_path: Path, kind: str, command: str) -> None:
    """Whatever byte of it is another one, and wherever it ends."""
    whole, file = packed(tmp_path, kind), tmp_path / "damaged.gz"
    for at in range(BEGINNING, len(whole), 41):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        code, said = run(command, file)
        assert code == 0 or said.startswith("kproxy: "), at
        file.write_bytes(whole[:at])
        run(command, file)


@pytest.mark.parametrize("command", ["tail FILE", "stats FILE", "show FILE"])
def test_gzip_without_anything_in_it_is_named(tmp_path: Path, command: str) -> None:
    """Cut before its first byte, or of other blocks than gzip has."""
    for data in (
        b"\x1f\x8b",
        b"\x1f\x8b\x08\0\0\0\0\0\0\0",
        b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff\xff",
        b"\x1f\x8b\x09",
    ):
        file = tmp_path / "nothing.gz"
        file.write_bytes(data)
        code, said = run(command, file)
        assert (code, said.count("\n")) == (1, 1)
        assert said.startswith(f"kproxy: {file} is gzip, and damaged or cut off at its beginning: ")


@pytest.mark.parametrize("command", ["tail FILE", "stats FILE", "show FILE"])
def test_a_folder_without_event_files_is_named(tmp_path: Path, command: str) -> None:
    """Captures in it, and files that are being compressed, are none."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.pcapng").write_bytes(b"x")
    (folder / ".kp-0-000000000001.ndjson.gz.tmp").write_bytes(b"x")

    said = f"kproxy: {folder} is a folder without event files: names that end in .ndjson or .ndjson.gz are expected\n"
    assert run(command, folder) == (1, said)


def test_events_before_the_damage_are_told(tmp_path: Path) -> None:
    """And where it begins."""
    lines = event_lines(conversation())
    first, second = gzip.compress(lines), bytearray(gzip.compress(lines))
    second[BEGINNING] = 0xFF
    file = tmp_path / "events.ndjson.gz"
    file.write_bytes(first + second)
    ran = CliRunner().invoke(main, ["tail", str(file)])

    assert (ran.exit_code, len(ran.stdout.splitlines())) == (0, 6)
    assert ran.stderr == f"kproxy: 1 line could not be read, first {file}: it is damaged behind line 6\n"


@pytest.mark.parametrize("kind", ["capture", "events"])
def test_standard_input_may_be_gzip(tmp_path: Path, kind: str) -> None:
    """As files may be; and it can be read once."""
    data = packed(tmp_path, kind)
    for given in (data, gzip.decompress(data)):
        ran = CliRunner().invoke(main, ["tail", "-"], input=given)
        assert (ran.exit_code, len(ran.stdout.splitlines()), ran.stderr) == (0, 6, "")
        ran = CliRunner().invoke(main, ["tail", "-", "-"], input=given)
        assert (ran.exit_code, len(ran.stdout.splitlines())) == (1, 6)
        assert ran.stderr == "kproxy: standard input has been read already, - can be given once\n"


@pytest.mark.parametrize("command", [one for one in COMMANDS if "redact" not in one and "info" not in one])
def test_a_line_that_is_nested_without_end_is_one_that_cannot_be_read(tmp_path: Path, command: str) -> None:
    """A reader of JSON raises RecursionError for it, which is no DecodeError."""
    file = tmp_path / "nested.ndjson"
    file.write_bytes(b'{"type": "x", "data": ' + b"[" * 100_000 + b"\n")

    _, said = run(command, file)

    assert "Traceback" not in said
    if "replay" not in command:
        assert "1 line could not be read" in said
