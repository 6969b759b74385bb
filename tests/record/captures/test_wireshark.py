"""kproxy's captures in Wireshark's Kafka dissector, as Debian has it: Kafka 2.5 and older are understood whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kproxy.record.captures.policy import Policy
from kproxy.record.captures.reader import Capture
from kproxy.record.exchange import ObservedExchange
from tests.support.capture_files import client, metadata, produce, tool, tshark, written

pytestmark = [pytest.mark.process, pytest.mark.tools("tshark", "editcap", "mergecap")]
FIELDS = ("kafka.api_key", "kafka.api_version", "kafka.correlation_id", "kafka.client_id")


def exchanges() -> list[ObservedExchange]:
    """Of three clients, IPv4 and IPv6, with frames of one segment and of several, and some that took time."""
    found = []
    for number in range(1, 4):
        who = client(number)
        if number == 3:
            who.client_address = "fd00::3"
        found += [metadata(one, who=who, topic=f"topic-{number}-{one}", at=1000.0 + number) for one in range(1, 6)]
        found.append(produce(6, who=who, acks=0, size=70_000))
        found.append(metadata(7, who=who, topic="a" * 200))
    slow = found[2]
    assert slow.request and slow.response
    slow.request.last += 0.1
    slow.response.last += 0.5
    return found


def asked(path: Path) -> list[list[str]]:
    columns = [part for name in FIELDS for part in ("-e", name)]
    return list(tshark(path, "-Y", "kafka && tcp.dstport == 9092", "-T", "fields", *columns))


def test_names_and_numbers_are_those_that_were_sent(tmp_path: Path) -> None:
    """API keys, versions, correlation ids, client ids and topics, each once and in order; every answer finds its
    request."""
    sent = exchanges()
    path = written(tmp_path / "c.pcapng", sent)

    assert asked(path) == [[str(seen.key), str(seen.version), str(seen.correlation_id), "shop"] for seen in sent]
    topics = [line[0] for line in tshark(path, "-Y", "kafka.api_key == 3 && tcp.dstport == 9092", "-T", "fields",
                                         "-e", "kafka.topic_name")]  # fmt: skip
    assert topics == [
        seen.request_body["topics"][0]["name"] for seen in sent if seen.key == 3 and seen.request_body
    ]  # fmt: skip
    answers = list(tshark(path, "-Y", "kafka && tcp.srcport == 9092", "-T", "fields", "-e", "kafka.correlation_id",
                          "-e", "kafka.request_frame"))  # fmt: skip
    assert [str(seen.correlation_id) for seen in sent if seen.response] == [line[0] for line in answers]
    assert len(answers) == len({line[1] for line in answers if line[1]})


def test_nothing_is_malformed_with_full_payload(tmp_path: Path) -> None:
    """Neither Kafka's dissector nor TCP's has anything to complain of, and each connection is one stream."""
    path = written(tmp_path / "c.pcapng", exchanges())

    words = " ".join(part for line in tshark(path, "-q", "-z", "expert,warn") for part in line)
    assert "Malformed" not in words and "Errors" not in words and "Warns" not in words, words
    assert {"0", "1", "2"} == {line[0] for line in tshark(path, "-T", "fields", "-e", "tcp.stream")}


def test_heads_name_the_requests(tmp_path: Path) -> None:
    """With less payload Wireshark still tells API, version, correlation id and client of every request."""
    sent = [*exchanges(), produce(8, who=client(9), size=200_000), metadata(9, who=client(9))]
    for payload in ("head", "none"):
        path = written(tmp_path / f"{payload}.pcapng", sent, Policy(payload, 40))
        assert asked(path) == [[str(seen.key), str(seen.version), str(seen.correlation_id), "shop"] for seen in sent]


def test_what_editors_make_of_it_is_still_kproxys(tmp_path: Path) -> None:
    """Numbers, notes and all are there in a part that Wireshark's tools have written."""
    who = client(17, principal="User:anna")
    path = written(tmp_path / "c.pcapng", [metadata(number, who=who) for number in range(4)], Policy("none"))
    part, merged = tmp_path / "part.pcapng", tmp_path / "merged.pcapng"
    subprocess.run([tool("editcap"), "-r", str(path), str(part), "1-7"], check=True, timeout=60)
    subprocess.run([tool("mergecap"), "-w", str(merged), str(part)], check=True, timeout=60)

    capture = Capture(merged)
    found = list(capture)

    assert not capture.own
    assert [(17, "User:anna", number, "answered") for number in range(2)] == [
        (seen.who.number, seen.who.principal, seen.correlation_id, seen.outcome) for seen in found
    ]


def test_bytes_follow_as_a_stream(tmp_path: Path) -> None:
    """What Wireshark follows is what was sent, both ways."""
    sent = [metadata(1), metadata(2, topic="other")]
    path = written(tmp_path / "c.pcapng", sent)

    lines = list(tshark(path, "-q", "-z", "follow,tcp,raw,0"))
    theirs = "".join(line[-1] for line in lines if len(line) == 2 and not line[0])
    ours = "".join(line[0] for line in lines if len(line) == 1 and line[0] and set(line[0]) <= set("0123456789abcdef"))

    def stream(frames: list[bytes]) -> str:
        return "".join((len(one).to_bytes(4, "big") + one).hex() for one in frames)

    assert stream([seen.request.data for seen in sent if seen.request]) == ours
    assert stream([seen.response.data for seen in sent if seen.response]) == theirs
