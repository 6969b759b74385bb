"""Documents of thousands of rules, right and wrong: their cost grows linearly with their length."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from kproxy.base.errors import DocumentError
from kproxy.rules.document.read import parse_rules
from kproxy.rules.values.source import MOST_MISTAKES, nearest
from tests.support.stretches import BY_COST, Cost

SIZES = {"lines": (100, 800), "seconds": (500, 4000)}
"""Rules of a small and of a large document."""
RATIO = {"lines": 1.5, "seconds": 3.0}
"""Factor over its share that the larger document may cost: caches and garbage. A square would be 8."""
LEAST = {"lines": 10_000, "seconds": 0.03}
"""Minimum cost of a small document: a lower cost is mostly overhead."""
LARGE = 4000
LINES_OF_REFUSAL = 15_000_000  # 3,600 rules in linear work; a square would be three times as much

Make = Callable[[int], str]


def lines(line: str) -> Make:
    """So many rules like this one, `#` its number."""
    return lambda count: "rules:\n" + "".join(f"- {line.replace('#', str(number))}\n" for number in range(count))


def map_of(pair: str, kind: str = "rename_topic") -> Make:
    """One rename with so many lines."""
    field = {"rename_topic": "topics", "rename_group": "groups"}[kind]
    return lambda count: (
        f"rules:\n- {{name: x, kind: {kind}, {field}: {{"
        + ", ".join(pair.replace("#", str(number)) for number in range(count))
        + "}}\n"
    )


def stages(count: int) -> str:
    base = "".join(f"- {{name: n{at}, kind: rename_topic, topics: {{a{at}: b{at}}}}}\n" for at in range(count // 2))
    rest = "".join(f"  - {{for: 1s, rules: [{{name: s{at}, kind: refuse}}]}}\n" for at in range(count // 2))
    return f"rules:\n{base}scenario:\n  stages:\n{rest}"


WRONG: dict[str, Make] = {
    "no rules": lines("{a: b}"),
    "no mappings": lines("x"),
    "unknown kinds": lines("{name: n#, kind: k#}"),
    "kinds nearly right": lines("{name: n#, kind: delai}"),
    "unknown selectors": lines("{name: n#, kind: delay, delay: 1s, match: {topik: x}}"),
    "the same name": lines("{name: x, kind: refuse}"),
    "unknown keys": lambda count: (
        "rules:\n- {name: x, kind: refuse, " + ", ".join(f"k{at}: 1" for at in range(count)) + "}\n"
    ),
    "keys twice": lambda count: "{rules: [], " + ", ".join("a: 1" for _ in range(count)) + "}\n",
    "globs that clash": map_of('"a#-*": "b-*"'),
    "names that clash": map_of('"a#": "b"'),
    "a name taken by the next rule": lines("{name: n#, kind: rename_topic, topics: {a#: x}}"),
    "versions that leave nothing": lambda count: (
        lines("{name: n, kind: limit_versions, apis: {Fetch: 5}}")(1)
        + lines("{name: n#, kind: limit_versions, apis: {Fetch: 4}}")(count).removeprefix("rules:\n")
    ),
}
RIGHT: dict[str, Make] = {
    "delays": lines('{name: n#, kind: delay, delay: 1s, match: {topic: "t#-*"}}'),
    "denials": lines('{name: n#, kind: deny, match: {topic: "t#-*"}}'),
    "globs": map_of('"a#-*": "b#-*"'),
    "globs by suffix": map_of('"*-a#": "*-b#"'),
    "globs and names": map_of('"a#-*": "b#-*", "c#": "d#"'),
    "globs of groups": map_of('"a#-*": "b#-*"', "rename_group"),
    "renames": lines("{name: n#, kind: rename_topic, topics: {a#: b#}}"),
    "renames by glob": lines('{name: n#, kind: rename_topic, topics: {"a#-*": "b#-*"}}'),
    "renames for one listener each": lines("{name: n#, kind: rename_topic, match: {listener: l#}, topics: {a: b}}"),
    "prefixes": lines("{name: n#, kind: prefix, prefix: t#., match: {listener: l#}}"),
    "versions": lines("{name: n#, kind: limit_versions, apis: {Fetch: 0-9}}"),
    "stages": stages,
}
TOO_MUCH: dict[str, tuple[Make, str]] = {
    "globs that all overlap": (
        lambda count: map_of("")(0).replace("{}", "{" + ", ".join(
            f'"{"a" * (at % 60)}*{"b" * (at // 60)}": "{"a" * (at % 60)}*{"b" * (at // 60)}"' for at in range(count)
        ) + "}"),
        "pairs of these names overlap",
    ),
    "renames of all names": (lines('{name: n#, kind: rename_topic, topics: {"*": "a*"}}'), "write fewer of them"),
    "half for all, half for one each": (
        lambda count: lines("{name: n#, kind: rename_topic, topics: {a#: b#}}")(count // 2)
        + lines("{name: m#, kind: rename_topic, match: {listener: l#}, topics: {c: d}}")(count // 2).removeprefix(
            "rules:\n"
        ),
        "write fewer of them",
    ),
}  # fmt: skip


def read(text: str) -> None:
    with contextlib.suppress(DocumentError):
        parse_rules(text)


@BY_COST
@pytest.mark.parametrize("case", [*WRONG, *RIGHT])
def test_document_is_read_in_linear_work(case: str, cost: Cost) -> None:
    """The better of two attempts: the first one fills caches."""
    make = {**WRONG, **RIGHT}[case]
    few, many = SIZES[cost.name]
    small = max(min(cost.of(partial(read, make(few))) for _ in range(2)), LEAST[cost.name])

    assert any(cost.of(partial(read, make(many))) < small * many / few * RATIO[cost.name] for _ in range(2))


@BY_COST
@pytest.mark.parametrize("case", TOO_MUCH)
def test_document_of_square_cost_is_refused(case: str, cost: Cost) -> None:
    """Each name would be compared with each other name, in every frame, as well. The message has that reason."""
    make, words = TOO_MUCH[case]
    text = make(3600)

    def refuse() -> None:
        with pytest.raises(DocumentError) as caught:
            parse_rules(text)
        assert words in str(caught.value)
        assert len(caught.value.mistakes) == 1

    cost.check(refuse, lines=LINES_OF_REFUSAL, seconds=30)


@pytest.mark.parametrize("case", WRONG)
def test_a_hundred_mistakes_are_told_and_the_others_counted(case: str) -> None:
    """Each with its place; the last line says how many more there are."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(WRONG[case](LARGE), "f")

    *told, last = caught.value.mistakes
    assert len(told) == MOST_MISTAKES
    assert all(line.startswith("f:") for line in told)
    assert last.startswith("and ") and last.endswith(" more mistakes")
    assert int(last.split()[1].replace(",", "")) >= LARGE - MOST_MISTAKES - 1


def test_hints_are_for_the_mistakes_that_are_told() -> None:
    """The first ones have the nearest word; when a document has been read, others find theirs again."""
    with pytest.raises(DocumentError) as caught:
        parse_rules(WRONG["kinds nearly right"](LARGE))

    assert 'did you mean "delay"?' in caught.value.mistakes[0]
    assert nearest("delai", ["delay"]) == "delay"


def test_other_mistakes_of_a_rule_whose_kind_is_unknown() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_rules(
            "rules:\n- {name: '', kind: delai, match: {topic: 5}, when: {nth: three}, mode: watch}\n- {}\n", "f"
        )

    found = [line.split(": ", 1) for line in caught.value.mistakes]
    assert [where for where, _ in found] == ["f:2:10", "f:2:20", "f:2:42", "f:2:58", "f:2:72", "f:3:3", "f:3:3"]
    assert [text for _, text in found[-2:]] == [
        '"kind" is missing, "kproxy rules kinds" lists all of them',
        '"name" is missing',
    ]


@pytest.mark.deep
@BY_COST
def test_renames_before_thousands_of_prefixes_are_refused(cost: Cost) -> None:
    """Each name would pass through all of them, in each frame."""
    renames = "".join(f"- {{name: r{at}, kind: rename_topic, topics: {{a{at}: b{at}}}}}\n" for at in range(3000))
    prefixes = "".join(f"- {{name: p{at}, kind: prefix, prefix: p{at}.}}\n" for at in range(3000))

    def refuse() -> None:
        with pytest.raises(DocumentError, match="write fewer of them, or fewer that build on each other"):
            parse_rules(f"rules:\n{renames}{prefixes}")

    cost.check(refuse, lines=LINES_OF_REFUSAL, seconds=6)
