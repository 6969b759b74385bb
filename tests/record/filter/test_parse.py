"""Filters as text: two spellings, one tree; whatever is printed is read again."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kproxy.base.errors import FilterError
from kproxy.protocol.table import errors as error_codes
from kproxy.protocol.table import schema
from kproxy.rules.filter.exchange_fields import BY_SHORT, FIELDS
from kproxy.rules.filter.kinds import ADDRESS, API, ERROR, FLAG, TIME, ChoiceKind, NumberKind
from kproxy.rules.filter.parse import All, And, FieldTest, FilterNode, Not, Or, parse, written

# ---- both spellings


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("~k produce", "api == Produce"),
        ("~k add-partitions-to-txn", "api == AddPartitionsToTxn"),
        ("~k 0", "api == Produce"),
        ("~v >= 12", "version >= 12"),
        ("~v>=12", "version >= 12"),
        ("~t ^orders", "topic ~ ^orders"),
        ("~t == orders", "topic == orders"),
        ('~t "a|b"', "topic ~ 'a|b'"),
        ("~p 3", "partition == 3"),
        ("~p in (1, 2)", "partition in (1,2)"),
        ("~g re", "group ~ re"),
        ("~mem re", "member ~ re"),
        ("~x re", "transactional_id ~ re"),
        ("~cl re", "client_id ~ re"),
        ("~sw re", "software ~ re"),
        ("~src 10.0.0.0/8", "client_address == 10.0.0.0/8"),
        ("~c 4", "connection == 4"),
        ("~n 2", "node == 2"),
        ("~dst re", "broker ~ re"),
        ("~e", "error"),
        ("~e NOT_LEADER", "error ~ NOT_LEADER"),
        ("~e not_leader_or_follower", "error == NOT_LEADER_OR_FOLLOWER"),
        ("~e 6", "error == NOT_LEADER_OR_FOLLOWER"),
        ("~e ~t x", "error and topic ~ x"),
        ("~e api == Produce", "error and api == Produce"),
        ("~e or ~q", "error or pending"),
        ("~q", "pending"),
        ("~s", "done"),
        ("~acks 0", "acks == 0"),
        ("~acks all", "acks == -1"),
        ("~lat > 200ms", "latency > 0.2s"),
        ("~size > 1MB", "size > 1000kB"),
        ("~codec none", "codec == NONE"),
        ("~n_rec > 1000", "records > 1000"),
        ("~keyless ~tomb", "keyless and tombstone"),
        ("~key a ~val b ~h c", "key ~ a and value ~ b and header ~ c"),
        ("~mod", "ruled"),
        ("~rule slow", "rule ~ slow"),
        ("~inj", "injected"),
        ("~undec", "decode_error"),
        ("!~t x", "not topic ~ x"),
        ("!(~q | ~e) & ~s", "not (pending or error) and done"),
        ("~q || ~e && ~s", "pending or error and done"),
    ],
)
def test_short_and_long_forms_are_one_tree(short: str, long: str) -> None:
    assert parse(short) == parse(long)


def test_every_short_form_is_tried_above() -> None:
    """A new one has to have its case."""
    mark = test_short_and_long_forms_are_one_tree.pytestmark[0]  # type: ignore[attr-defined]
    tried = " ".join(short for short, _ in mark.args[1])

    assert [
        name for name in BY_SHORT if f"~{name}" not in tried.replace("(", " ").split() and f"~{name}" not in tried
    ] == []


def test_and_binds_more_than_or() -> None:
    """As everywhere; without a word between two tests it is and."""
    pending, error, done = FieldTest("pending"), FieldTest("error"), FieldTest("done")

    assert parse("pending or error done") == Or((pending, And((error, done))))
    assert parse("(pending or error) done") == And((Or((pending, error)), done))
    assert parse("not pending or error") == Or((Not(pending), error))


def test_nothing_is_every_exchange() -> None:
    """An empty filter says nothing."""
    assert parse("") == parse("  ") == All()


def test_backslashes_in_quotes_are_themselves() -> None:
    """Expressions are full of them; before a quote or another backslash they take its meaning."""
    assert parse(r'topic ~ "\d+\.x"').value == r"\d+\.x"
    assert parse(r'topic == "a\"b\\"').value == 'a"b\\'
    assert parse(r"topic == 'a\'b'").value == "a'b"


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_the_example_of_each_field_is_a_filter_on_it(field: object) -> None:
    """The help shows them."""
    tree = parse(field.example)  # type: ignore[attr-defined]

    assert isinstance(tree, FieldTest)
    assert tree.field == field.name  # type: ignore[attr-defined]


def test_fields_are_no_words_of_other_kinds() -> None:
    """`~e` takes the next word as an error unless it is a field: none is both."""
    names = {field.name.upper() for field in FIELDS}

    assert names.isdisjoint(error_codes.names())


# ---- mistakes


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("topc == x", 0, 'unknown field "topc", did you mean "topic"?'),
        ("zzz", 0, 'unknown field "zzz", `kproxy help filters` lists them'),
        ("~k prodce", 3, 'unknown API "prodce", did you mean "Produce"?'),
        ("~lt > 1ms", 0, "there is no short form ~lt, did you mean ~lat?"),
        ("~topic x", 0, "there is no short form ~topic, write ~t or topic"),
        ("topic ~orders", 6, "there is no short form ~orders; as an operator ~ has a blank behind it"),
        ("~lat > 200", 7, 'expected a duration such as 10s (units: ms, s, m, min, h, d), got text "200"'),
        ("~t", 2, "expected text after ~t, such as ~t ^orders"),
        ("topic ~", 7, "expected text here, such as ~t ^orders"),
        ("topic = x", 6, '"=" is no operator, did you mean "=="?'),
        ("topic =~ x", 6, '"=~" is no operator, did you mean "~"?'),
        ("topic > x", 6, "topic is text: ==, !=, in, ~, !~ can stand here, not >"),
        ("pending == 1", 8, "pending stands alone, without =="),
        ("~p x", 3, 'expected a whole number, got "x"'),
        ("~acks 2", 6, 'expected acks 0, 1 or all, got "2"'),
        ("~codec brotli", 7, 'expected one of none, gzip, snappy, lz4, zstd, got "brotli"'),
        ("~e NOT_LEEDER", 3, 'unknown error "NOT_LEEDER"'),
        ("error == NOT_LEADER_OR_FOLOWER", 9,
         'unknown error "NOT_LEADER_OR_FOLOWER", did you mean "NOT_LEADER_OR_FOLLOWER"?'),
        ("(~q", 0, "this parenthesis is not closed"),
        ("~q)", 2, '")" is not expected here'),
        ("~q or", 5, "expected a field here"),
        ("and ~q", 0, "expected a field here, got and"),
        ("~p in 3", 6, 'expected "(" after in'),
        ("~p in (3", 8, 'expected "," or ")" after a value'),
        ('~t "a', 3, 'the quote " is not closed'),
        ("~src 10.0.0", 5, ("expected an address or a network such as 10.0.0.0/8: '10.0.0' does not appear to be an "
                            "IPv4 or IPv6 address")),
        ("time > noon", 7, 'expected a time such as 2026-11-21T10:11:12, got "noon"'),
        ("time > 2026-11-21T10:11+01:00", 7,
         'expected a time in UTC such as 2026-11-21T10:11:00, got "2026-11-21T10:11+01:00"'),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place_and_a_caret(text: str, at: int, problem: str) -> None:
    """And the nearest name, where one was meant."""
    with pytest.raises(FilterError) as raised:
        parse(text)

    assert (raised.value.at, raised.value.problem) == (at, problem)
    assert str(raised.value) == f"filter, column {at + 1}: {problem}\n  {text}\n  {' ' * at}^"


def test_an_expression_that_is_none() -> None:
    """RE2 says what is wrong with it."""
    with pytest.raises(FilterError, match=r"cannot be used: missing \]"):
        parse("~t [a")


def test_bounds_of_a_filter() -> None:
    """It comes over the network too."""
    with pytest.raises(FilterError, match="4001 characters, at most 4000"):
        parse("x" * 4001)
    with pytest.raises(FilterError, match="more than 50 parentheses"):
        parse("(" * 60 + "~q" + ")" * 60)
    with pytest.raises(FilterError, match="more than 50 parentheses"):
        parse("!" * 60 + "~q")


# ---- print, then read

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
EXPRESSIONS = st.sampled_from(["a", "^a", r"\d+", 'a"b', "a'b", r"\\", "(x|y)", "a b", "!", r"\"", "in", "or"])


@st.composite
def claims(draw: st.DrawFn) -> FieldTest:
    """One test, of any field, with any operator that it may have."""
    field = draw(st.sampled_from(FIELDS))
    kind = field.kind
    operator = draw(st.sampled_from(("", *kind.operators)))
    if not operator:
        return FieldTest(field.name)
    if operator in ("~", "!~"):
        return FieldTest(field.name, operator, draw(st.just("LEADER") if kind is ERROR else EXPRESSIONS))
    values = {
        API: st.sampled_from(sorted(api.name for api in schema.apis())),
        ERROR: st.sampled_from(sorted(error_codes.names())),
        ADDRESS: st.sampled_from(["10.0.0.0/8", "::1", "127.0.0.1"]),
        TIME: st.sampled_from(["2026-11-21", "2026-11-21T10:11", "2026-11-21T10:11:12.5"]),
    }.get(kind, TEXTS)
    if isinstance(kind, ChoiceKind):
        values = st.sampled_from(kind.words)
    elif isinstance(kind, NumberKind) and kind is not TIME:
        values = st.sampled_from([kind.parse(text) for text in NUMBERS[type(kind).__name__]])
    if operator == "in":
        return FieldTest(field.name, "in", tuple(draw(st.lists(values, min_size=1, max_size=3))))
    return FieldTest(field.name, operator, draw(values))


NUMBERS = {
    "NumberKind": ["0", "-1", "1234567890123"],
    "AcksKind": ["0", "1", "all"],
    "DurationKind": ["0ms", "0.3s", "1.234ms", "200ms", "2h"],
    "SizeKind": ["0", "1MB", "64KiB", "1.5kB"],
}
TREES: st.SearchStrategy[FilterNode] = st.recursive(
    claims(),
    lambda inner: (
        inner.map(Not)
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts)))
    ),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first tree compiles what the rest share
@given(TREES)
def test_what_is_printed_is_read_again(tree: FilterNode) -> None:
    assert parse(written(tree)) == tree


PIECES = [
    "~t", "~e", "~k", "(", ")", "and", "or", "not", "!", "==", "~", "x", "3", '"a"', "in", ",", "produce", "topic",
]  # fmt: skip


@given(st.text(max_size=30) | st.lists(st.sampled_from(PIECES)).map(" ".join))
def test_any_text_is_a_filter_or_a_mistake(text: str) -> None:
    """Nothing else comes of it, and what is read can be printed and read again."""
    try:
        tree = parse(text)
    except FilterError:
        return

    assert parse(written(tree)) == tree


def test_flags_have_no_operators() -> None:
    """So that `~keyless` never takes what stands behind it."""
    assert all(not field.kind.operators for field in FIELDS if field.kind is FLAG)
