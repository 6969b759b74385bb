"""Which tests run together, and which begin first, where workers share them (`pytest -n 2 --dist loadfile`).

Strategy: tests that need the same heavy thing (a Spark session, a Kafka of three brokers) go to one worker, which then
has it once; else a file is what goes to a worker. What takes longest begins first, so that all workers have work to
the end. Seconds are written down here for what takes long; all else is guessed from the number of tests and from what a
test of its folder usually takes: a file of three tests that start processes must not be the last of a run.

With `--one-waits` the last worker takes only units that wait more than they compute: for brokers, time-outs, clients
that try again. The others take these when there is nothing else left. So as many cores as there are other workers are
busy all the time, and no more is run at a time than they can bear.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TOGETHER = {
    "Spark": ("tests/lake/",),
    "three brokers": (
        "tests/clients/test_aiokafka.py",
        "tests/clients/test_confluent.py",
        "tests/clients/test_java.py",
        "tests/clients/test_kafka_python.py",
        "tests/clients/test_max_age.py",
        "tests/clients/test_racks.py",
        "tests/clients/test_telemetry.py",
        "tests/faults/test_leaders.py",
        "tests/kafka/test_admin.py",
        "tests/kafka/test_brokers.py",
        "tests/kafka/test_bypass.py",
        "tests/kafka/test_offsets.py",
    ),
    "Java's messages": ("tests/kafka/test_error_answers.py", "tests/kafka/test_java_"),
    "recordings": ("tests/tools/replay/test_to_kafka.py", "tests/tools/replay/test_serve.py"),
}
"""What is shared: how the paths of those who share it begin."""

SECONDS = {
    "Spark": 200,
    "three brokers": 130,
    "Java's messages": 50,
    "recordings": 35,
    "tests/admin/test_stretches.py": 10,
    "tests/cli/test_demo.py": 15,
    "tests/cli/test_tail.py": 15,
    "tests/app/workers/test_config_machine.py": 8,
    "tests/lab/matrix/test_matrix.py": 20,
    "tests/session/test_bounded_work.py": 10,
    "tests/deploy/test_grafana.py": 10,
    "tests/docs/test_develop_pages.py": 40,
    "tests/e2e/test_abuse.py": 20,
    "tests/e2e/test_allow_from.py": 15,
    "tests/e2e/test_audit.py": 15,
    "tests/e2e/test_circles.py": 20,
    "tests/e2e/test_drain.py": 30,
    "tests/e2e/test_ends.py": 15,
    "tests/e2e/test_config.py": 12,
    "tests/e2e/test_config_workers.py": 10,
    "tests/e2e/test_hostile_topology.py": 10,
    "tests/e2e/test_large_rules.py": 20,
    "tests/e2e/test_longest_turn.py": 15,
    "tests/e2e/test_other_systems.py": 20,
    "tests/e2e/test_otlp.py": 10,
    "tests/e2e/test_otlp_collector.py": 20,
    "tests/e2e/test_reaching_brokers.py": 20,
    "tests/e2e/test_readiness.py": 25,
    "tests/e2e/test_recording_busy.py": 10,
    "tests/e2e/test_reload.py": 20,
    "tests/e2e/test_start_and_state.py": 20,
    "tests/e2e/test_strangers.py": 15,
    "tests/e2e/test_tls.py": 25,
    "tests/e2e/test_workers.py": 25,
    "tests/testing/explore/test_interrupted.py": 10,
    "tests/faults/test_emptied_batches.py": 20,
    "tests/faults/test_errors.py": 15,
    "tests/faults/test_groups.py": 10,
    "tests/faults/test_lines.py": 13,
    "tests/app/test_config_clusters.py": 7,
    "tests/app/test_config_parts.py": 12,
    "tests/kafka/test_audit_topic.py": 15,
    "tests/kafka/test_group_renames.py": 15,
    "tests/kafka/test_limit_versions.py": 15,
    "tests/kafka/test_own_login.py": 25,
    "tests/kafka/test_sasl.py": 15,
    "tests/kafka/test_secrets.py": 25,
    "tests/kafka/test_security.py": 25,
    "tests/kafka/test_tenants.py": 25,
    "tests/kafka/test_tls.py": 15,
    "tests/runtime/test_rules_at_work.py": 10,
    "tests/runtime/test_taps_turmoil.py": 8,
    "tests/runtime/test_transparent.py": 12,
    "tests/runtime/test_turns.py": 12,
    "tests/app/test_config.py": 6,
    "tests/app/test_config_sequences.py": 6,
    "tests/rules/test_large_documents.py": 10,
    "tests/record/audit/test_kills.py": 15,
    "tests/test_docs.py": 30,
    "tests/test_howto_pages.py": 25,
    "tests/test_large_configs.py": 15,
    "tests/test_log_queue.py": 12,
    "tests/test_readme.py": 12,
    "tests/test_release.py": 10,
    "tests/test_replay_page.py": 8,
    "tests/testing/test_pytest_plugin.py": 30,
    "tests/testing/test_reports.py": 20,
    "tests/tools/verify/test_recorded_clean.py": 45,
}
"""Seconds that a file, or what is in TOGETHER, takes on a quiet machine. Only the order follows from it."""

WAITING = (
    "tests/access/",
    "tests/e2e/",
    "tests/record/events/test_numbers_agree.py",
    "tests/faults/",
    "tests/isolation/test_denied_kafka.py",
    "tests/isolation/test_tenant_kafka.py",
    "tests/kafka/",
    "tests/runtime/test_keepalive.py",
    "tests/runtime/test_rules_at_work.py",
    "tests/runtime/test_turns.py",
    "tests/app/workers/",
    "tests/lab/matrix/test_matrix.py",
    "tests/quota/",
    "tests/record/audit/test_kafka_outlet.py",
    "tests/record/audit/test_kills.py",
    "tests/record/audit/test_traffic.py",
    "tests/test_log_queue.py",
    "tests/tools/verify/test_recorded_clean.py",
)
"""How the paths of files begin whose tests wait more than they compute."""

A_TEST = {
    "tests/kafka/": 1.0,
    "tests/e2e/": 1.0,
    "tests/clients/": 1.0,
    "tests/faults/": 0.5,
    "tests/tools/replay/": 0.3,
    "tests/testing/": 0.2,
    "tests/deploy/": 0.2,
    "tests/runtime/": 0.1,
    "tests/admin/": 0.1,
    "tests/record/": 0.1,
    "tests/cli/": 0.1,
    "tests/": 0.015,
}
"""Seconds of a test that nothing else is known of, by how its path begins: the first that fits."""


def unit_of(nodeid: str) -> str:
    """What goes to one worker as a whole: a name of TOGETHER, or a file."""
    file = nodeid.partition("::")[0]
    return next((name for name, paths in TOGETHER.items() if file.startswith(paths)), file)


def seconds_of(unit: str, tests: int) -> float:
    """About how long a unit of so many tests takes."""
    each = (seconds for path, seconds in A_TEST.items() if unit.startswith(path))
    return SECONDS.get(unit) or tests * next(each, 0.0)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests so that units that take longest come first, each in one piece and in the order that it had."""
    counts = Counter(unit_of(item.nodeid) for item in items)
    order = sorted(counts, key=lambda unit: -seconds_of(unit, counts[unit]))
    place = {unit: number for number, unit in enumerate(order)}
    items.sort(key=lambda item: place[unit_of(item.nodeid)])


def waits(unit: str) -> bool:
    """Whether a unit waits more than it computes."""
    return unit.startswith(WAITING)


class ByUnit(LoadScopeScheduling):
    """Gives units to workers, in the order in which they were collected. `waiting`: the worker that only waits."""

    waiting = ""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        if config.getoption("one_waits") and self.numnodes > 1:
            self.waiting = f"gw{self.numnodes - 1}"

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker the first unit that is for it; one that only waits goes when there is none."""
        if self.waiting:
            only = node.gateway.id == self.waiting
            found = next((unit for unit in self.workqueue if waits(unit) is only), None)
            if found is not None:
                self.workqueue.move_to_end(found, last=False)
            elif only:
                node.shutdown()
                return
        super()._assign_work_unit(node)
