"""`kproxy decode`: what it reads, what it prints, what it keeps to itself, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kproxy.cli import main
from kproxy.protocol import Message, encode
from kproxy.protocol.framing import framed
from kproxy.protocol.table import schema
from tests.support.frames import message

SEED = Path(__file__).parent.parent / "protocol" / "seeds" / "produce-v0-frame.txt"
DUMP = SEED.read_text().partition("Hex Dump")[2]


def request(key: int, version: int, **body: Any) -> bytes:
    return message(key, version, "request", body, client_id="me")


METADATA = request(3, 12, topics=[{"name": "größe"}])
LIST_GROUPS = request(16, 0)


def run(data: bytes | str, *words: str) -> Result:
    return CliRunner().invoke(main, ["decode", *words], input=data)


def objects(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_dump_of_the_oldest_document() -> None:
    """Numbers with 0x over several lines are one frame with its length."""
    assert objects(run(DUMP)) == [
        {
            "api": "Produce",
            "key": 0,
            "version": 0,
            "direction": "request",
            "header": {"request_api_key": 0, "request_api_version": 0, "correlation_id": 1, "client_id": "foo"},
            "body": {
                "acks": 1,
                "timeout_ms": 1500,
                "topic_data": [
                    {
                        "name": "test",
                        "partition_data": [
                            {
                                "index": 0,
                                "records": {"hex": "00" * 11 + "1973acf77c0000ffffffff0000000b" + b"hello world".hex()},
                            }
                        ],
                    }
                ],
            },
        }
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (f"{METADATA.hex()}\n\n{LIST_GROUPS.hex(' ')}  # the second\n", []),
        (f"# both with lengths\n{framed(METADATA).hex(':')}\n{framed(LIST_GROUPS).hex()}", []),
        (f"{METADATA.hex()}\n{LIST_GROUPS.hex()}", ["--no-lengths"]),
        (framed(METADATA) + framed(LIST_GROUPS), []),
        (framed(METADATA) + framed(LIST_GROUPS), ["--raw", "-"]),
    ],
    ids=["hex lines", "hex lines with lengths", "said to have no lengths", "raw bytes", "said to be raw"],
)
def test_every_form_of_input_gives_the_same_frames(data: bytes | str, words: list[str]) -> None:
    """Hex lines with and without lengths, and the bytes of a connection."""
    first, second = objects(run(data, *words))

    assert first["body"]["topics"][0]["name"] == "größe"
    assert (second["api"], second["header"]["correlation_id"]) == ("ListGroups", 7)


def test_a_file_of_responses(tmp_path: Path) -> None:
    """A response names neither API nor version, so the command line does."""
    response = encode(Message(schema.load(12), 4, {"correlation_id": 9}, {"error_code": 27}))
    file = tmp_path / "frames.bin"
    file.write_bytes(framed(response))

    result = run("", str(file), "--response", "--api", "heartbeat", "--version", "4")

    assert objects(result)[0]["body"] == {"throttle_time_ms": 0, "error_code": 27}


def test_a_tree_shows_offsets_sizes_and_paths() -> None:
    """Each line has offset, size in bytes, and the field in its place; elements have numbers."""
    result = run(framed(METADATA), "--tree")

    assert result.exit_code == 0
    assert result.output.splitlines() == [
        f"Metadata v12 request, {len(METADATA)} bytes",
        "       0         header",
        "       0      2    request_api_key: 3",
        "       2      2    request_api_version: 12",
        "       4      4    correlation_id: 7",
        '       8      4    client_id: "me"',
        "      12      1    _tagged_fields: 0 tagged fields",
        "      13         body",
        "      13      1    topics: 1 element",
        "      14             [0]",
        '      14     16        topic_id: "00000000-0000-0000-0000-000000000000"',
        '      30      8        name: "größe"',
        "      38      1        _tagged_fields: 0 tagged fields",
        "      39      1    allow_auto_topic_creation: true",
        "      40      1    include_topic_authorized_operations: false",
        "      41      1    _tagged_fields: 0 tagged fields",
    ]


SECRETS = [
    (request(36, 2, auth_bytes=b"\0user\0hunter2"), b"hunter2"),
    (request(58, 0, request_data=b"hunter2"), b"hunter2"),
    (
        request(51, 0, upsertions=[{"name": "user", "salt": b"s", "salted_password": b"hunter2"}]),
        b"hunter2",
    ),
]


@pytest.mark.parametrize(("frame", "secret"), SECRETS, ids=["SASL token", "frame in an envelope", "SCRAM password"])
@pytest.mark.parametrize("form", ["--json", "--tree"])
def test_secrets_are_withheld_unless_asked_for(frame: bytes, secret: bytes, form: str) -> None:
    """Passwords and tokens do not get into a terminal's history by accident."""
    hidden, seen = run(framed(frame), form), run(framed(frame), form, "--show-secrets")

    assert (hidden.exit_code, seen.exit_code) == (0, 0)
    assert "(withheld)" in hidden.output
    assert secret.hex() not in hidden.output.replace(" ", "")
    assert secret.hex() in seen.output.replace(" ", "")


def test_a_bad_frame_says_where_and_the_others_are_printed() -> None:
    """Exit code 1; the error has the frame's number, the field and the offset."""
    result = run(f"{METADATA.hex()}\n{METADATA[:-4].hex()}\n{LIST_GROUPS.hex()}")

    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == (
        "frame 2 (38 bytes): Metadata v12 topics[0]._tagged_fields at byte 38: 0 bytes left, expected a varint\n"
    )


def test_a_tree_of_a_bad_frame_goes_as_far_as_it_can() -> None:
    """What can be read is printed, then the error; bytes left over are shown."""
    cut, longer = run(METADATA[:10].hex(), "--tree"), run((METADATA + b"\xff").hex(), "--tree")

    assert (cut.exit_code, longer.exit_code) == (1, 1)
    assert cut.stdout.splitlines()[-1] == "       4      4    correlation_id: 7"
    assert "header.client_id at byte 10" in cut.stderr
    assert longer.stdout.splitlines()[-1] == "      42      1  left over: 1 byte: ff"
    assert "1 byte left over" in longer.stderr


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        ("no hex at all", [], "line 1: expected hex digits, got 'no hex at all'"),
        ("", [], "no frame in the input"),
        (b"\x80\x00\x00\x00", [], "frame length -2147483648, expected 0 to 104857600"),
        (framed(METADATA)[:-1], ["--raw"], "stream ends after 45 bytes of a frame, expected 46 bytes"),
        ("7fff 0000", [], "api key 32767 is not known"),
        (METADATA.hex(), ["--lengths"], "stream ends after 42 bytes of a frame, expected 196624 bytes"),
    ],
)
def test_what_cannot_be_read_is_exit_code_1(data: bytes | str, words: list[str], message: str) -> None:
    """With one line that says why."""
    result = run(data, *words)

    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--response"], "--response needs --api and --version"),
        (["--response", "--api", "Metdata", "--version", "1"], "did you mean Metadata?"),
        (["--response", "--api", "3", "--version", "99"], "Metadata has versions 0-13, not 99"),
        (["--api", "3", "--version", "9"], "a request names its own"),
        (["no-such-file"], "no such file"),
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], message: str) -> None:
    """And says what is missing."""
    result = run("", *words)

    assert result.exit_code == 2
    assert message in result.output


def test_values_that_json_lacks() -> None:
    """Strings that are not UTF-8 and bytes are hex, NaN is a word, UUIDs have their usual form, tags are pairs."""
    frame = encode(
        Message(
            schema.load(3),
            12,
            {"request_api_key": 3, "request_api_version": 12, "correlation_id": 1, "client_id": "\udcff"},
            {"topics": None, "_tagged_fields": [(9, b"\x01")]},
        )
    )

    shown = objects(run(frame.hex()))[0]

    assert shown["header"]["client_id"] == {"hex": "ff"}
    assert shown["body"]["topics"] is None
    assert shown["body"]["_tagged_fields"] == [[9, {"hex": "01"}]]
