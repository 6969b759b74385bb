"""Needs of tests beyond Python: processes of their own, a JVM with Kafka, Spark, and programs of the system.

Strategy. The tables below say it by folder or file; `conftest.py` sets the markers `process`, `kafka`, `spark` and
`tools(NAME, …)` from them. Tests without a marker are those of `make quick`: they run in the process of pytest, and
one that starts another process there fails, so the tables cannot be wrong unseen. Tests that need a program which this
machine lacks are left out, and the last line of the run says how many and why.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.built_programs import BUILT, built

SPARK = ("tests/lake/",)
KAFKA = (
    "tests/access/",
    "tests/clients/",
    "tests/record/events/test_numbers_agree.py",
    "tests/testing/explore/test_real_kafka.py",
    "tests/faults/",
    "tests/isolation/test_denied_kafka.py",
    "tests/isolation/test_tenant_kafka.py",
    "tests/kafka/",
    "tests/lab/conformance/test_cell.py",
    "tests/lab/matrix/test_matrix.py",
    "tests/quota/",
    "tests/tools/replay/test_serve.py",
    "tests/tools/replay/test_to_kafka.py",
    "tests/lab/soak/",
    "tests/testing/test_class_archive.py",
    "tests/testing/test_real_kafka.py",
    "tests/tools/verify/test_recorded_clean.py",
    "tests/tools/verify/test_recorded_copier.py",
    "tests/tools/verify/test_recorded_faults.py",
)
PROCESS = (
    "tests/lab/bench/",
    "tests/record/captures/test_page.py",
    "tests/record/captures/test_packets.py",
    "tests/record/captures/test_reader.py",
    "tests/record/captures/test_redact.py",
    "tests/record/captures/test_wireshark.py",
    "tests/record/captures/test_writer.py",
    "tests/cli/test_cli.py",
    "tests/cli/test_completion.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_exchange_rows.py",
    "tests/cli/test_mock.py",
    "tests/cli/test_on_a_terminal.py",
    "tests/cli/test_replay.py",
    "tests/cli/test_start.py",
    "tests/cli/test_tail.py",
    "tests/cli/test_verify_follow.py",
    "tests/tools/verify/test_played.py",
    "tests/cli/tui/test_proxy.py",
    "tests/cli/tui/test_real_proxy.py",
    "tests/deploy/",
    "tests/docs/",
    "tests/e2e/",
    "tests/testing/explore/test_explored_commands.py",
    "tests/testing/explore/test_explored_page.py",
    "tests/testing/explore/test_explored_tests.py",
    "tests/testing/explore/test_fork_runner.py",
    "tests/testing/explore/test_interrupted.py",
    "tests/testing/explore/test_planted.py",
    "tests/runtime/test_transparent.py",
    "tests/app/workers/",
    "tests/lab/kits/test_java_kit.py",
    "tests/lab/test_needs.py",
    "tests/record/audit/test_disks.py",
    "tests/record/audit/test_event_files.py",
    "tests/record/audit/test_kills.py",
    "tests/record/audit/test_traffic.py",
    "tests/record/metrics/test_label_sink.py",
    "tests/test_docs.py",
    "tests/test_garbage.py",
    "tests/test_howto_pages.py",
    "tests/test_inspect_page.py",
    "tests/test_jars.py",
    "tests/test_log_lines.py",
    "tests/test_log_queue.py",
    "tests/test_preloaded.py",
    "tests/test_readme.py",
    "tests/test_release.py",
    "tests/test_replay_page.py",
    "tests/test_terminal.py",
    "tests/test_workers_page.py",
    "tests/testing/test_process.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/testing/test_reports.py",
    "tests/testing/test_time_limit.py",
    "tests/testing/test_verification.py",
    "tests/admin/page/",
    "tests/record/live_view/test_files_only.py",
    "tests/record/live_view/test_send_again.py",
    "tests/record/live_view/test_sources.py",
    "tests/record/live_view/test_view_commands.py",
    "tests/record/live_view/test_workers_view.py",
    "tests/admin/webhook/test_webhook_page.py",
    "tests/protocol/test_compression.py",
)
TOOLS = {
    "tests/record/captures/test_page.py": ("tshark",),
    "tests/record/captures/test_packets.py": ("tshark",),
    "tests/record/captures/test_reader.py": ("tshark",),
    "tests/record/captures/test_redact.py": ("tshark",),
    "tests/record/captures/test_wireshark.py": ("tshark", "editcap", "mergecap"),
    "tests/record/captures/test_writer.py": ("tshark",),
    "tests/deploy/test_grafana.py": ("prometheus",),
    "tests/deploy/test_helm.py": ("helm", "crds"),
    "tests/deploy/test_helm_mistakes.py": ("helm",),
    "tests/deploy/test_helm_page.py": ("helm", "kustomize"),
    "tests/deploy/test_helm_webhook.py": ("helm",),
    "tests/deploy/test_kustomize.py": ("kustomize",),
    "tests/deploy/test_prometheus.py": ("promtool",),
    "tests/deploy/test_systemd.py": ("systemd-analyze",),
    "tests/e2e/test_haproxy.py": ("haproxy",),
    "tests/e2e/test_otlp_collector.py": ("otelcol",),
    "tests/testing/explore/test_explored_page.py": ("chromium",),
    "tests/runtime/test_transparent.py": ("nft", "ip", "unshare"),
    "tests/lake/gold/report/test_page.py": ("chromium",),
    "tests/lab/kits/test_java_kit.py": ("javac",),
    "tests/test_docs.py": ("jq", "tshark"),
    "tests/test_howto_pages.py": ("jq",),
    "tests/admin/page/": ("chromium",),
    "tests/admin/webhook/test_webhook_page.py": ("openssl",),
}
"""Programs of the system by the tests that call them, and those of `tests/bring-go-tools`."""
JVM = ("java", "javac", "mvn")
"""Programs without which there is neither Kafka nor Spark."""
STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"))
"""Events of Python's audit by which a process is started."""


def needs_of(nodeid: str) -> dict[str, tuple[str, ...]]:
    """Return the markers of a test with the programs that each of them needs."""
    file = nodeid.partition("::")[0]
    found: dict[str, tuple[str, ...]] = {}
    if file.startswith(SPARK):
        found["spark"] = JVM
    if file.startswith(KAFKA):
        found["kafka"] = JVM
    if file.startswith(PROCESS) or found:
        found["process"] = ()
    for place, programs in TOOLS.items():
        if file.startswith(place):
            found["tools"] = programs
    return found


def is_there(program: str) -> bool:
    """Return True if this machine has a program, or tests/bring-go-tools has built it."""
    return built(program).exists() if program in BUILT else shutil.which(program) is not None


class Needs:
    """Plugin of one run of pytest that sets the markers and leaves out what cannot run on this machine."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()

    def declare(self, config: pytest.Config) -> None:
        """Declare the markers."""
        for line in (
            "process: starts processes",
            "kafka: needs a JVM and Kafka's jars",
            "spark: needs a JVM and Spark",
            "tools(name, ...): needs these programs of the system",
        ):
            config.addinivalue_line("markers", line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Set the markers, and take out the tests whose programs are not there."""
        kept, missing = [], {}
        for item in items:
            lacking: list[str] = []
            needed = [program for marker in item.iter_markers("tools") for program in marker.args]
            for marker, programs in needs_of(item.nodeid).items():
                item.add_marker(getattr(pytest.mark, marker)(*programs))
                needed += programs
            for program in needed:
                if program not in missing:
                    missing[program] = not is_there(program)
                if missing[program]:
                    lacking.append(f"{program} (make programs builds it)" if program in BUILT else program)
            if lacking:
                self.left_out[" and ".join(sorted(set(lacking)))] += 1
            else:
                kept.append(item)
        if len(kept) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
            items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the main process of xdist what a worker has left out, before the worker's output is sent."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left out"] = dict(self.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over what a worker has left out: all of them leave out the same."""
        self.left_out = Counter(getattr(node, "workeroutput", {}).get("left out", self.left_out))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many tests were left out, by the programs that are missing."""
        for programs, count in sorted(self.left_out.items()):
            terminalreporter.write_line(f"left out: {count} tests, there is no {programs}", yellow=True)


class InProcess:
    """Plugin of `--in-process`: a test that starts a process fails, since it lacks a marker."""

    running = ""

    def __init__(self) -> None:
        sys.addaudithook(self.look)

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Pass over files and folders of which all tests start processes: nothing of them needs to be imported."""
        if not collection_path.is_relative_to(config.rootpath):
            return None
        path = collection_path.relative_to(config.rootpath).as_posix()
        return True if needs_of(f"{path}/" if collection_path.is_dir() else path) else None

    def look(self, event: str, arguments: tuple[object, ...]) -> None:
        """Raise RuntimeError if a test is running and starts a process."""
        if self.running and event in STARTS:
            raise RuntimeError(f"{self.running} starts a process: it needs a line in tests/needs.py")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Look while a test runs, with its fixtures."""
        self.running = item.nodeid
        try:
            return (yield)
        finally:
            self.running = ""
