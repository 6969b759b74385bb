"""The page that the matrix writes."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.lab.matrix.matrix import BROKERS, CLIENTS
from tests.lab.matrix.scenario import STEPS
from tests.lab.matrix.table import PAGE, render, render_profiles

YES = dict.fromkeys(STEPS, "yes")


def found(**ways: dict[str, str]) -> dict[str, Any]:
    """What a test keeps, of a client with these verdicts."""
    verdicts = {"direct": YES, "rename": YES, "prefix": YES} | ways
    return {"client": "c", "version": "1", "broker": "4.3.1", "day": "2026-11-21", "verdicts": verdicts}


def test_a_row_says_what_went_and_a_note_what_did_not() -> None:
    """A step that fails on one way is `no` in its column and in its way's, and its reason is below the table."""
    worse = render([found(prefix=YES | {"group": "10 records lack | w-1"})], [])

    assert "| c | 1 | 4.3.1 | yes | yes | yes | yes | yes | yes | yes | yes | as direct |" in render([found()], [])
    assert "- nothing" in render([found()], [])
    assert "| c | 1 | 4.3.1 | yes | yes | no | yes | yes | yes | yes | no | differs |" in worse
    assert "- c with 4.3.1, prefix, groups: 10 records lack / w-1" in worse


def test_what_a_client_has_not_got_is_no_difference() -> None:
    """A step that a client lacks on all ways is a dash, and a note says why."""
    lacks = YES | {"transactions": "missing: none"}
    page = render([found(direct=lacks, rename=lacks, prefix=lacks)], [])

    assert "| yes | yes | yes | – | yes | yes | yes | yes | as direct |" in page
    assert "- c with 4.3.1, directly, transactions: missing: none" in page


def test_the_same_with_several_brokers_is_told_once() -> None:
    """A client that lacks something lacks it with all of them."""
    lacks = YES | {"transactions": "missing: none"}
    one = found(direct=lacks, rename=lacks, prefix=lacks)
    page = render([{**one, "broker": "2.8.2"}, one], [])

    assert "- c with 2.8.2, 4.3.1, directly, transactions: missing: none" in page
    assert page.count("missing") == 1


def test_pairs_that_were_not_run_say_so() -> None:
    """A pair without findings has a row of its own, as wide as the others."""
    page = render([found()], [("d", "2.8.2")]).splitlines()

    assert page[3].startswith("| d | | 2.8.2 |") and page[3].endswith(" not run |")
    assert len({line.count("|") for line in page[:4]}) == 1


def test_the_page_has_every_pair() -> None:
    """RESULTS.md has a row of each client with each broker: clients that came later were not forgotten."""
    lines = PAGE.read_text().splitlines()

    for client, version in product(CLIENTS, BROKERS):
        assert any(line.startswith(f"| {client} |") and f"| {version} |" in line for line in lines), (client, version)


def test_profile_table_names_failed_steps() -> None:
    """A step that also fails directly is no difference. Clients without findings have a row."""
    lacks = YES | {"group": "missing: none"}
    profiles = {"direct": lacks, "a": lacks, "b": lacks | {"transactions": "error: x"}}
    page = render_profiles([{"client": "java", "version": "1", "day": "2026-11-28", "profiles": profiles}])

    assert "| client | version | a | b |" in page
    assert "| java | 1 | all | all except transactions |" in page
    assert "| sarama | | | not run |" in page
    assert "- java, b, transactions: error: x" in page
