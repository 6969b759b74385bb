"""What a capture is said to hold."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from kproxy.cli.capture import command
from kproxy.record.captures.info import describe
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from tests.support.capture_files import SERVER, client, metadata, produce


def own(path: Path) -> Path:
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("head", 20), about={"filter": "api == Metadata"})
        who = client()
        lost = produce(3, who=who)
        lost.response, lost.outcome = None, "unanswered"
        for seen in (metadata(1, who=who), metadata(2, who=who), lost):
            writer.write(seen, SERVER)
        writer.write_broker(metadata(1, who=who), ("10.0.0.9", 9093))
        writer.closed(who, 1001.0)
        writer.finish(1002.0, "max_size", 4)
    return path


def test_kproxys_own(tmp_path: Path) -> None:
    """Its policy and filter, both sides apart, what is cut, what was dropped, why it stopped."""
    told = describe(own(tmp_path / "c"))

    wanted = {
        "written by": "kproxy", "interfaces": ["client", "broker"], "payload": "head", "filter": "api == Metadata",
        "from": "1970-01-01T00:16:40.000000+00:00", "exchanges": 3, "broker exchanges": 1, "connections": 2,
        "unanswered": 1, "apis": ["Metadata 8: 2", "Produce 8: 1"], "servers": ["127.0.0.1:9092: 3"], "frames cut": 5,
        "stopped": "max_size", "exchanges dropped": 4, "packets dropped": None, "gaps": 0,
        "file ends within a packet": False,
    }  # fmt: skip
    assert wanted == {name: told[name] for name in wanted}


def test_others(golden: Path) -> None:
    """Who recorded it, and what is in it."""
    told = describe(golden)

    wanted = {"interfaces": ["lo"], "payload": None, "exchanges": 34, "connections": 7, "exchanges dropped": None,
              "packets dropped": 0, "servers": ["127.0.0.1:24476: 34"]}  # fmt: skip
    assert wanted == {name: told[name] for name in wanted}
    assert told["written by"].startswith("Dumpcap")


def test_the_command(tmp_path: Path, golden: Path) -> None:
    """Lines of name and value, or JSON."""
    lines = CliRunner().invoke(command, ["info", str(golden)]).output.splitlines()
    assert "exchanges\t34" in lines
    found = json.loads(CliRunner().invoke(command, ["info", "--json", str(own(tmp_path / "c"))]).output)
    assert found == describe(tmp_path / "c")
