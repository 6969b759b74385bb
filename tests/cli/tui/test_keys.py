"""The table of keys: each does something, the help and docs/live-view.md list them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kproxy.cli.admin_client import Admin
from kproxy.cli.tui.app import ViewApp, ViewScreen
from kproxy.cli.tui.keys import KEYS, SCREENS, help_lines, markdown
from kproxy.cli.tui.sources import ProxySource
from kproxy.cli.tui.widgets import LineList

PAGE = Path(__file__).parents[3] / "docs" / "live-view.md"


def test_a_key_stands_for_one_thing() -> None:
    """Also on different screens: who acts decides only what it is done to."""
    keys = Counter(key for use in KEYS for key in use.keys.split(","))
    assert [key for key, count in keys.items() if count > 1] == []
    assert len(ViewScreen.BINDINGS) == len(keys)


def test_each_key_does_something() -> None:
    """Some list, screen or the app has the method that it stands for; and no method is without a key."""
    proxy = ProxySource(Admin("http://127.0.0.1:1"))
    app = ViewApp(proxy, "", proxy=proxy)
    who = [LineList, type(app.keys), *map(type, app.panes.values()), type(app.exchanges.rows)]
    methods = {name.removeprefix("do_") for one in who for name in dir(one) if name.startswith("do_")}
    wanted = {use.does for use in KEYS}

    assert wanted - {"screen"} <= methods
    assert methods <= wanted
    assert tuple(app.panes) == SCREENS


def test_the_help_and_the_page_list_all_keys() -> None:
    """The page's table is made by `python docs/tables.py`."""
    said = list(help_lines())
    assert [keys for keys, _ in said if keys] == [use.shown for use in KEYS]
    assert markdown() in PAGE.read_text()
