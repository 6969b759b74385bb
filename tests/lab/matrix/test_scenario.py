"""The judge of the matrix, without any client: what a program tells is not believed."""

from __future__ import annotations

from typing import Any

from tests.lab.matrix.scenario import STEPS, Expected, Names, judge, told, words


def test_a_judge_finds_what_is_wrong() -> None:
    """Records that lack or come twice, foreign names, strange addresses and offsets are each told."""
    names = Names("own-x", "tenant.", lambda name: not name.startswith("own-"), frozenset({"h:1"}))
    right: dict[str, Any] = {
        "produce": {"topics": ["own-x-topic"]},
        "consume": {"topics": ["own-x-topic"], "values": words("v")},
        "group": {"topics": ["own-x-topic"], "values": words("w", "x"), "shares": [10, 20], "committed": 90},
        "transactions": {"topics": ["own-x-topic"], "values": words("kept"), "committed": 7},
        "admin": {
            "listed": ["own-x-topic", "own-x-made"],
            "partitions": 2,
            "groups": ["own-x-group"],
            "described": "own-x-group",
            "members": 0,
        },
        "brokers": {"addresses": ["h:1"]},
    }
    wrong: list[tuple[str, str, Any, str]] = [
        ("produce", "topics", ["tenant.own-x-topic"], "topics"),
        ("consume", "values", [*words("v")[1:], "v-1"], "1 records lack (['v-0']), 1 too many (['v-1'])"),
        ("group", "shares", [30, 0], "two members"),
        ("group", "committed", 89, "committed 89, expected 90"),
        ("transactions", "values", [*words("kept"), "aborted-0"], "1 too many"),
        ("admin", "listed", ["own-x-topic", "own-x-made", "prod.y"], "['prod.y']"),
        ("admin", "groups", [], "is not listed"),
        ("brokers", "addresses", ["h:2"], "addresses"),
        ("brokers", "addresses", [], "addresses"),
    ]
    expected = Expected()

    assert judge(names, right, expected) == dict.fromkeys(STEPS, "yes")
    for step, key, value, message in wrong:
        verdict = judge(names, right | {step: right[step] | {key: value}}, expected)
        assert message in verdict.pop(step)
        assert set(verdict.values()) == {"yes"}
    assert judge(names, {}, expected) == dict.fromkeys(STEPS, "did not come to it")


def test_what_a_program_prints_besides_is_left_out() -> None:
    """Only lines of JSON with a step count: logs in JSON do not, nor does what was cut short when it was killed."""
    output = 'warning: {"step"}\n{"step": "client", "version": "1"}\n{"step": "produce", "error": "no"}\n'
    others = ['{"level": "warn"}', '{"step": 5}', '{"step": ["x"]}', "{not JSON}", '{"a":' * 100_000, '{"step": "traf']

    assert told(output + "\n".join(others)) == {"client": {"version": "1"}, "produce": {"error": "no"}}
