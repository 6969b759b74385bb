"""The faults of the conformance report: one at least of each kind, and rules that load."""

from __future__ import annotations

import pytest

from kproxy.rules.document.read import parse_rules
from kproxy.rules.kinds import KINDS
from tests.lab.conformance import run
from tests.lab.conformance.faults import GROUP, NO_FAULT, SENSIBLE, TOPIC, Fault, faults, from_example, is_fault
from tests.lab.conformance.kept import NAMES, WITHOUT, fits, wanted
from tests.lab.matrix.matrix import CLIENTS, HERE
from tests.lab.matrix.scenario import TRAFFIC


def test_every_kind_of_fault_is_met() -> None:
    """The kinds come from their table, so that a new one is met, too; no exchange is named for a kind that is none."""
    kinds = {kind for kind, model in KINDS.items() if is_fault(model)}

    assert {fault.kind for fault in faults().values()} == kinds
    assert set(SENSIBLE) <= kinds
    assert len(kinds) > 40


@pytest.mark.parametrize("fault", faults().values(), ids=lambda fault: fault.name)
def test_the_rule_of_a_fault_loads(fault: Fault) -> None:
    """With the names of a run in place of its placeholders, as it is written on the page."""
    (parsed,) = parse_rules(fault.document()).rules
    rule = fault.rule("run1-topic", "run1-group")

    assert (parsed.kind, parsed.name) == (fault.kind, fault.name)
    assert f"'{TOPIC}'" not in str(rule) and f"'{GROUP}'" not in str(rule)


def test_a_kind_without_a_word_has_the_rule_of_its_example() -> None:
    """About the topic and the group of the run; what would select clients that are not there is left out."""
    example = "- name: x\n  kind: delay\n  match: {topic: orders, client_id: 'a-*', api: Fetch}\n  delay: 1s\n"

    assert from_example(example) == {"match": {"topic": TOPIC, "api": "Fetch"}, "delay": "1s"}


def test_runs_are_chosen_by_words() -> None:
    """A client by its whole name, faults by a part of theirs, and one run by both."""
    names = list(faults())

    assert wanted(names, "librdkafka/drop_commit") == [("librdkafka", "drop_commit")]
    assert [client for client, _ in wanted(names, "librdkafka")] == ["librdkafka"] * (len(names) + 1)
    assert wanted(names, "sarama error.write-too-large") == [("sarama", "error.write-too-large")]
    assert wanted(names, "")[0] == (NAMES[0], NO_FAULT)
    assert not fits(("rust-rdkafka", NO_FAULT), "rdkafka")
    assert wanted(names, "nothing-like-it") == []


def test_each_program_has_the_traffic() -> None:
    """Every client of the matrix but those that are named has the step, in one of its files."""
    folders = {path.name.replace("_", "-"): path for path in HERE.iterdir() if path.is_dir()}

    for name in NAMES:
        texts = [
            path.read_text()
            for path in folders[name].rglob("*")
            if path.suffix in {".py", ".go", ".rs", ".js", ".java"}
        ]
        assert any(TRAFFIC in text for text in texts), name
    assert set(WITHOUT) < set(CLIENTS)


def test_the_command_line_has_bounds() -> None:
    """So many runs at once are no use, and times are written as in rules."""
    given = run.arguments(["-k", "sarama", "--for", "10m", "--jobs", "2"])

    assert (given.k, given.seconds, given.jobs) == ("sarama", 600.0, 2)
    for wrong in (["--jobs", "0"], ["--jobs", "99"], ["--for", "soon"]):
        with pytest.raises(SystemExit):
            run.arguments(wrong)
