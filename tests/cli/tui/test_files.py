"""`kproxy view FILE`: the list, the details, filters and searches of captures and event files, by keys."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.cli import main
from kproxy.cli.admin_client import Admin
from kproxy.cli.tui.app import ViewApp
from kproxy.cli.tui.exchange_rows import COLUMNS, ExchangeStore, cell, placed
from kproxy.cli.tui.exchanges import ExchangeList
from kproxy.cli.tui.sources import ProxySource, ViewedFiles
from kproxy.record.captures.policy import Policy
from kproxy.record.captures.writer import CaptureWriter
from tests.support.exchange_factory import NOON, Somebody, conversation, event_lines, exchange, write_capture
from tests.support.terminal_text import idle, press, said, same_screen, screen_text, settled

HERE = Path(__file__).parent
Script = Callable[[ViewApp], Coroutine[Any, Any, None]]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """The conversation of six exchanges."""
    return write_capture(tmp_path / "traffic.pcapng", conversation())


def play(files: list[Path], script: Script, text: str = "", size: tuple[int, int] = (80, 24)) -> None:
    """Show these files, and do what the script does, once they are read."""

    async def run() -> None:
        app = ViewApp(ViewedFiles([str(file) for file in files]), text, proxy=ProxySource(Admin("http://127.0.0.1:1")))
        async with app.run_test(size=size):
            await settled(app, lambda: app.state.over)
            await script(app)

    asyncio.run(run())


def test_the_list(capture: Path) -> None:
    """At 80 × 24: time, connection, client, API, what it is about, latency, how it ended."""

    async def script(app: ViewApp) -> None:
        same_screen(app, HERE / "list.txt")

    play([capture], script)


def test_the_list_where_there_is_room(capture: Path) -> None:
    """More columns, and wider ones."""

    async def script(app: ViewApp) -> None:
        same_screen(app, HERE / "list_wide.txt")

    play([capture], script, size=(160, 24))


def test_the_details(capture: Path) -> None:
    """Fields and bytes beside each other, the bytes of the field at the cursor marked."""

    async def script(app: ViewApp) -> None:
        await press(app, "g", "j", "j", "enter")
        await settled(app, lambda: app.details.detail)
        same_screen(app, HERE / "details.txt")
        await press(app, "right_square_bracket", "right_square_bracket")
        field = app.details.fields.field()
        assert field is not None
        assert app.details.client.marked == (field.start, field.end)
        for part in ("response", "records", "timing", "event"):
            await press(app, "tab")
            await idle()
            same_screen(app, HERE / f"details_{part}.txt")

    play([capture], script)


def test_events_have_lines_and_no_frames(tmp_path: Path, capture: Path) -> None:
    """The list says the same of an event file and of the capture; the details of an event are its data."""
    events = tmp_path / "events.ndjson"
    events.write_bytes(event_lines(conversation()))
    lists: list[list[str]] = []

    async def script(app: ViewApp) -> None:
        lists.append(screen_text(app).splitlines()[2:9])
        if len(lists) == 2:
            await press(app, "g", "enter")
            await settled(app, lambda: app.details.detail)
            assert "there is no request" in screen_text(app)
            await press(app, "h")
            assert '"api": "Metadata"' in screen_text(app)

    play([capture], script)
    play([events], script)
    assert lists[0] == lists[1]


def test_a_filter_is_asked_for_and_judged(capture: Path) -> None:
    """`f`; a mistake is shown and leaves the list as it was; no filter shows all again."""

    async def script(app: ViewApp) -> None:
        await press(app, "f", "=~k produce", "enter")
        await settled(app, lambda: len(app.store) == 3)
        assert "filter api == Produce  3 of 3" in screen_text(app)
        await press(app, "f", "=~k nonsense", "enter")
        assert 'unknown API "nonsense"' in screen_text(app)
        assert (len(app.store), app.filter_text) == (3, "api == Produce")
        await press(app, "f", "=", "enter")
        await settled(app, lambda: len(app.store) == 6)

    play([capture], script)


def test_a_filter_that_finds_nothing_says_so(capture: Path) -> None:
    """So that nobody takes it for a proxy without traffic."""

    async def script(app: ViewApp) -> None:
        assert "filter group == nobody  nothing fits it so far" in screen_text(app)
        assert "0 of 6 exchanges" in screen_text(app)

    play([capture], script, "~g == nobody")


def test_searching(capture: Path) -> None:
    """`/` goes to the next line with the text, `n` and `N` on and back; the end of the list is told."""

    async def script(app: ViewApp) -> None:
        await press(app, "g", "slash", "=heartbeat", "enter")
        assert app.exchanges.rows.cursor == 5
        await press(app, "slash", "=etl", "enter", "N")
        assert 'no more "etl"' in screen_text(app) or app.exchanges.rows.cursor < 4
        await press(app, "g", "n", "n")
        assert app.exchanges.rows.cursor == 2

    play([capture], script)


def test_marks_order_and_columns(capture: Path) -> None:
    """`M` marks a line, `v` turns the list round, `l` and `h` show other columns."""

    async def script(app: ViewApp) -> None:
        await press(app, "g", "M")
        assert "●12:00:01" in screen_text(app)
        await press(app, "v")
        lines = screen_text(app).splitlines()
        assert "Heartbeat" in lines[3]
        assert "●12:00:01" in lines[8]
        await press(app, *"llllllllll")
        assert "throttle" in screen_text(app).splitlines()[2]
        await press(app, *"hhhhhhhhhh", "M")
        assert "●" not in screen_text(app)

    play([capture], script)


def test_only_what_belongs_to_an_exchange(capture: Path) -> None:
    """`c` shows its connection, `o` asks for what; both are filters."""

    async def script(app: ViewApp) -> None:
        await press(app, "G", "c")
        await settled(app, lambda: len(app.store) == 2)
        assert app.filter_text == "connection == 4"
        await press(app, "G", "o")
        assert "only its (connection, group, member, client_id):" in screen_text(app)
        await press(app, "=group", "enter")
        await settled(app, lambda: len(app.store) == 1)
        assert app.filter_text == "connection == 4 and group == billing"

    play([capture], script)


def test_saving_and_loading(capture: Path, tmp_path: Path) -> None:
    """`w` writes an exchange as JSON into a new file and overwrites none; `L` reads another file."""
    other = write_capture(tmp_path / "other.pcapng", conversation()[:2])

    async def script(app: ViewApp) -> None:
        target = tmp_path / "one.json"
        for words in ("saved as", "cannot be written"):
            await press(app, "g", "w", f"={target}", "enter")
            await settled(app, lambda: app.message[0])
            assert words in said(app)
        assert json.loads(target.read_text())["event"]["api"] == "Metadata"
        await press(app, "L", f"={other}", "enter")
        await settled(app, lambda: app.state.over and len(app.store) == 2)
        assert "other.pcapng" in screen_text(app).splitlines()[0]
        await press(app, "L", "=gone.pcapng", "enter")
        assert "file not found: gone.pcapng" in screen_text(app)

    play([capture], script)


@pytest.mark.parametrize("content", [b"", b"no capture", b"\x0a\x0d\x0d\x0a\x1c\x00\x00", b'{"type": 1}\nnonsense\n'])
def test_a_file_that_is_no_capture(tmp_path: Path, content: bytes) -> None:
    """It is said at the bottom, and the view goes on."""
    file = tmp_path / "odd.pcapng"
    file.write_bytes(content)

    async def script(app: ViewApp) -> None:
        await press(app, "j", "enter", "2", "tab", "1")
        assert len(app.store) == 0
        if content:
            assert app.state.trouble
        assert app.is_running

    play([file], script)


def test_a_file_that_goes_while_it_is_looked_at(capture: Path) -> None:
    """What is kept is shown; what would have to be read again is not, and why."""

    async def script(app: ViewApp) -> None:
        assert isinstance(app.source, ViewedFiles)
        app.source.kept.views.clear()
        capture.unlink()  # noqa: ASYNC240 - nothing else runs
        await press(app, "g", "enter")
        await settled(app, lambda: app.message[0])
        assert "no such file" in said(app)

    play([capture], script)


@pytest.mark.parametrize("kept", [1 << 20, 1], ids=["kept", "read again"])
def test_both_sides_of_a_capture_of_kproxys_own(tmp_path: Path, kept: int) -> None:
    """What passed at the broker stands beside what the client sent, whichever was written first."""
    who = Somebody(3, client_id="etl")
    sides = [exchange("Metadata", 8, {"topics": [{"name": name}]}, {}, who=who, at=NOON) for name in ("a", "prod.a")]
    file = tmp_path / "both.pcapng"
    with file.open("wb") as target:
        writer = CaptureWriter(target, Policy("full"))
        writer.write_broker(sides[1], ("10.0.0.1", 9092))
        writer.write(sides[0], ("127.0.0.1", 9092))
        writer.finish(NOON + 60, "asked")

    async def script(app: ViewApp) -> None:
        assert isinstance(app.source, ViewedFiles)
        assert len(app.store) == 1
        app.source.kept.budget.max_bytes = kept
        app.source.kept.keep("x", app.source.view("0-1")[0])
        await press(app, "g", "enter")
        await settled(app, lambda: app.details.detail)
        assert "client, " in said(app)
        assert "broker, " in said(app)
        assert '≠ name "a"' in said(app)

    play([file], script)


def test_what_is_not_kept_is_read_again(capture: Path) -> None:
    """Exchanges beyond the bound are found in their file by their numbers."""

    async def script(app: ViewApp) -> None:
        assert isinstance(app.source, ViewedFiles)
        kept = app.source.kept
        kept.budget.max_bytes, view = 1, app.source.view("0-1")[0]
        for number in range(10, 20):
            kept.keep(f"0-{number}", view)
        assert list(kept.views) == ["0-18", "0-19"]
        assert [app.source.view(f"0-{number}")[0].get("api") for number in (1, 6)] == ["Metadata", "Heartbeat"]

    play([capture], script)


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """Control characters, direction marks and markup of a client id, and a topic are shown as they are written."""
    evil = "\x1b[31mred\u202e[bold]x[/bold]\x07"
    seen = exchange("Metadata", 8, {"topics": [{"name": f"top{evil}"}]}, {"topics": [{"name": f"top{evil}"}]},
                    who=Somebody(client_id=evil), at=1_795_262_400.0)  # fmt: skip
    file = write_capture(tmp_path / "evil.pcapng", [seen])

    async def script(app: ViewApp) -> None:
        shown = screen_text(app)
        await press(app, "g", "enter")
        await settled(app, lambda: app.details.detail)
        for _ in range(5):
            shown += screen_text(app)
            await press(app, "tab")
            await idle()
        assert "\\u001b[31mred\\u202e" in shown
        assert "[bold]x[/bold]" in shown
        assert not set(shown) & set("\x1b\x07\u202e")

    play([file], script, size=(200, 30))


def test_rows_of_another_kproxy_are_shown_as_far_as_they_can_be() -> None:
    """A value that is not of its column's type is `?`, a column that is not there is empty."""
    odd = {"time": "noon", "latency": [], "api": None, "errors": 7, "request": {}}
    made = {one.head: cell(one, odd.get) for one in COLUMNS}

    assert (made["time"], made["latency"], made["outcome"], made["request"], made["client"]) == ("?", "?", "?", "?", "")


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200, 400])
def test_columns_fit_the_width(width: int) -> None:
    """Whatever the width, and however far the columns were moved; the API is always among them."""
    for first in (0, 1, 5, len(COLUMNS)):
        found = placed(COLUMNS, width, first)
        assert sum(abs(one.width) + 1 for one in found) <= width
        assert "api" in [one.column.head for one in found]


def test_a_list_of_any_length_draws_what_is_on_the_screen() -> None:
    """100,000 rows: each key makes as many lines as the screen has, and no more."""
    made = 0

    class Counting(ExchangeList):
        def line(self, index: int, width: int) -> Any:
            nonlocal made
            made += 1
            return super().line(index, width)

    async def run() -> None:
        nonlocal made
        app = ViewApp(ViewedFiles(["-"]), "", proxy=ProxySource(Admin("http://127.0.0.1:1")))
        app.source.files.clear()  # type: ignore[attr-defined]
        app.exchanges.rows = Counting(app.store)
        async with app.run_test(size=(100, 30)):
            await settled(app, lambda: app.state.over)
            app.exchanges.rows.add([[f"0-{n}", n / 10, 1, "c", "Produce", 9, "orders[3]", 2] for n in range(100_000)])
            await idle()
            assert app.exchanges.rows.cursor == 99_999
            made = 0
            for key in ("g", "G", "k", "pageup"):
                await press(app, key)
                screen_text(app)
            assert 0 < made < 4 * 4 * 30
            assert "99974 of 100000" in screen_text(app)

    asyncio.run(run())


def test_rows_are_bounded() -> None:
    """The oldest make room, are counted, and are not found any more; a row that comes again takes its own place."""
    store = ExchangeStore(most=3000)
    store.begin(("id", "api"))
    assert store.add([[f"0-{number}", "Produce"] for number in range(5000)]) == 2000
    assert (len(store), store.gone, store.ident(0)) == (3000, 2000, "0-2000")
    assert (store.place("0-1999"), store.place("0-2000")) == (None, 0)
    store.add([["0-2500", "Fetch"], "nonsense"])
    assert (len(store), store.getter(500)("api")) == (3000, "Fetch")


def test_the_list_stays_where_it_is_unless_it_follows(capture: Path) -> None:
    """New rows do not move what is looked at."""

    async def script(app: ViewApp) -> None:
        rows, columns = app.exchanges.rows, app.store.read.columns
        more = [[f"1-{number}", *[None] * (len(columns) - 1)] for number in range(100)]
        await press(app, "g", "j")
        rows.add(more[:50])
        assert (rows.cursor, rows.top, rows.following) == (1, 0, False)
        await press(app, "v")
        at = rows.cursor - rows.top
        rows.add(more[50:])
        assert (app.store.ident(rows.index(rows.cursor)), rows.cursor - rows.top) == ("0-2", at)
        await press(app, "F")
        assert rows.cursor == 0

    play([capture], script)


def test_without_color(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR leaves no colour on the screen; what colours say stands there in words."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def script(app: ViewApp) -> None:
        found = set()
        for strip in app.screen._compositor.render_strips():
            for segment in strip.apply_filter(app.get_line_filters()[-1], app.screen.styles.background):
                if segment.style is not None and segment.style.color is not None:
                    found.add(segment.style.color.name)
        assert found <= {"default"}
        assert "NOT_LEADER" in screen_text(app)

    play([capture], script)


def test_both_themes_show_the_same(capture: Path) -> None:
    """Their colours are the terminal's; `D` changes them; `:` does what it is told by name."""

    async def script(app: ViewApp) -> None:
        before = screen_text(app)
        await press(app, "D")
        await idle()
        assert (app.theme, screen_text(app)) == ("ansi-light", before)
        await press(app, "colon", "=nonsense", "enter")
        assert 'there is no "nonsense"' in screen_text(app)

    play([capture], script)


def test_files_can_only_be_looked_at(capture: Path) -> None:
    """Keys that change a proxy say so."""

    async def script(app: ViewApp) -> None:
        for key in ("A", "I", "K", "4", "3"):
            await press(app, key)
            await idle()
            assert "files" in screen_text(app).splitlines()[-1]

    play([capture], script)


def test_leaving(capture: Path) -> None:
    """`q` goes back, and from the list asks first."""

    async def script(app: ViewApp) -> None:
        await press(app, "question_mark")
        assert app.shown == "help"
        await press(app, "q")
        assert app.shown == "exchanges"
        await press(app, "q", "n")
        assert app.is_running
        assert not app._exit
        await press(app, "q", "y")
        assert app._exit

    play([capture], script)


def test_it_says_how_to_get_textual(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra."""
    monkeypatch.delitem(sys.modules, "kproxy.cli.tui.app")
    monkeypatch.setitem(sys.modules, "textual.app", None)
    ran = CliRunner().invoke(main, ["view", str(capture)])

    assert ran.exit_code == 1
    assert "textual is not installed: pip install '.[view]' in a checkout" in ran.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [(("-",), "the keys come from standard input"), (("gone.pcapng",), "file not found: gone.pcapng"),
     (("~k nonsense",), 'unknown API "nonsense"')],
)  # fmt: skip
def test_usage(words: tuple[str, ...], told: str) -> None:
    """Mistakes are told before the screen is taken."""
    ran = CliRunner().invoke(main, ["view", *words])

    assert ran.exit_code == 2
    assert told in ran.stderr
