"""The parts of the bench that need neither HAProxy nor a C compiler work; nothing is measured here."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kproxy.protocol import decode_request, decode_response
from kproxy.testing.cluster import MockCluster
from kproxy.testing.process import process_tree
from tests.lab.bench import (
    frames,
    kept,
    latency_phase,
    machine,
    peers,
    report,
    rules_phase,
    run,
    targets,
    tool_output,
    view_phase,
)
from tests.lab.bench.rows import Rows
from tests.support.wait import until

HERE = Path(__file__).parent


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("size", [200, 16_000, 1_000_000])
def test_produce_frames_have_the_size_that_their_case_is_named_after(version: int, size: int) -> None:
    frame = frames.produce(version, size)
    assert size - 1 <= len(frame) <= size  # the length of a length may be in the way
    assert decode_request(frame[4:]).body["acks"] == 1


def test_every_answer_of_the_stand_in_is_a_response_of_its_version() -> None:
    data, found = frames.answers(9092, 100), {}
    while data:
        key, version, size = (int.from_bytes(data[a:b], "big") for a, b in ((0, 2), (2, 4), (4, 8)))
        found[key, version] = decode_response(data[12 : 8 + size], key, version).body
        data = data[8 + size :]
    assert {(18, 3), (3, 12), (0, 9), (0, 12), (1, 17)} == set(found)
    assert sum(len(topic["partitions"]) for topic in found[3, 12]["topics"]) == 1000


def test_the_confluent_client_produces_and_consumes_what_it_says() -> None:
    with MockCluster(1) as mock:
        mock.create_topic("load", 1)
        for verb in ("produce", "consume"):
            command = [sys.executable, HERE / "perf_client.py", verb, mock.bootstrap, "load", "300"]
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
            assert json.loads(done.stdout)["records"] == 300


def test_the_summary_says_of_each_goal_whether_it_was_reached() -> None:
    rows = Rows()
    for ours, theirs in ((30.0, 20.0), (26.0, 20.0), (50.0, 50.0)):  # 1.5, 1.3 and 1.0 times: 1.3 in the median
        for case in ("200 B, 1 in flight", "200 B, 32 in flight, Produce 12", "16 kB, 16 in flight"):
            rows.add(case, "kproxy", {"us": ours, "rate": 1.0})
            rows.add(case, "haproxy", {"us": theirs, "rate": 1.0})
    for target, speed, cpu in (("direct", 100, 0), ("haproxy", 80, 1.0), ("kproxy", 79, 1.2)):
        rows.add("produce", target, {"mbs": speed, "cpu_gb": cpu})
    lines = report.summary(rows)
    assert lines[2:-1] == [
        "| produce 1 kB records, acks=1: MB/s | ≥ 1 × HAProxy | 0.99 × (0.79 and 0.80 of direct) | **no** |",
        "| produce, per GB: proxy CPU | ≤ 1.3 × HAProxy | 1.20 × (1.20 and 1.00 s) | yes |",
        "| 200 B, 1 in flight: proxy CPU | ≤ 1.1 × HAProxy | 1.30 × (30.0 and 20.0 µs) | **no** |",
        "| 200 B, 32 in flight, Produce 12: proxy CPU | ≤ 1 × HAProxy | 1.30 × (30.0 and 20.0 µs) | **no** |",
        "| 16 kB, 16 in flight: proxy CPU | ≤ 1.2 × HAProxy | 1.30 × (30.0 and 20.0 µs) | **no** |",
    ]
    assert "### Start and memory" not in report.tables(rows, [])


def test_latencies_are_told_as_what_a_proxy_adds_to_direct() -> None:
    """Of each round by itself: what the machine does to both is not the proxy's."""
    rows = Rows()
    case = latency_phase.case_name(25)
    for slower in (0.0, 500.0, 900.0):  # µs
        for target, more in (("direct", 0.0), ("haproxy", 40.0), ("kproxy", 90.0)):
            row = {"rate": 1000.0, "p50": 100 + slower + more, "p99": 200 + slower + more, "p999": 300.0}
            rows.add(case, target, row)
    lines = report.latencies(rows)
    assert "| 25 % | kproxy | 1,000 | 0.69 (+0.09) | 0.79 (+0.09) | 0.30 (+0.00) |" in lines
    assert f"| {case}: p50 added to direct | ≤ HAProxy | 0.09 ms (HAProxy 0.04 ms) | **no** |" in report.summary(rows)


def test_a_ratio_that_has_fallen_by_more_than_a_tenth_is_named() -> None:
    """Less CPU and more exchanges are better; cases that only one of the runs has are not compared."""
    rows = Rows()
    for target, us, rate in (("haproxy", 20.0, 100.0), ("kproxy", 25.0, 90.0)):
        rows.add("a case", target, {"us": us, "rate": rate})
    now = kept.ratios(rows)
    assert now == {"a case: rate, kproxy against haproxy": 0.9, "a case: us, kproxy against haproxy": 0.8}
    was = {**now, "a case: us, kproxy against haproxy": 0.9, "of another day": 1.0}
    assert kept.worse(was, now) == ["a case: us, kproxy against haproxy: 0.80, was 0.90"]
    assert not kept.worse({**was, "a case: us, kproxy against haproxy": 0.88}, now)


def test_a_check_says_when_another_python_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratios that have fallen under another interpreter are told with both; where none has fallen there is nothing."""
    rows = Rows()
    monkeypatch.setattr(kept, "FILE", tmp_path / "kept.json")
    for target, us in (("haproxy", 20.0), ("kproxy", 16.0)):
        rows.add("a case", target, {"us": us})
    kept.write(rows)
    assert kept.compare(rows) == []

    rows.cases["a case"]["kproxy"][0]["us"] = 20.0
    fallen = "a case: us, kproxy against haproxy: 1.00, was 1.25"
    assert kept.compare(rows) == [fallen]

    kept.FILE.write_text(kept.FILE.read_text().replace(json.dumps(sys.version)[1:-1], "3.9 of another house"))
    assert kept.compare(rows) == [fallen, f"they were kept with Python 3.9 of another house, this is {sys.version}"]


def test_kept_ratios_of_other_processors_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is compared with its own processor type only. Without kept ratios of that type, the check fails."""
    rows = Rows()
    monkeypatch.setattr(kept, "FILE", tmp_path / "kept.json")
    for target, us in (("haproxy", 20.0), ("kproxy", 16.0)):
        rows.add("a case", target, {"us": us})
    for name, ours in (("AMD EPYC", 16.0), ("Intel Xeon", 25.0)):
        monkeypatch.setattr(kept, "processor", lambda name=name: name)
        rows.cases["a case"]["kproxy"][0]["us"] = ours
        with pytest.raises(LookupError, match=f"expected kept ratios of {name}, got those of (none|AMD EPYC) "):
            kept.compare(rows)
        kept.write(rows)
        assert kept.compare(rows) == []

    found = json.loads(kept.FILE.read_text())
    assert {name: one["ratios"] for name, one in found.items()} == {
        "AMD EPYC": {"a case: us, kproxy against haproxy": 1.25},
        "Intel Xeon": {"a case: us, kproxy against haproxy": 0.8},
    }


def test_report_keeps_sections_of_other_processors() -> None:
    """A new section replaces the earlier one of its name. Sections are sorted; the method is new, and last."""
    report = ""
    for name in ("Intel Xeon", "AMD EPYC", "Intel Xeon"):
        report = kept.replaced(report, name, f"figures of {name}\n\n### Summary\n", "# Title", f"made for {name}")

    assert list(kept.sections(report)) == ["AMD EPYC", "Intel Xeon", "Method"]
    assert report.startswith("# Title\n\n## AMD EPYC\n\nfigures of AMD EPYC\n\n### Summary\n\n## Intel Xeon\n\n")
    assert report.endswith("## Method\n\nmade for Intel Xeon\n")
    assert (
        kept.replaced(report, "AMD EPYC", "figures of AMD EPYC\n\n### Summary", "# Title", "made for Intel Xeon")
        == report
    )


def test_results_of_each_kept_processor_have_a_section() -> None:
    """The report has no kept ratios without figures."""
    assert json.loads(kept.FILE.read_text()).keys() <= kept.sections(run.RESULTS.read_text()).keys()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
        ("Intel(R) Xeon(R) CPU E5-2670 v3 @ 2.30GHz", "Intel Xeon"),
        ("AMD EPYC", "AMD EPYC"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC"),
    ],
)
def test_processor_type_has_no_model_number(model: str, name: str) -> None:
    assert machine.processor(f"vendor_id\t: X\nmodel name\t: {model}\nstepping\t: 1\nmodel name\t: {model}\n") == name


def test_speeds_are_read_from_what_kafkas_tools_print() -> None:
    percentiles = "2.0 ms avg latency, 9.00 ms max latency, 2 ms 50th, 3 ms 95th, 4 ms 99th, 5 ms 99.9th."
    made = (
        "900 records sent, 90.0 records/sec (0.09 MB/sec), 2.0 ms avg latency, 9.0 ms max latency.\n"
        f"1000 records sent, 90.5 records/sec (10.10 MB/sec), {percentiles}\n"
        f"800 steady state records sent, 95.5 records/sec (11.35 MB/sec), {percentiles}\n"
    )
    assert tool_output.produced(made, 1000) == 11.35
    with pytest.raises(ValueError, match="expected a summary of 1001 records"):
        tool_output.produced(made, 1001)
    read = (
        "2026-01-01 11:03:05:219, 2026-01-01 11:03:07:471, 57.22, 25.40, 1000, 26642.98, 1265, 987, 57.97, 60790.27\n"
    )
    assert tool_output.consumed(read, 1000) == 57.97
    with pytest.raises(ValueError, match="expected a line about 1001 records"):
        tool_output.consumed(read, 1001)


def test_the_watch_sees_where_a_process_is_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, machine.PortWatch(os.getpid()) as watch:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            until(lambda: port in watch.seen)


def test_the_cpu_of_a_proxy_is_that_of_its_workers_too() -> None:
    """A supervisor does little itself; what its workers use is what its users pay."""
    code = "import os, time; os.fork(); [None for _ in iter(lambda: time.process_time() > 0.3, True)]; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        try:
            until(lambda: len(process_tree(parent.pid)) == 2)
            until(lambda: machine.cpu(parent.pid) > 0.55)
        finally:
            for pid in reversed(process_tree(parent.pid)):
                os.kill(pid, signal.SIGKILL)


def test_another_checkout_is_compared_in_the_same_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program runs the same commands, and each figure of a target is told beside its own."""
    monkeypatch.setattr(targets, "TARGETS", dict(targets.TARGETS))
    assert targets.with_before(["haproxy", "kproxy", "rename"]) == ["haproxy", "kproxy", "rename"]
    targets.TARGETS.update(targets.targets_before(Path("/other/kproxy")))
    assert targets.with_before(["haproxy", "kproxy", "rename"])[3:] == ["before", "before-rename"]
    ours, theirs = (targets.TARGETS[name].command(tmp_path, 2000, 3000) for name in ("rename", "before-rename"))
    assert theirs == [Path("/other/kproxy"), *ours[1:]]

    rows = Rows()
    for name, us, rate in (("kproxy", 12.0, 80.0), ("before", 10.0, 100.0), ("haproxy", 8.0, 100.0)):
        rows.add("200 B, 1 in flight", name, {"us": us, "rate": rate})
    assert report.changes(rows)[2:] == ["| 200 B, 1 in flight | kproxy |  | 0.80 | 1.20 |  |  |  |  |", ""]


def test_what_looking_takes_is_told_by_the_second() -> None:
    """Of the proxy and of the page, which share the cores."""
    rows, case = Rows(), view_phase.CASES[0].name
    for plain, seen in ((50.0, 58.0), (50.0, 57.0), (51.0, 59.0)):
        rows.add(case, view_phase.PLAIN, {"us": plain, "rate": 10_000.0})
        rows.add(case, view_phase.OPEN, {"us": seen, "rate": 9_500.0, "page": 0.012})
    found = "0.95 × (CPU of a second: kproxy 76 ms more, the page 12)"

    assert f"| a page is open, 200 B, 1 in flight: exchanges/s | ≥ 0.9 × without | {found} | yes |" in report.summary(
        rows
    )
    assert "| 200 B, 1 in flight | 10,000 | 0.95 | 1.16 | 76 | 12 |" in report.views(rows)


def test_kroxylicious_is_run_from_the_named_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version comes from the runtime's file name. A folder without that file is an error."""
    monkeypatch.setenv("KROXYLICIOUS", str(tmp_path))
    with pytest.raises(SystemExit, match=r"KROXYLICIOUS: expected a folder with kroxylicious-runtime-\*\.jar, got "):
        peers.peers()

    (tmp_path / "kroxylicious-runtime-0.21.0.jar").touch()
    assert peers.peers()[0].text == "Kroxylicious 0.21.0, no filters"


def test_a_missing_program_is_named_with_its_debian_package() -> None:
    with pytest.raises(SystemExit, match=r"no-such-program is not installed \(Debian: apt-get install its-package\)"):
        targets.tool("no-such-program", "its-package")


def test_the_cost_of_rules_is_shown_beside_an_exchange_without_any() -> None:
    """Every set of rules can be run, does what it is called after, and has a line of its own."""
    phase, rows = rules_phase, Rows()
    phase.measure(rows, rounds=1, times=3)
    sets = phase.rule_sets()
    lines = report.rules(rows)
    assert len(lines) == len(sets) + 3
    assert len(report.records(rows)) == 3 + 2 * len(phase.SIZES) + 1
    for name in sets:
        exchange = phase.Exchange(sets[name])
        exchange.run(4)
        fired = sum(running.fired for running in exchange.rules.live)
        assert fired == (4 if name.startswith(("quota", "error")) and name != phase.WAITS else 0), name
