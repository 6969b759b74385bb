"""The HTML page."""

import dataclasses
import os
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from kproxy.lake.gold_tables import answer_named
from kproxy.lake.report import page as page_module
from kproxy.lake.report.charts import Chart, bars, label
from kproxy.lake.report.page import coded, page, write_report
from kproxy.lake.report.report_builder import (
    AnswerReport,
    Headline,
    Overview,
    Period,
    Section,
    SourceCompleteness,
    cell,
)

pytestmark = pytest.mark.tools("chromium")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Tags(HTMLParser):
    """Counts tags, and collects attributes that could run or load something."""

    def __init__(self):
        super().__init__()
        self.count, self.suspicious = {}, []

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.suspicious += [(tag, name, value) for name, value in attrs if name in ("src", "onerror") or (
            name == "href" and not (value or "").startswith("#")
        )]  # fmt: skip


def report(name=HOSTILE, rows=1):
    answer = answer_named("topic_producers")
    values = {"topic": name, "client_id": name, "principal": name, "records": 7}
    row = tuple(cell(values.get(column.name), column) for column in answer.columns)
    heads = (Headline(1, "clients write", calls=False), Headline(3, "storms", calls=True))
    section = Section(answer, answer.columns, (row,) * rows, rows + 5, heads)
    overview = Overview(("2026-11-20",), "2026-11-20 10:00", "2026-11-20 10:00", (name,), (("requests", "1"),),
                        (SourceCompleteness(name, 5, 1, 2),))  # fmt: skip
    return AnswerReport(overview, (section,))


def test_names_cannot_become_html():
    """A page of hostile names has the same tags as one of ordinary names, and nothing that loads or runs."""
    hostile, ordinary = Tags(), Tags()
    hostile.feed(page(report()))
    ordinary.feed(page(report("orders")))

    assert (ordinary.count, []) == (hostile.count, hostile.suspicious)


def test_the_page_is_one_file_that_loads_nothing():
    """Its policy forbids it, and there is no address in it outside of Plotly's own code."""
    text = page(report())
    without_library = re.sub(r"<script>/\*\*.*?</script>", "", text, flags=re.DOTALL)

    assert "default-src 'none'" in text and "connect-src" not in text
    assert 4_000_000 < len(text) < 6_000_000
    assert "http" not in without_library.replace("http-equiv", "")


def test_rows_that_are_left_out_are_counted():
    """With the table where all of them are."""
    text = page(report(rows=2))

    assert "2 of 7 rows, 5 left out; all are in <code>gold/topic_producers</code>" in text


@pytest.mark.parametrize("name", ["<b>bold</b>", "<a href='http://x'>here</a>", "a&lt;b"])
def test_charts_show_names_as_they_are(name):
    """Plotly takes a little HTML in texts; names reach it escaped."""
    figure = bars([(name, 1.0)], "records")

    assert label(name) == figure.layout.yaxis.ticktext[0]
    assert "<" not in figure.layout.yaxis.ticktext[0] and "&" in figure.layout.yaxis.ticktext[0]


def test_long_names_are_cut_in_charts_only():
    """A chart has little room; None has a name, too."""
    assert (40, "…", "(none)") == (len(label("x" * 100)), label("x" * 100)[-1], label(None))


def test_code_in_texts():
    """Between back quotes; all else is escaped."""
    assert "a <code>b&lt;</code> &lt;c" == str(coded("a `b<` <c"))


def test_report_without_days_prints_the_reason_and_writes_no_page(tmp_path, capsys, monkeypatch):
    """An empty lake has no days."""
    empty = AnswerReport(Overview((), "", "", (), (), ()), ())
    monkeypatch.setattr(page_module, "build_report", lambda *arguments, **options: empty)
    write_report(SimpleNamespace(), Period(), tmp_path / "report.html")

    printed = " ".join(capsys.readouterr().out.split())
    assert "There is nothing to report: the gold tables are empty; fill them with `kproxy audit run`." in printed
    assert printed.endswith("report.html: not written")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_and_charts_follow_the_colour_scheme(tmp_path, scheme):
    """Text of the page and of its charts differs enough from the background; paper is always light."""
    from playwright.sync_api import sync_playwright

    (section,) = report().sections
    drawn = Chart("Topics.", lambda _: bars([("orders", 7.0)], "records")).draw(None)
    charted = dataclasses.replace(section, chart=drawn, chart_text="Topics.")
    file = tmp_path / "report.html"
    file.write_text(page(dataclasses.replace(report(), sections=(charted,))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu"])
        shown = browser.new_page(color_scheme=scheme)
        said = []
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.goto(file.as_uri())
        shown.wait_for_function(PAINTED, arg=TEXT[scheme])
        back, text, quiet = shown.evaluate(COLOURS)
        shown.emulate_media(color_scheme=scheme, media="print")
        paper = shown.evaluate(COLOURS)[0]
        browser.close()
    assert said == []
    assert (back < 0.1) is (scheme == "dark")
    assert contrast(back, text) > 7 and contrast(back, quiet) > 4.5
    assert paper > 0.9


CHROMIUM = os.environ.get("KPROXY_CHROMIUM", "/usr/bin/chromium")
TEXT = {"light": "rgb(27, 36, 48)", "dark": "rgb(221, 228, 236)"}
PAINTED = """wanted => [...document.querySelectorAll(".xtitle, .ytick text")].length > 1
  && [...document.querySelectorAll(".xtitle, .ytick text")].every(one => getComputedStyle(one).fill === wanted)"""
COLOURS = """() => {
  const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number)
    .map(one => one / 255).map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const body = getComputedStyle(document.body), quiet = getComputedStyle(document.querySelector(".quiet"));
  return [light(body.backgroundColor), light(body.color), light(quiet.color)];
}"""
"""Gives the luminance of the background, of texts, and of quiet ones, as WCAG defines it."""


def contrast(one, other):
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
