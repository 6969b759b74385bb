"""Draws pictures, each for light and dark pages: `python docs/tables.py` writes them as SVG.

`picture-*.svg` of the README shows a frame's stages. `ports-*.svg` of concepts.md shows listeners, ports and brokers.
`addresses-*.svg` of networks.md shows the replaced addresses of a Metadata response. `tenants-*.svg` of
names-tenants.md shows the prefixes of two tenants, and `audit-*.svg` of audit.md the way of an event to the tables.

Strategy: words come from elsewhere. The groups of rules are those of `kproxy rules kinds`, split by when their rules
take effect; stages and sinks are words of the glossary in ARCHITECTURE.md, which a test compares. Only the places are
chosen here.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from kproxy.rules.kinds import KINDS
from kproxy.rules.kinds.base.rule import LiveRule

REQUEST_STAGES: Final = ("plan", "prefilter", "live rule", "name mapping", "FIFO")
RESPONSE_STAGES: Final = ("live rule", "name mapping", "FIFO")
"""From the left, so the last one comes first."""
SINKS: Final = ("audit", "capture", "tail", "metrics")
WIDTH, HEIGHT = 960, 500


@dataclass(frozen=True)
class Palette:
    """Colours of one picture."""

    text: str
    faint: str
    line: str
    panel: str
    chip: str
    accent: str


PALETTES: Final = {
    "light": Palette("#1f2328", "#59636e", "#818b98", "#f6f8fa", "#ffffff", "#0969da"),
    "dark": Palette("#f0f6fc", "#9198a1", "#656c76", "#151b23", "#212830", "#4493f8"),
}


def groups(live: bool) -> list[str]:
    """Return the groups whose rules are live rules or not."""
    return [group for group, kinds in KINDS.by_group().items() if issubclass(KINDS[kinds[0]], LiveRule) == live]


def pictures() -> dict[str, str]:
    """Return the name and the text of each file."""
    files = {}
    for name, palette in PALETTES.items():
        stages = [*_ends(palette), *_lanes(palette), *_rules(palette), *_sinks(palette)]
        files[f"picture-{name}.svg"] = svg(
            "Requests and responses on their way through kproxy", HEIGHT, stages, palette
        )
        files[f"ports-{name}.svg"] = svg(
            "Ports of a listener, and the brokers behind them", 330, _ports(palette), palette
        )
        files[f"addresses-{name}.svg"] = svg(
            "Broker addresses in a response, and the connection that follows", 300, _addresses(palette), palette
        )
        files[f"tenants-{name}.svg"] = svg("Two tenants on one cluster", 250, _tenants(palette), palette)
        files[f"audit-{name}.svg"] = svg("From exchanges to report tables", 250, _audit(palette), palette)
    return files


def _addresses(palette: Palette) -> list[str]:
    """Return a Metadata exchange with replaced addresses, and the connection to a broker's port, from top to bottom."""
    parts = []
    for x, name in ((100, "client"), (480, "kproxy"), (860, "brokers")):
        parts += [
            _box(x - 92, 12, 184, 36, palette.panel, palette.accent if x == 480 else palette.line),
            _text(x, 35, name, palette.text, size=13, bold=True),
            f'<line x1="{x}" y1="48" x2="{x}" y2="288" stroke="{palette.line}" stroke-dasharray="4 4"/>',
        ]
    for y, forward, client_side, broker_side in (
        (92, True, "Metadata to kafka.example.com:9092", "Metadata to b1.internal:9092"),
        (162, False, "1: kafka.example.com:9101", "1: b1.internal:9092"),
        (252, True, "Fetch to kafka.example.com:9102", "Fetch to b2.internal:9092"),
    ):
        for left, right, text in ((100, 480, client_side), (480, 860, broker_side)):
            start, end = (left, right) if forward else (right, left)
            parts += [
                _arrow(start, y, end, y, palette.line),
                _text((left + right) // 2, y - 8, text, palette.text, size=13),
            ]
    for x, text in ((290, "2: kafka.example.com:9102"), (670, "2: b2.internal:9092")):
        parts.append(_text(x, 180, text, palette.text, size=13))
    return [*parts, _text(480, 206, "addresses replaced", palette.accent, size=12)]


def _tenants(palette: Palette) -> list[str]:
    """Return two tenants that use one topic name, and the names on the brokers."""
    parts = [
        _box(340, 12, 280, 226, palette.panel, palette.accent),
        _text(480, 36, "kproxy", palette.text, bold=True),
        _box(720, 12, 232, 226, palette.panel, palette.line),
        _text(836, 36, "cluster", palette.text, bold=True),
        _box(736, 186, 200, 40, palette.chip, palette.line),
        _text(836, 211, "billing", palette.faint, size=13),
        _text(480, 211, "not visible to tenants", palette.faint, size=12),
    ]
    for y, tenant in ((82, "team-a"), (146, "team-b")):
        parts += [
            _box(8, y - 20, 232, 40, palette.panel, palette.line),
            _text(124, y + 5, f"client of {tenant}: orders", palette.text, size=13),
            _arrow(240, y, 356, y, palette.line),
            _box(356, y - 20, 248, 40, palette.chip, palette.line),
            _text(480, y + 5, f"kind: prefix, prefix: {tenant}.", palette.text, size=13),
            _arrow(604, y, 736, y, palette.line),
            _box(736, y - 20, 200, 40, palette.chip, palette.line),
            _text(836, y + 5, f"{tenant}.orders", palette.text, size=13),
        ]
    return parts


def _audit(palette: Palette) -> list[str]:
    """Return the outlets of audit events, and the tables that Spark builds from them."""
    parts = [
        _box(8, 85, 150, 80, palette.panel, palette.accent),
        _text(83, 118, "kproxy", palette.text, bold=True),
        _text(83, 140, "numbers each event", palette.faint, size=12),
        _text(862, 205, "kproxy audit show, report", palette.faint, size=12),
        _text(600, 205, "kproxy audit run", palette.faint, size=12),
    ]
    for y, outlet, use in ((50, "files", "dt=…/*.ndjson.gz"), (125, "Kafka topic", "one message an event"),
                           (200, "OpenTelemetry collector", "log records")):  # fmt: skip
        parts += [
            _arrow(158, 125, 222, y, palette.line),
            _box(222, y - 28, 210, 56, palette.chip, palette.line),
            _text(327, y - 3, outlet, palette.text, size=13),
            _text(327, y + 16, use, palette.faint, size=12),
        ]
    parts += [_arrow(432, y, 500, 125, palette.line) for y in (50, 125)]
    for x, table, content in ((500, "bronze", "events as lines"), (660, "silver", "typed rows"),
                              (820, "gold", "answers")):  # fmt: skip
        parts += [
            _box(x, 97, 128, 56, palette.chip, palette.line),
            _text(x + 64, 122, table, palette.text, size=13),
            _text(x + 64, 141, content, palette.faint, size=12),
        ]
    return [*parts, _arrow(628, 125, 660, 125, palette.line), _arrow(788, 125, 820, 125, palette.line)]


def _ports(palette: Palette) -> list[str]:
    """Return a listener with a bootstrap port and a port for each broker, and the brokers of its cluster."""
    parts = [
        _box(8, 70, 180, 190, palette.panel, palette.line),
        _text(98, 160, "client", palette.text, bold=True),
        _text(98, 182, "bootstrap.servers =", palette.faint, size=12),
        _text(98, 200, "kafka.example.com:9092", palette.faint, size=12),
        _box(330, 12, 240, 306, palette.panel, palette.accent),
        _text(450, 36, "kproxy, listener outside", palette.text, bold=True),
        _box(770, 12, 182, 306, palette.panel, palette.line),
        _text(861, 36, "cluster main", palette.text, bold=True),
    ]
    for number, (port, use) in enumerate(
        (("9092", "bootstrap"), ("9093", "broker 0"), ("9094", "broker 1"), ("9095", "broker 2"))
    ):
        y = 82 + 62 * number
        parts += [
            _box(346, y - 20, 208, 40, palette.chip, palette.line),
            _text(450, y + 5, f"port {port}: {use}", palette.text, size=13),
            _arrow(188, 120 + 27 * number, 346, y, palette.line),
        ]
        if number:
            parts += [
                _box(800, y - 20, 122, 40, palette.chip, palette.line),
                _text(861, y + 5, f"broker {number - 1}", palette.text, size=13),
                _arrow(554, y, 800, y, palette.line),
                _text(677, y - 8, f"b{number}:9092", palette.faint, size=12),
            ]
    return [
        *parts,
        _arrow(554, 82, 800, 132, palette.line),
        _text(677, 86, "any broker", palette.faint, size=12),
        _text(165, 290, "Metadata response:", palette.faint, size=12),
        _text(165, 308, "kafka.example.com:9093, 9094, 9095", palette.faint, size=12),
    ]


def svg(title: str, height: int, parts: list[str], palette: Palette) -> str:
    """Return a picture as SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f"<title>{title}</title>\n"
        f'<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{palette.line}"/></marker></defs>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _ends(palette: Palette) -> list[str]:
    return [
        _box(8, 84, 112, 300, palette.panel, palette.line),
        _text(64, 240, "clients", palette.text, bold=True),
        _box(840, 84, 112, 300, palette.panel, palette.line),
        _text(896, 240, "brokers", palette.text, bold=True),
        _box(160, 12, 640, 404, palette.panel, palette.accent),
        _text(480, 40, "kproxy", palette.text, bold=True),
    ]


def _lanes(palette: Palette) -> list[str]:
    return [
        _arrow(120, 112, 840, 112, palette.line),
        _text(480, 78, "request", palette.faint, size=12),
        *_chips(112, REQUEST_STAGES, 179, palette),
        _text(480, 154, "a frame that no rule is about leaves as the bytes that came", palette.faint, size=12),
        _arrow(840, 350, 120, 350, palette.line),
        *_chips(350, RESPONSE_STAGES, 301, palette),
        _text(480, 394, "response, in the order of the requests", palette.faint, size=12),
    ]


def _chips(y: int, words: tuple[str, ...], left: int, palette: Palette) -> list[str]:
    parts = []
    for number, word in enumerate(words):
        x = left + number * 122
        parts += [
            _box(x, y - 17, 112, 34, palette.chip, palette.line),
            _text(x + 56, y + 4, word, palette.text, size=13),
        ]
    return parts


def _rules(palette: Palette) -> list[str]:
    parts = []
    for title, live, left, columns in (
        ("rules of a connection", False, 179, 1),
        ("live rules, from the next frame on", True, 375, 2),
    ):
        parts.append(_text(left, 192, title, palette.accent, size=12, end="start"))
        names = groups(live)
        rows = -(-len(names) // columns)
        for number, name in enumerate(names):
            x, y = left + number // rows * 210, 216 + number % rows * 20
            parts.append(_text(x, y, name, palette.text, size=12, end="start"))
    return parts


def _sinks(palette: Palette) -> list[str]:
    return [
        _arrow(480, 416, 480, 450, palette.line),
        _text(492, 438, "exchange", palette.faint, size=12, end="start"),
        *_chips(470, SINKS, 240, palette),
    ]


def _box(x: int, y: int, width: int, height: int, fill: str, line: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" stroke="{line}"/>'


def _arrow(x1: int, y1: int, x2: int, y2: int, line: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{line}" stroke-width="1.5" marker-end="url(#tip)"/>'


def _text(x: int, y: int, text: str, fill: str, size: int = 14, end: str = "middle", bold: bool = False) -> str:
    more = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{end}" font-size="{size}"{more}>{escape(text)}</text>'
