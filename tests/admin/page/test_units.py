"""Parts of the page by themselves, imported in the browser: rows, stream, times and sizes, tree, hex, lanes."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kproxy.base.terminal import printable
from kproxy.record.filters import EventView, Filter
from kproxy.record.observer.summary_rows import LONGEST_MS, NEVER_MS, STEP, bucket_of
from kproxy.rules.document.read import read_document
from kproxy.rules.values.source import Source
from tests.support.fake_view import FakeView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page without the program: an empty document of the same origin."""
    with FakeView() as fake:
        page = browser.new_page()
        page.goto(f"{fake.page}icon.svg")
        yield page
        page.close()


def run(page: Page, module: str, code: str) -> Any:
    """Return what an expression over a module `m` gives."""
    return page.evaluate(f"async () => {{ const m = await import('/view/{module}.mjs'); {code} }}")


def test_rows_keep_their_places_and_texts_once(page: Page) -> None:
    """The oldest go; a row that was under way takes its old place; ids and lists come back as they were."""
    found = run(page, "store", """
        const names = ["id", "time", "client", "api", "outcome", "errors", "kept", "latency"];
        const rows = new m.Rows(100);
        for (let n = 0; n < 250; n++) rows.add([`0-${n}`, n, `c${n % 3}`, "Fetch", n === 200 ? null : "answered", [], true, 1], names);
        rows.add(["0-200", 200, "c2", "Fetch", "answered", ["A", "B"], true, 9], names);
        rows.add(["s1x", 1, "", "Produce", "answered", [], false, null], names);
        const place = rows.find("0-200");
        return [rows.count, rows.first, rows.gone, rows.id(place), rows.row(place).errors, rows.row(place).latency,
          rows.find("0-150"), rows.row(rows.find("s1x")).client, rows.texts.all.length, rows.open.size];""")  # fmt: skip

    assert found == [100, 151, 151, "0-200", ["A", "B"], 9, -1, None, 8, 0]


def test_texts_that_no_row_has_are_given_up(page: Page) -> None:
    """Hundreds of thousands of different names do not stay."""
    found = run(
        page,
        "store",
        """
        const rows = new m.Rows(1000);
        for (let n = 0; n < 150000; n++) rows.add([`0-${n}`, `client ${n}`, "answered"], ["id", "client", "outcome"]);
        return [rows.count, rows.texts.all.length < 120000, rows.row(rows.next - 1).client, rows.row(rows.first).client];""",
    )

    assert found == [1000, True, "client 149999", "client 149000"]


def test_events_are_read_from_any_pieces(page: Page) -> None:
    """A piece may end anywhere, in the middle of a line end too."""
    found = run(page, "stream", r"""
        const text = ": all is well\n\nid: 3f.0-7\nevent: rows\ndata: {\"rows\":[1]}\r\n\r\nevent: tick\ndata: {}\n\n";
        const told = [];
        for (let size = 1; size < 9; size++) {
          const take = m.reader((event, data, id) => told.push([event, data, id]));
          for (let at = 0; at < text.length; at += size) take(text.slice(at, at + size));
        }
        return told;""")  # fmt: skip

    assert found == [["rows", '{"rows":[1]}', "3f.0-7"], ["tick", "{}", "3f.0-7"]] * 8


def test_a_stream_rests_longer_each_time(page: Page) -> None:
    """And tells how it is doing; a refusal ends it."""
    found = run(page, "stream", """
        const { ApiError } = await import("/view/api.mjs");
        const turns = [];
        let tries = 0;
        const stream = new m.Stream({ rest: 5, tell() {}, turned: (state, error) => turns.push([state, error?.message ?? null]),
          open: async () => { throw ++tries < 3 ? new Error("no") : new ApiError(422, { message: "bad filter" }); } });
        stream.start();
        while (!stream.closed) await new Promise((go) => setTimeout(go, 5));
        return turns;""")  # fmt: skip

    lost = [["connecting", None], ["lost", "no"]]
    assert found == [*lost, *lost, ["connecting", None], ["refused", "bad filter"]]


def test_numbers_are_short(page: Page) -> None:
    """Milliseconds, bytes, durations, quoted values."""
    found = run(page, "format", """
        return [[0, 0.61, 3.14, 52.83, 253, 1500, 12345].map(m.ms), [0, 999, 4100, 1_100_000].map(m.bytes), [7.6, 42, 540].map(m.duration),
          [null, undefined, NaN].map(m.ms), m.quoted("a b\\"c"), m.exactly("a.b*"), m.family("Fetch"), m.family("DeleteTopics"),
          m.quantile(2, [[4, 10], [3, 10]], 0.5), m.quantile(2, [[3, 99], [4, 1]], 0.99), m.quantile(2, [], 0.5)];""")  # fmt: skip

    assert found == [
        ["0.00 ms", "0.61 ms", "3.1 ms", "52.8 ms", "253 ms", "1.50 s", "12.3 s"],
        ["0", "999", "4.1 kB", "1.1 MB"], ["7.6 s", "42 s", "9 min"], ["", "", ""], '"a b\\"c"', r'"^a\\.b\\*$"',
        "data", "admin", 4, 4, None,
    ]  # fmt: skip


def test_steps_become_a_tree(page: Page) -> None:
    """With a node for each name above; bytes as text where they are text."""
    found = run(page, "tree", """
        const data = new TextEncoder().encode("xxxxhello");
        const nodes = m.nodesOf([[0, 2, 0, "header.request_api_key", "value", "INT16", 0, "Produce"], [2, 3, 1, "topic_data", "count", "ARRAY", 1],
          [3, 4, 3, "topic_data[0].name", "value", "COMPACT_STRING", "a\\nb"], [4, 9, 3, "topic_data[0].raw", "value", "BYTES", { bytes: 5 }],
          [9, 9, 2, "topic_data[0]", "tags", "TAG_BUFFER", 0], [0, 9, 2, "r[0][1]", "record", "RECORD", { offset: 7, time: 1e300 }],
          [3, 9, 3, "r[0][1].value", "part", "BYTES", { bytes: 5 }], [3, 9, 4, "r[0][1].headers[0]", "header", "HEADER", { name: "<b>", bytes: 5 }],
          [3, 9, 4, "r[0][1].headers[1]", "header", "HEADER", { name: "n", bytes: null }]]);
        return nodes.map((node) => [node.name, node.depth, node.children, m.valueText(node, data), node.word]);""")  # fmt: skip

    assert found == [
        ["header", 0, 1, "", ""], ["request_api_key", 1, 0, "0", "Produce"], ["topic_data", 0, 1, "1 element", ""],
        ["[0]", 1, 2, "", ""], ["name", 2, 0, '"a\\nb"', ""], ["raw", 2, 0, '"hello"', ""],
        ["r", 0, 1, "", ""], ["[0]", 1, 1, "", ""], ["[1]", 2, 2, "offset 7", ""], ["value", 3, 0, '"hello"', ""],
        ["headers", 3, 2, "", ""], ["[0]", 4, 0, '"<b>": "hello"', ""], ["[1]", 4, 0, '"n": null', ""],
    ]  # fmt: skip


def test_a_byte_belongs_to_the_innermost_field(page: Page) -> None:
    """And to none where no field is; a field beyond what was kept does not matter."""
    found = run(page, "hex", "return [...m.owners([[0, 4, 0], [1, 3, 1], [6, 99, 0]], 8)];")

    assert found == [0, 1, 1, 0, -1, -1, 2, 2]


def test_completion_offers_what_fits_there(page: Page) -> None:
    """Fields, and behind a field and its operator values of it, in quotes where they need them."""
    found = run(page, "filterbar", """
        const known = { fields: [{ name: "topic", short: "t", meaning: "" }, { name: "latency", short: "lat", meaning: "" }], values: { t: ["orders", "or ders"], topic: ["orders"] } };
        const texts = (text, caret = text.length) => m.offers(text, caret, known).list.map((one) => one.text);
        return [texts("la"), texts("~t or"), texts("topic == o"), texts("la and x", 2), texts(""), texts("topic == orders")];""")  # fmt: skip

    assert found == [["latency"], ["orders", '"or ders"'], ["orders"], ["latency"], [], []]


def test_what_is_out_of_order_is_named(page: Page) -> None:
    """Sequence numbers that come twice or are missing, epochs, offsets, generations."""
    found = run(page, "breaks", """
        const produce = (sequence, epoch = 2, records = 2) => ({ api: "Produce", connection: 1, topics: [{ topic: "o", partitions: [{ partition: 3, producer_id: 7, producer_epoch: epoch, base_sequence: sequence, records }] }] });
        const fetch = (offset, last) => ({ api: "Fetch", connection: 1, topics: [{ topic: "o", partitions: [{ partition: 0, fetch_offset: offset, last_offset: last }] }] });
        const list = [produce(0), produce(2), produce(2), produce(8), produce(0, 3), fetch(10, 14), fetch(15, 15), fetch(5),
          { api: "Heartbeat", group: "g", generation: 4 }, { api: "Heartbeat", group: "g", generation: 5 }];
        return [...m.breaks(list.map((event, index) => [index, event]))];""")  # fmt: skip

    assert found == [
        [2, ["sequence 2 twice"]], [3, ["sequence 4 to 7 missing"]], [4, ["epoch 2 → 3"]], [7, ["o[0] back to 5 from 16"]],
        [9, ["generation 4 → 5"]],
    ]  # fmt: skip


def test_a_lane_has_room_for_requests_at_the_same_time(page: Page) -> None:
    """Pipelined requests stand beside each other; one that is under way has no end."""
    found = run(page, "follow", """
        const row = (id, time, latency) => ({ id, connection: 1, time, latency, outcome: latency === null ? null : "answered" });
        const { lanes, moments, bars } = m.layout([row("a", 0, 3000), row("b", 1, 4000), row("c", 4, null)]);
        return [lanes, moments.map((one) => one.row.id + (one.down ? "↓" : "↑")), bars.map((one) => [one.slot, one.from, one.to])];""")  # fmt: skip

    assert found == [[1], ["a↓", "b↓", "a↑", "c↓", "b↑"], [[0, 0, 2], [1, 1, 4], [0, 3, 5]]]


def test_many_rows_take_no_more_room_than_the_last_ones(page: Page) -> None:
    """250,000 of which each has a text of its own go through the columns: two minutes of 2,000 a second."""
    found = run(
        page,
        "store",
        """
        const names = ["id", "time", "connection", "client", "api", "about", "outcome", "errors", "rules", "latency", "kept"];
        const rows = new m.Rows();
        for (let n = 0; n < 250_000; n++) {
          rows.add([`0-${n}`, n / 2000, n % 300, `c${n % 300}`, "Fetch", `topic-${n}[0]`, n % 99 ? "answered" : null, [], [], 1.5, true], names);
        }
        return [rows.count, rows.gone, rows.texts.all.length < 200_000, rows.open.size < 4000, performance.memory.usedJSHeapSize / 1e6];""",
    )

    *counts, megabytes = found
    assert counts == [50_000, 200_000, True, True]
    assert megabytes < 150


def test_the_keys_on_the_page_of_documentation(browser: Browser) -> None:
    """docs/live-view.md has every key of the page, but for some that say the same as another."""
    text = (Path(__file__).parents[3] / "docs" / "live-view.md").read_text()
    table = text.partition("### Keys of the page")[2].partition("###")[0]
    told = {
        key for row in table.splitlines() if row.startswith("| ") for key in re.findall(r"`([^`])`", row.split("|")[1])
    }
    with FakeView() as fake:
        page = browser.new_page()
        page.goto(fake.page)
        page.wait_for_selector(".stream.live + span")
        keys = set(run(page, "registry", "return m.commands.flatMap((one) => one.keys);"))
        page.close()

    assert {key for key in keys if len(key) == 1 and not key.isdigit()} - {"h", "q", "l"} - told == set()


def test_unseen_letters_are_shown_as_a_terminal_shows_them(page: Page) -> None:
    """All of them, and no others; in expressions, in YAML and in Python they stand for themselves all the same."""
    every = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000] + [chr(0xE0001), chr(0xE007F)]
    found = run(page, "printable", """
        const every = Array.from({ length: 0x30000 }, (_, code) => code).filter((code) => code < 0xd800 || code >= 0xe000);
        return [...every, 0xe0001, 0xe007f].map((code) => String.fromCodePoint(code))
          .map((one, at) => (m.printable(one) === one ? null : [at, m.printable(one)])).filter(Boolean);""")  # fmt: skip

    assert {every[at]: shown for at, shown in found} == {one: printable(one) for one in every if printable(one) != one}
    texts = run(
        page,
        "printable",
        """
        const one = "a\\u202eb\\u{e0001}";
        return [m.printable("\\ud800x"), m.inExpression(one), m.inQuotes(one)];""",
    )
    assert texts == ["\\ud800x", r"a\x{202e}b\x{e0001}", r"a\u202eb\U000e0001"]
    wanted = Filter(f'client_id ~ "^{texts[1]}$"'.replace("\\", "\\\\"))
    assert wanted.holds(EventView({"client_id": "a\u202eb\U000e0001"}))


def test_a_rule_of_unseen_letters_reads_as_it_is(page: Page) -> None:
    """Whoever looks at the document sees what it selects by."""
    hostile = "pay\u202egnp.\u200b"
    rule = json.dumps({"name": "a", "kind": "delay", "delay": "5ms", "match": {"client_id": hostile}})
    text, line = run(page, "yaml", f"return [m.document_of([{rule}]), m.injection({rule})];")

    assert printable(text) == text
    assert read_document(Source("a.yaml", text)).parsed_rules[0].raw["match"] == {"client_id": hostile}
    assert printable(line) == line
    assert ast.literal_eval(line.partition('"client_id": ')[2].rstrip("})")) == hostile


def test_nobody_takes_the_room_of_the_charts(page: Page) -> None:
    """A first second with very many APIs, errors and rules leaves room for what is always drawn; the latest stay."""
    found = run(page, "history", """
        const history = new m.History();
        const latency = { buckets: [[1, 1]], rule_ms: 0, broker_ms: 1, kproxy_ms: 0 };
        const apis = Object.fromEntries(Array.from({ length: 90 }, (_, n) => [`Api${n}`, [1, 1, 1, 1, latency]]));
        const many = (letter, n, value) => Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`${letter}${n * 50 + at}`, value]));
        for (let n = 0; n < 20; n++) {
          history.add({ seconds: 1, passed: 7, matched: 7, connections: 1, throttle_ms: 0, held_bytes: 0, apis,
            errors: many("E", n, 1), rules: many("r", n, [1, 1, 1, 0]) }, 1000 + n);
        }
        return [history.values("passed", 1), history.values("time", 1), history.values("p99 Api89", 1)[0] !== null,
          history.values("error E999", 1), history.values("error E0", 1), history.values("rule r999", 1),
          history.series.size <= 20 + 5 * 100];""")  # fmt: skip

    assert found == [[7], [1019], True, [1], [None], [1], True]


def test_details_that_were_looked_at_have_a_size(page: Page) -> None:
    """Whoever goes down a list of long records keeps the latest ones; the one that is shown stays, however long it is."""
    found = run(page, "kept_details", """
        const data = (size) => ({ data: { records: [{ batches: [{ records: [{ key: null, value: "x".repeat(size), headers: [] }] }] }] } });
        const kept = new m.KeptDetails(200, 10000);
        for (let n = 0; n < 50; n++) kept.put(`live/${n}`, data(1000));
        const few = [kept.byKey.size, kept.bytes <= 10000, kept.get("live/49") !== undefined, kept.get("live/0") === undefined];
        kept.put("live/long", data(50000));
        const one = [kept.byKey.size, kept.get("live/long") !== undefined];
        for (let n = 0; n < 300; n++) kept.put(`live/${n}`, { data: null });
        kept.put("live/299", { data: null });
        return [...few, ...one, kept.byKey.size, kept.bytes, [...kept.byKey.keys()].pop()];""")  # fmt: skip

    assert found == [8, True, True, True, 1, True, 200, 0, "live/299"]


def test_packed_records_show_what_came_with_them(page: Page) -> None:
    """Their bytes are not in the frame: values are those that came, and marking one marks its batch."""
    steps = [
        [0, 90, 0, "records", "value", "RECORDS", {"bytes": 90}],
        [0, 90, 1, "records[0]", "batch", "RECORD_BATCH", {"offset": 0, "codec": "zstd", "count": 1}],
        [61, 90, 2, "records[0][0]", "record", "RECORD", {"offset": 7, "time": -1, "packed": True}],
        [61, 90, 3, "records[0][0].key", "part", "BYTES", {"bytes": 2, "packed": True, "data": "aGk="}],
        [61, 90, 3, "records[0][0].value", "part", "BYTES", {"bytes": 9, "packed": True, "data": None}],
    ]
    found = run(page, "tree", f"""
        const hex = await import('/view/hex.mjs');
        const steps = {json.dumps(steps)}, nodes = m.nodesOf(steps);
        return [nodes.map((one) => m.valueText(one, new Uint8Array(90))).slice(2), nodes.map((one) => one.marks),
          [...new Set(hex.owners(steps, 90))]];""")  # fmt: skip

    assert found == [["offset 7", '"hi"', "9 bytes"], [0, 1, 1, 1, 1], [1]]


def test_a_second_without_an_error_has_none(page: Page) -> None:
    """A line of errors goes down to nothing between two of them; percentiles without exchanges are unknown."""
    found = run(page, "history", """
        const history = new m.History();
        history.add({ seconds: 1, apis: {}, errors: { A: 2 }, rules: { r: [1, 1, 1, 0] } }, 1);
        history.add({ seconds: 1, apis: {}, errors: {}, rules: {} }, 2);
        return ["error A", "rule r", "p50"].map((name) => history.values(name));""")  # fmt: skip

    assert found == [[2, 0], [1, 0], [None, None]]


def test_percentiles_never_exceed_the_maximum(page: Page) -> None:
    """Of any latencies, in the buckets that kproxy counts them in; nor are they more than 5 % below the right value."""
    lists = [[513.0], [0.0], [2.0, 513.0], [0.3 * 1.37**n for n in range(40)], [7e6, 1.0], [9.9] * 99 + [10.0]]
    counted = [sorted(Counter(map(bucket_of, values)).items()) for values in lists]
    shares = (0.5, 0.9, 0.99, 1.0)
    found = run(page, "format", f"""
        return {json.dumps(counted)}.map((list) => {list(shares)}.map((q) => m.quantile({STEP}, list, q)));""")  # fmt: skip

    for values, quantiles in zip(lists, found, strict=True):
        for share, shown in zip(shares, quantiles, strict=True):
            right = sorted(values)[max(0, ceil(len(values) * share) - 1)]
            assert shown <= max(right, NEVER_MS)
            assert shown >= min(right, LONGEST_MS) / 1.051


def test_minute_has_client_side_latency_with_its_parts(page: Page) -> None:
    found = run(page, "history", f"""
        const history = new m.History();
        const tick = (ms, parts) => history.add({{ seconds: 1, passed: 2, errors: {{}}, rules: {{}},
          apis: {{ Produce: [2, 0, 1, 1, {{ buckets: [[{bucket_of(513)}, 1]], ...parts }}] }} }}, 1);
        tick(513, {{ rule_ms: 480, broker_ms: 30, kproxy_ms: 3 }});
        tick(513, {{ rule_ms: 20, broker_ms: 490, kproxy_ms: 3 }});
        const [row] = history.table();
        return [row.api, row.count, row.p99 <= 513 && row.p99 > 488, row.parts, history.values("mean rule")];""")  # fmt: skip

    assert found == ["Produce", 4, True, {"rule": 500, "broker": 520, "kproxy": 6}, [480, 20]]


def test_filter_has_one_intercept_rule(page: Page) -> None:
    """Also a long one, whose name is cut: it differs from that of another long filter."""
    found = run(page, "intercept", """
        const long = "~t " + "x".repeat(500);
        return [m.nameFor("~k produce"), m.nameFor("~k produce"), m.nameFor(""), m.nameFor(long) === m.nameFor(long),
          m.nameFor(`${long}a`) === m.nameFor(`${long}b`), m.nameFor(long).length < 200];""")  # fmt: skip

    assert found == ["intercept ~k produce"] * 2 + ["intercept all requests", True, False, True]


def test_ranges_of_charts_fit_their_values(page: Page) -> None:
    """A rate below 1 fills its chart; a logarithmic axis has whole decades, also for equal values and for none."""
    found = run(page, "charts", """
        const near = (list) => list.map((one) => Number(one.toPrecision(6)));
        return [[0.2], [80], [0], [null]].map(([high]) => near(m.linearRange(high)))
          .concat([[0.6, 513], [10, 10], [5, 5], [null, null], [0, 3]].map(([low, high]) => near(m.logRange(low, high))));""")  # fmt: skip

    assert found == [
        [0, 0.21], [0, 84], [0, 1], [0, 1], [0.1, 1000], [10, 100], [1, 10], [1, 10], [1, 10],
    ]  # fmt: skip


def test_what_may_be_written_is_offered(page: Page) -> None:
    """For fields by their type and name, for records null and what others of the frame have."""
    found = run(page, "held_edit", """
        const list = ["YQ==", "Yg==", "YQ==", null].map((value) => ({ record: { value } }));
        const field = (path, type, value) => m.offeredFor({ path, name: path.split(".").pop(), type, value });
        return [m.proposals("value", list).map(([text]) => text), field("acks", "INT16", 1).map(([text]) => text),
          field("a.internal", "BOOL", true).map(([text]) => text), field("b", "NULLABLE_STRING", "x").map(([text]) => text)];""")  # fmt: skip

    assert found == [["null", "a", "b"], ["-1", "1"], ["true", "false"], ["null"]]


def test_records_are_shown_decoded_as_text_json_or_hex(page: Page) -> None:
    found = run(
        page,
        "records",
        """
        const text = (value) => btoa(value);
        return [m.decodedAs({schema: "shop.Order", schema_id: 7, format: "avro", value: {a: 1}}),
                m.decodedAs({schema: null, schema_id: 8, pending: true}),
                m.decodedAs({schema: "shop.Order", schema_id: 7, why: "too short"}),
                ...["decoded", "text", "JSON", "hex"].map((form) => m.shownAs(text('{"a":1}'), form)),
                m.shownAs(text("12"), "decoded"), m.shownAs(null, "decoded")];
    """,
    )
    json_text = '{\n  "a": 1\n}'
    assert found == [
        f"shop.Order#7 {json_text}", "schema#8 schema is pending, select the exchange again", "shop.Order#7 too short",
        json_text, '{"a":1}', json_text, "7b 22 61 22 3a 31 7d", "12", "null",
    ]  # fmt: skip
