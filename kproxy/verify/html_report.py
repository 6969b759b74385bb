"""Verdict as a page: one file that loads nothing and runs nothing.

All text is escaped, and unseen characters in it are shown. The policy in the page allows its own style and nothing
else, so that it is the same under whatever policy it is served.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape

from kproxy.distribution import own_version
from kproxy.terminal import in_line

from .finding import Finding, Verdict
from .numbers import number_of
from .text_report import by_reason, checked, conclusion, day_of, evidence_cells

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 0; }
.level { border-radius: .3rem; color: #fff; font-size: .8rem; padding: .1rem .5rem; text-transform: uppercase; }
.proved { background: #b3261e; } .suspect { background: #8a5a00; } .note { background: #555; }
.missing { border-left: .3rem solid #8a5a00; padding-left: .7rem; }
table { border-collapse: collapse; margin: .5rem 0; }
td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
td { font-family: ui-monospace, monospace; font-size: .85rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; opacity: .7; }
"""
HEADS = ("exchange", "time (UTC)", "who", "API", "what is seen")


def report_html(verdict: Verdict, title: str) -> str:
    """Return the page of a verdict. `title`: what was read."""
    return "\n".join(page_lines(verdict, title)) + "\n"


def page_lines(verdict: Verdict, title: str) -> Iterator[str]:
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    read = f"{number_of(verdict.exchanges, 'exchange')} of {number_of(verdict.connections, 'connection')}"
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield (
        '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; '
        f'style-src &#39;sha256-{digest}&#39;; base-uri &#39;none&#39;; form-action &#39;none&#39;">'
    )
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{text(title)}: {text(conclusion(verdict).partition(';')[0])}</title>"
    yield f"<style>{STYLE}</style></head><body>"
    yield f"<h1>{text(title)}</h1>"
    whole = "" if verdict.incomplete else ", all read whole"
    yield f"<p>{text(read)}{whole}. Checked: {text(checked(verdict.counts))}.</p>"
    if verdict.incomplete:
        yield '<ul class="missing">' + "".join(f"<li>{text(one)}</li>" for one in verdict.incomplete) + "</ul>"
    yield f"<p><strong>{text(conclusion(verdict))}</strong></p>"
    if verdict.exit_code is not None:
        yield f"<p>Exit code {verdict.exit_code}: {text(verdict.reason)}</p>"
    for finding in verdict.findings:
        yield from finding_html(finding)
    if verdict.not_checked:
        yield "<h2>Not checked</h2><table>"
        for why, names in by_reason(verdict.not_checked).items():
            yield f"<tr><th>{text(', '.join(names))}</th><td>{text(why)}</td></tr>"
        yield "</table>"
    yield f"<footer>kproxy {text(own_version())}</footer></body></html>"


def finding_html(finding: Finding) -> Iterator[str]:
    times = f" · {finding.times:,} times" if finding.times > 1 else ""
    yield (
        f'<section><h2><span class="level {text(finding.level)}">{text(finding.level)}</span> '
        f"{text(finding.check)} · {text(finding.about)}{times}</h2>"
    )
    yield f"<p>{text(finding.says)}</p>"
    several = len({day_of(one.witness) for one in finding.evidence}) > 1
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in HEADS) + "</tr>"
    for one in finding.evidence:
        yield "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in evidence_cells(one, with_day=several)) + "</tr>"
    yield "</table>"
    if finding.details:
        yield "<ul>" + "".join(f"<li>{text(one)}</li>" for one in finding.details) + "</ul>"
    yield f"<p>{text(finding.else_)}</p></section>"


def text(value: object) -> str:
    """Return any text as HTML, without markup, and with unseen characters shown."""
    return escape(in_line(value))
