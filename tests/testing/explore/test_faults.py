"""The table of faults: each can be made, and says who does so."""

from __future__ import annotations

import pytest

from kproxy.protocol.table import errors as error_codes
from kproxy.rules.document.lint import lint_rules
from kproxy.rules.document.read import read_document
from kproxy.rules.values.source import Source
from kproxy.testing.explore.model import FAULT_CLASSES, ExchangePlace, FaultPlan, KnownFault, PlaceMark, PlannedFault
from kproxy.testing.explore.plan import DEFAULT_CLASSES, breaks_connection, fault_table, plan_rules, rule_file
from tests.testing.explore.made_up import TABLE

FAULTS = list(fault_table().all)


def place_for(fault: KnownFault) -> ExchangePlace:
    return ExchangePlace(fault.api, "app", mark=PlaceMark("ordinal", 2), traits=fault.needs)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_a_rule_without_mistakes(fault: KnownFault) -> None:
    """A fault's rule loads with the selectors of a place, and nothing is to be warned of but lies."""
    text = rule_file(FaultPlan((PlannedFault(place_for(fault), fault),)))
    document = read_document(Source("plan", text))
    warnings = [warning.text for warning in lint_rules(document.parsed_rules)]
    assert warnings == [] or fault.kind_of == "lies"
    assert document.parsed_rules[0].rule.kind == fault.rule["kind"]


def test_names_are_different() -> None:
    """A fault is counted by its name."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_each_fault_says_who_shows_it() -> None:
    """Only errors that a broker gives are tried: each fault names the place in Kafka's source, but for lies."""
    for fault in FAULTS:
        assert (fault.source == "none") == (fault.kind_of == "lies"), fault.name
        assert fault.source == "none" or ".java" in fault.source or ".scala" in fault.source, fault.name
        assert fault.kind_of in FAULT_CLASSES
        assert 0 < fault.weight <= 1
        assert fault.text
        if "error" in fault.rule:
            error_codes.by_name(fault.rule["error"])
            assert fault.rule["at"] == ("request" if fault.moment == "before" else "response"), fault.name


def test_a_place_gets_the_faults_that_suit_it() -> None:
    """Faults of producers with a number need one; what nobody answers loses no answer; lies come when asked for."""
    plain = ExchangePlace("Produce", traits=frozenset({"records"}))
    names = {fault.name for fault in fault_table().at(plain)}
    assert "Produce: answer lost" in names
    assert "Produce: INVALID_PRODUCER_EPOCH, before the work" not in names
    idempotent = ExchangePlace("Produce", traits=frozenset({"records", "idempotent"}))
    assert "Produce: INVALID_PRODUCER_EPOCH, before the work" in {one.name for one in fault_table().at(idempotent)}
    fireforget = ExchangePlace("Produce", traits=frozenset({"records", "unanswered"}))
    assert "Produce: answer lost" not in {one.name for one in fault_table().at(fireforget)}
    assert {fault.kind_of for fault in fault_table().at(plain)} == set(DEFAULT_CLASSES)
    assert "lies" in {fault.kind_of for fault in fault_table().at(plain, FAULT_CLASSES)}
    assert list(fault_table().at(ExchangePlace("DescribeAcls"))) == []


def test_what_the_mock_does_otherwise_is_left_out_there() -> None:
    """The mock stores an idempotent batch again whose answer was lost, which a broker does not."""
    place = ExchangePlace("Produce", traits=frozenset({"idempotent"}))
    assert "Produce: answer lost" in {one.name for one in TABLE.at(place)}
    assert "Produce: answer lost" not in {one.name for one in TABLE.at(place, on_mock=True)}
    assert {one.name for one in TABLE.untried(place, DEFAULT_CLASSES)} == {"Produce: answer lost"}
    assert "Produce: answer lost" in {one.name for one in TABLE.at(ExchangePlace("Produce"), on_mock=True)}


def test_lost_answers_of_real_tables_are_left_out_on_the_mock() -> None:
    """No fault after the work of an idempotent producer is tried on the mock, in whatever way it comes."""
    place = ExchangePlace("Produce", traits=frozenset({"idempotent", "records"}))
    left = {fault.moment for fault in fault_table().at(place, on_mock=True) if "late" not in fault.name}
    assert left == {"before"}


def test_broken_connections_are_told_from_errors() -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    assert breaks_connection(by_name["Produce: answer lost"])
    assert not breaks_connection(by_name["Produce: REQUEST_TIMED_OUT, after the work"])


def test_rules_of_a_crash_hold_the_request() -> None:
    """The client is killed while its request is held, so the rule holds it."""
    crash = next(fault for fault in FAULTS if fault.kind_of == "crash")
    (rule,) = plan_rules(FaultPlan((PlannedFault(place_for(crash), crash),)))
    assert rule["when"]["hold"] is True
