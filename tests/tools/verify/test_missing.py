"""Parts that a record lacks: each leaves open only the checks, and refutes only the absence, that it can concern."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.cli.verify_input import filtered, over
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from kproxy.tools.verify import VerifyTerms
from kproxy.tools.verify.options import BadTerm, MissingPart, of_apis, outside, terms_of
from tests.support.exchange_factory import NOON, write_capture
from tests.tools.verify.history import History, batch

A, B = batch(b"a", b"aa"), batch(b"b", b"bb", at=1)
SERVER = ("127.0.0.1", 9092)
LOGS = {"lost-write", "inconsistent-offset", "duplicate", "watermark-behind"}


def history(start: float = 0.0) -> History:
    """Return two writes that are read, and a commit that is reported."""
    made = History()
    made.write(start + 1, A, 0)
    made.write(start + 2, B, 2)
    made.read(start + 3, 0, (0, A), (2, B))
    made.commit(start + 4, 4)
    made.told(start + 5, 4)
    return made


@pytest.mark.parametrize(
    ("part", "clean", "open_"),
    [
        (outside("two workers died"), LOGS | {"lost-commit"}, set()),
        (of_apis("some", "OffsetCommit"), LOGS, {"lost-commit"}),
        (MissingPart("some", undecided=frozenset(("Produce",))), {"lost-commit"}, LOGS),
        (MissingPart("some", frozenset(), frozenset()), LOGS | {"lost-commit"}, set()),
        (MissingPart("some"), set(), LOGS | {"lost-commit", "answer-order"}),
        (filtered("some", "api == Produce or api == Fetch or api == ShareFetch"), LOGS, {"lost-commit"}),
        (filtered("some", "api == Produce and topic == orders"), set(), LOGS),
        (filtered("some", "("), set(), LOGS),
    ],
    ids=["outside", "api", "connection", "frames", "anything", "filter-apis", "filter-topic", "filter-damaged"],
)  # fmt: skip
def test_part_leaves_open_checks_that_need_it(part: MissingPart, clean: set[str], open_: set[str]) -> None:
    verdict = history().verdict(incomplete=[part])
    assert clean <= set(verdict.clean)
    assert open_ <= verdict.not_checked.keys()
    assert verdict.incomplete == [part.text]


@pytest.mark.parametrize(
    ("part", "level"),
    [
        (None, "proved"),
        (of_apis("configs", "DescribeConfigs"), "proved"),
        (MissingPart("frames", frozenset(), frozenset()), "proved"),
        (of_apis("commits", "OffsetCommit"), "suspect"),
        (outside("began later"), "suspect"),
        (MissingPart("gap", undecided=frozenset(("DescribeConfigs",))), "suspect"),
    ],
)
def test_part_refutes_absence_that_it_may_hide(part: MissingPart | None, level: str) -> None:
    """A commit that went back: with --assume-complete all commits are in the record."""
    made = History()
    made.read(1, 0, (0, A), (2, B))
    made.commit(2, 4)
    made.told(3, 2)
    terms: dict[str, Any] = {"assume_complete": True, "incomplete": [] if part is None else [part]}
    assert made.findings(**terms)["lost-commit"] == level


def test_config_exchange_that_was_cut_keeps_complete() -> None:
    """Only the absence of config changes and of other topics depends on it."""
    terms = VerifyTerms(
        assume_complete=True, incomplete=[of_apis("1 DescribeConfigs were not kept", "DescribeConfigs")]
    )
    assert terms.proves_absence()
    assert not terms.proves_absence(frozenset(("AlterConfigs", "DescribeConfigs")))
    assert terms.undecided(["Produce", "Fetch"]) == ""


def late(path: Path, change: Callable[[CaptureWriter], None] = lambda writer: None, **about: Any) -> dict[str, Any]:
    """Return the verdict of a capture with older connections; it lacks the request of the first response."""
    made = history(NOON)
    first = made.add(NOON + 0.5, "Fetch", 11, {"topics": []}, {"responses": []})
    first.request = None
    made.verdict()  # adds Metadata and DescribeConfigs at the end
    with path.open("wb") as file:
        writer = CaptureWriter(file, Policy("full"), about=about)
        pairs = sorted(made.pairs, key=lambda pair: pair.front.response.last if pair.front.response else 0.0)
        for pair in pairs:
            assert pair.front is not None
            writer.write(pair.front, SERVER, older=True)
        change(writer)
        writer.finish_part(NOON + 60, {})
        writer.finish(NOON + 60, "asked", 2 if change is dropped else 0, writers=3 if change is died else None)
    result = CliRunner().invoke(main, ["verify", str(path), "-o", "json"])
    assert result.exit_code == 0, result.output
    verdict: dict[str, Any] = json.loads(result.output)
    return verdict


def dropped(writer: CaptureWriter) -> None:
    writer.finish_part(NOON + 59, {"dropped": {"OffsetCommit": 2}})


def died(writer: CaptureWriter) -> None:
    writer.finish_part(NOON + 59, {})


def under_way(writer: CaptureWriter) -> None:
    writer.finish_part(NOON + 59, {"open": {"Fetch": 1}})


def test_capture_of_live_traffic_has_clean_checks(tmp_path: Path) -> None:
    """The response to an earlier request gives no suspicion, and leaves no check open."""
    verdict = late(tmp_path / "late.pcapng")
    assert verdict["findings"] == []
    assert LOGS | {"lost-commit"} <= set(verdict["clean"])
    assert verdict["not_checked"]["answer-order"] == "kproxy closes such connections"
    (sentence,) = verdict["incomplete"]
    assert sentence.endswith("older than it; 1 response to earlier requests passed over")


@pytest.mark.parametrize(
    ("change", "open_", "says"),
    [
        (dropped, {"lost-commit"}, "no time for 2 exchanges (2 OffsetCommit)"),
        (died, set(), "workers ended before it"),
        (under_way, set(), "1 request in flight at its end (1 Fetch)"),
    ],
)
def test_note_in_the_capture_leaves_open_what_it_names(
    tmp_path: Path, change: Callable[[CaptureWriter], None], open_: set[str], says: str
) -> None:
    verdict = late(tmp_path / "c.pcapng", change)
    assert any(says in sentence for sentence in verdict["incomplete"]), verdict["incomplete"]
    assert set(verdict["clean"]) >= LOGS - open_
    assert open_ <= verdict["not_checked"].keys()
    assert open_.isdisjoint(verdict["clean"])


@pytest.mark.parametrize(
    ("api", "config", "level"),
    [
        ("IncrementalAlterConfigs", {"name": "retention.ms", "config_operation": 0, "value": "1"}, "proved"),
        ("IncrementalAlterConfigs", {"name": "cleanup.policy", "config_operation": 0, "value": "delete"}, "proved"),
        ("IncrementalAlterConfigs", {"name": "cleanup.policy", "config_operation": 0, "value": "secret"}, "suspect"),
        ("IncrementalAlterConfigs", {"name": "cleanup.policy", "config_operation": 1, "value": None}, "suspect"),
        ("IncrementalAlterConfigs", {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}, None),
        ("AlterConfigs", {"name": "retention.ms", "value": "1"}, "suspect"),
        ("AlterConfigs", {"name": "cleanup.policy", "value": "delete"}, "proved"),
    ],
)
def test_lost_write_between_configs_in_a_capture(
    tmp_path: Path, api: str, config: dict[str, Any], level: str | None
) -> None:
    """kproxy's captures have the policy, so they prove a loss; an unknown policy in between leaves a doubt."""
    made = History(known=True)
    made.write(1, A, 0)
    made.write(2, B, 2)
    resource = {"resource_type": 2, "resource_name": "orders", "configs": [config]}
    made.add(2.5, api, 1, {"resources": [resource]}, {"responses": []})
    made.read(3, 0, (2, B))
    made.verdict()  # adds Metadata and DescribeConfigs at the end
    path = write_capture(tmp_path / "c.pcapng", [pair.front for pair in sorted(made.pairs, key=over) if pair.front])
    result = CliRunner().invoke(main, ["verify", str(path), "-o", "json", "--only", "lost-write"])
    verdict = json.loads(result.output)
    assert {one["check"]: one["level"] for one in verdict["findings"]} == (
        {} if level is None else {"lost-write": level}
    )
    assert verdict["incomplete"] == []


def test_topic_that_is_not_compacted_is_proved() -> None:
    """The option replaces DescribeConfigs; the topic must still be the same one."""
    for known, terms, level in (
        (True, {}, "suspect"),
        (True, {"not_compacted": frozenset(("orders",))}, "proved"),
        (False, {"not_compacted": frozenset(("orders",))}, "suspect"),
        (True, {"not_compacted": frozenset(("others",))}, "suspect"),
    ):  # fmt: skip
        made = History(known=known, compacted=None)
        made.write(1, A, 0)
        made.write(2, B, 2)
        made.read(3, 0, (2, B))
        assert made.findings(**terms) == {"lost-write": level}, (known, terms)


def test_record_that_tells_compaction_refutes_the_option() -> None:
    made = History(compacted=True)
    made.write(1, A, 0)
    made.write(2, B, 2)
    made.read(3, 0, (2, B))
    assert made.findings(not_compacted=frozenset(("orders",))) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compacted": "a", "not_compacted": ["b", "a"]}, "expected topics that are not in compacted, got a"),
        ({"not_compacted": []}, "expected names of topics, got none"),
        ({"not_compacted": ""}, "expected names of topics, got ''"),
        ({"compacted": ["a b"]}, "expected names of topics, got 'a b'"),
        ({"not_compacted": [7]}, "expected names of topics, got 7"),
    ],
)
def test_topics_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadTerm) as error:
        terms_of(given)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--not-compacted", ","], "--not-compacted: expected a name, got none"),
        (["--compacted", ""], "--compacted: expected a name, got none"),
        (["--only", " "], "--only: expected a name, got none"),
        (["--compacted", "a", "--not-compacted", "a"], "--not-compacted: expected topics that are not in compacted"),
    ],
)
def test_options_without_names_are_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["verify", "x.pcapng", *words])
    assert result.exit_code == 2
    assert message in result.output
